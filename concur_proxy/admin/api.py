"""The management API: look at the proxy, change it while it runs, end sessions. Its reference is at /concur/docs."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from pydantic import SecretStr

from concur_proxy import __version__
from concur_proxy.admin import past, reference
from concur_proxy.admin.backends import add_backends
from concur_proxy.admin.changes import change_schema, changeable, read_change
from concur_proxy.admin.guard import Guard
from concur_proxy.admin.live import Live, LiveResponse
from concur_proxy.admin.port import AdminPort
from concur_proxy.admin.reports import (
    Ended,
    HistoryReport,
    LiveReport,
    Queue,
    Released,
    SessionList,
    SessionState,
    StatusReport,
)
from concur_proxy.admin.schemas import json_body
from concur_proxy.admin.ui import page
from concur_proxy.core.listing import Query as SessionQuery
from concur_proxy.core.listing import Sort
from concur_proxy.errors import BodyTooLargeError, ConcurError, RequestError, SessionNotFoundError
from concur_proxy.history import SPAN_S
from concur_proxy.model import BackendId

TITLE = "concur-proxy management"
DOCS, SCHEMA, UI = "/concur/docs", "/concur/openapi.json", "/concur/ui"
LARGEST_BODY = 64 * 1024
"""Bytes; a whole configuration has two thousand."""
IN_EVENTS = 50
"""Held turns in each event; those that have waited longest."""

NamespaceOf = Callable[[Mapping[str, str]], str]
"""Tells from a request's headers whose sessions it may end: those that the same API key opened."""


def install(app: FastAPI, port: AdminPort, *, token: SecretStr | None, namespace_of: NamespaceOf) -> None:
    """Add the API, its page and its errors to ``app``."""
    guard = Guard(token.get_secret_value() if token is not None else None)
    router = APIRouter()
    _add_management(router, port, guard)
    _add_session_ends(router, port, guard, namespace_of)
    _add_pages(router, guard)
    app.include_router(router)
    app.exception_handlers.setdefault(ConcurError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)


def _add_management(router: APIRouter, port: AdminPort, guard: Guard) -> None:
    async def managers_only(request: Request) -> None:
        guard.check(request)

    managed = APIRouter(dependencies=[Depends(managers_only)], tags=["management"])

    @managed.get("/concur/status")
    async def status() -> StatusReport:
        """Windows, sessions, signals and laws of all backends."""
        return port.status()

    @managed.get("/concur/sessions")
    async def sessions(
        *,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 100,
        offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
        state: SessionState | None = None,
        backend: BackendId | None = None,
        search: Annotated[str, Query(max_length=256, description="Part of an id.")] = "",
        sort: Sort = Sort.RECENT,
        reverse: bool = False,
    ) -> SessionList:
        """Live sessions, those that were active last first."""
        return await port.sessions(SessionQuery(search, state, backend, sort, reverse, offset, limit))

    @managed.get("/concur/queue")
    async def queue(limit: Annotated[int, Query(ge=1, le=10_000)] = 100) -> Queue:
        """Turns that wait for a place, those that have waited longest first."""
        return port.queue(limit=limit)

    @managed.get("/concur/history")
    async def history(
        backend: str | None = None,
        span_s: Annotated[float, Query(ge=1, le=SPAN_S)] = 3600.0,
        points: Annotated[int, Query(ge=1, le=10_000)] = 360,
    ) -> HistoryReport:
        """How windows, sessions and engines were: of one backend, or of all together."""
        return await past.report(port.past(), backend=backend, span_s=span_s, points=points)

    live = Live(lambda: _live(port), over=port.ending)

    @managed.get("/concur/events", response_class=StreamingResponse, responses=_EVENTS)
    async def events() -> LiveResponse:
        """Status and queue as server-sent events, about once a second."""
        return LiveResponse(live)

    @managed.get("/concur/config")
    async def config() -> dict[str, Any]:
        """What may change while the proxy runs, as it is now; without a bound in which engines differ by a share."""
        return changeable(port.settings(), port.bounds())

    @managed.patch("/concur/config", openapi_extra=json_body(change_schema()))
    @managed.post("/concur/config", openapi_extra=json_body(change_schema()))
    async def change(request: Request) -> dict[str, Any]:
        """Change what is named, until the next start; bounds of the window also take a share such as "50%"."""
        port.change(read_change(await _json(request), port.settings()))
        return changeable(port.settings(), port.bounds())

    add_backends(managed, port, _json)
    router.include_router(managed)


