"""Asks a running proxy's management API, for the command line. What goes wrong is a ``ConcurError`` in plain words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from concur_proxy.admin.reports import HistoryReport, Queue, SessionList, StatusReport
from concur_proxy.errors import ConcurError

TIMEOUT_S = 10.0

AnswerT = TypeVar("AnswerT", bound=BaseModel)
Parameters = Mapping[str, str | float | int]


class AnsweredError(ConcurError):
    """It answered, but with an error: the HTTP status, and the code in the answer where there is one."""

    def __init__(self, message: str, answer_status: int, answer_code: str | None) -> None:
        super().__init__(message)
        self.answer_status = answer_status
        self.answer_code = answer_code


class ProxyClient:
    """``url`` may be a bare host and port, or a base URL with its ``/v1``; ``token``: the admin token, if any."""

    def __init__(self, url: str, token: str | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        self.url = (url if "://" in url else f"http://{url}").rstrip("/").removesuffix("/v1")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._timeout_s = timeout_s

    def status(self) -> StatusReport:
        return self._ask("status", StatusReport)

    def queue(self, *, limit: int) -> Queue:
        return self._ask("queue", Queue, {"limit": limit})

    def sessions(self, *, limit: int) -> SessionList:
        return self._ask("sessions", SessionList, {"limit": limit})

    def history(self, *, backend: str | None, span_s: float, points: int) -> HistoryReport:
        named = {} if backend is None else {"backend": backend}
        return self._ask("history", HistoryReport, {"span_s": span_s, "points": points, **named})

    def _ask(self, path: str, kind: type[AnswerT], parameters: Parameters | None = None) -> AnswerT:
        try:
            answer = httpx.get(
                f"{self.url}/concur/{path}", params=parameters, headers=self._headers, timeout=self._timeout_s
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ConcurError(
                f"no answer from {self.url}: {str(error).rstrip('.')}. Is the proxy running? Name its address."
            ) from None
        if answer.status_code != httpx.codes.OK:
            words = _usual(answer) if _no_proxy(path, answer) else _said(answer, "message") or _usual(answer)
            message = f"{self.url} answered {answer.status_code}: {words}"
            raise AnsweredError(message, answer.status_code, _said(answer, "code"))
        try:
            return kind.model_validate_json(answer.content)
        except ValidationError:
            raise ConcurError(f"{self.url} is not a concur-proxy of this version") from None


def _said(answer: httpx.Response, name: str) -> str | None:
    try:
        return str(answer.json()["error"][name])
    except (ValueError, KeyError, TypeError):
        return None


def _no_proxy(path: str, answer: httpx.Response) -> bool:
    """Every proxy has a status: who says in words of its own that there is none is an engine, or something else."""
    return path == "status" and answer.status_code == httpx.codes.NOT_FOUND


def _usual(answer: httpx.Response) -> str:
    return "this is not a concur-proxy" if answer.status_code == httpx.codes.NOT_FOUND else answer.reason_phrase