def _add_session_ends(router: APIRouter, port: AdminPort, guard: Guard, namespace_of: NamespaceOf) -> None:
    """Ending a session needs the API key that opened it; whoever manages the proxy may end any."""

    @router.delete("/concur/sessions/{session_id:path}", tags=["sessions"])
    async def delete_session(request: Request, session_id: str) -> Ended:
        """Say that a session is over: its place is free at once."""
        ended = port.end_sessions(session_id, namespace=_namespace(request, guard, namespace_of))
        if not ended:
            raise SessionNotFoundError(f"There is no session {session_id!r} under this API key.")
        return Ended(ended=ended)

    @router.post("/programs/release", tags=["sessions"], openapi_extra=json_body(_RELEASE))
    async def release(request: Request) -> Released:
        """Say that a session is over, in ThunderAgent's words; one that is gone already is no error."""
        namespace = _namespace(request, guard, namespace_of)  # before a stranger's body is looked at
        body = await _json(request)
        program = body.get("program_id") if isinstance(body, dict) else None
        if not isinstance(program, str) or not program:
            raise RequestError('Give the session as {"program_id": "..."}.', param="program_id")
        return Released(program_id=program, released=port.end_sessions(program, namespace=namespace) > 0)


def _add_pages(router: APIRouter, guard: Guard) -> None:
    @router.get(UI, include_in_schema=False)
    async def ui(request: Request) -> Response:
        """The live page. It holds no facts: with a token set, it asks for the token itself."""
        if guard.token is None:
            guard.check(request)
        live = page()
        return HTMLResponse(live.content, headers=live.headers)

    @functools.cache  # anybody may ask for it, as often as they like
    def document() -> dict[str, Any]:
        return with_errors(get_openapi(title=TITLE, version=__version__, routes=router.routes))

    @router.get(SCHEMA, include_in_schema=False)
    async def openapi() -> dict[str, Any]:
        return document()

    @router.get(DOCS, include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(reference.page(document(), where=SCHEMA), headers=reference.HEADERS)


def with_errors(document: dict[str, Any]) -> dict[str, Any]:
    """Say of every operation what a call that is refused gets, in place of what FastAPI would have answered."""
    for operations in document["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)
            operation["responses"]["4XX"] = _REFUSED
    return document


_TEXT = {"type": "string"}
_ERROR = {"message": _TEXT, "type": _TEXT, "param": {"type": ["string", "null"]}, "code": _TEXT}
_ERROR_SCHEMA = {
    "type": "object",
    "required": ["error"],
    "properties": {"error": {"type": "object", "properties": _ERROR}},
}
_REFUSED = {"description": "What is wrong, and what to do.", "content": {"application/json": {"schema": _ERROR_SCHEMA}}}
_EVENTS: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}}
_RELEASE = {
    "type": "object",
    "required": ["program_id"],
    "properties": {"program_id": {"type": "string", "minLength": 1}},
}


def _live(port: AdminPort) -> bytes:
    report = LiveReport(status=port.status(), queue=port.queue(limit=IN_EVENTS))
    return report.model_dump_json().encode()


def _namespace(request: Request, guard: Guard, namespace_of: NamespaceOf) -> str | None:
    """Return whose sessions the caller may end; None: everybody's. A local caller with a key acts for that key."""
    has_key = "authorization" in request.headers or "x-api-key" in request.headers
    if guard.has_token(request) or (not has_key and guard.manages(request)):
        return None
    return namespace_of(request.headers)


async def _json(request: Request) -> Any:
    """Read a small JSON body, whatever type it claims: ``curl -d`` claims a form."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST_BODY:
            raise BodyTooLargeError(f"The body is larger than {LARGEST_BODY} bytes.")
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise RequestError(f"The body is not JSON: {error}.") from None


async def _on_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ConcurError)
    inner = {"message": error.message, "type": error.type, "param": error.param, "code": error.code}
    headers = {"retry-after": str(math.ceil(error.retry_after_s))} if error.retry_after_s is not None else None
    return JSONResponse({"error": inner}, status_code=error.status, headers=headers)


async def _on_invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    name = str(first["loc"][-1])
    return await _on_error(request, RequestError(f"{name} = {first['input']!r}: {first['msg']}", param=name))
