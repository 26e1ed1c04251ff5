"""Reads a short JSON answer that comes in one piece by parsing it: a sixth of what looking for its keys costs.

Longer ones, those that come in several pieces, and those of another shape are looked through as all others are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import orjson

from concur_proxy.core.bodyscan import BodyScanner
from concur_proxy.core.spent import read_usage, reason_of
from concur_proxy.core.usage import UsageReader, reader_for
from concur_proxy.gateway.answers import UNUSUAL, Answer, Spent, read_answer
from concur_proxy.model import FinishReason, Usage

MAX_WHOLE: Final = 16 << 10
"""Bytes of an answer up to which parsing costs less than looking."""
JSON: Final = b"application/json"
_RESPONSE_ID: Final = re.compile(r"resp_[!#-\[\]-~]{1,128}")

Told = tuple[Usage | None, FinishReason | None, str | None]
"""Usage, finish reason, and the id that the Responses API gave."""


def reader_of(content_type: bytes, *, strip_usage_event: bool) -> UsageReader:
    """Return the reader for a body that is not compressed."""
    if content_type == JSON:
        return WholeReader()
    return reader_for(content_type.decode("latin-1"), strip_usage_event=strip_usage_event)


class WholeReader:
    """Keeps the first piece, which is what is passed on anyway, until the answer ends or goes on."""

    __slots__ = ("_first", "_scanner", "_told")

    def __init__(self) -> None:
        self._first = b""
        self._scanner: BodyScanner | None = None
        self._told: Told = (None, None, None)

    def feed(self, data: bytes) -> bytes:
        if self._scanner is not None:
            self._scanner.feed(data)
        elif self._first or len(data) > MAX_WHOLE:
            self._scan(data)
        else:
            self._first = data
        return data

    def finish(self) -> bytes:
        if self._scanner is None:
            told = told_by(self._first)
            if told is None:
                self._scan(b"")
            else:
                self._told = told
                self._first = b""
        return b""

    def _scan(self, data: bytes) -> None:
        self._scanner = scanner = BodyScanner(streamed=False)
        scanner.feed(self._first + data)
        self._first = b""

    @property
    def usage(self) -> Usage | None:
        return self._now()[0]

    @property
    def finish_reason(self) -> FinishReason | None:
        return self._now()[1]

    @property
    def saw_token(self) -> bool:
        return False

    @property
    def response_id(self) -> str | None:
        return self._now()[2]

    def _now(self) -> Told:
        """Return what is known; asked before the end, the beginning is looked through."""
        if self._first:
            self._scan(b"")
        scanner = self._scanner
        return self._told if scanner is None else (scanner.usage, scanner.finish_reason, scanner.response_id)


def told_by(body: bytes) -> Told | None:
    """Return what a whole answer says of itself; None where it is not one with its usage at the top."""
    try:
        answer = read_answer(body)
    except UNUSUAL:
        return told_in_full(body)
    return _usage(answer.usage), _reason_of(answer), None


def _usage(spent: Spent) -> Usage:
    details, prompt = spent.prompt_tokens_details, spent.prompt_tokens
    cached = None if details is None else details.cached_tokens
    return Usage(prompt, spent.completion_tokens, None if cached is None else min(cached, prompt))


def _reason_of(answer: Answer) -> FinishReason | None:
    """Return how the last choice ended, as ``_of_choices`` does."""
    last: FinishReason | None = None
    called = False
    for choice in answer.choices:
        word, message = choice.finish_reason, choice.message
        if word is not None and last is not FinishReason.TOOL_CALLS:
            last = reason_of(word)
        called = called or (message is not None and bool(message.tool_calls))
    return FinishReason.TOOL_CALLS if last is FinishReason.STOP and called else last


def told_in_full(body: bytes) -> Told | None:
    """Return the same for answers of any shape, by building them."""
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    spent = answer.get("usage") if isinstance(answer, dict) else None
    return _read(answer, spent) if isinstance(spent, dict) else None


def _read(answer: dict[str, Any], spent: dict[str, object]) -> Told | None:
    choices, response_id = answer.get("choices"), answer.get("id")
    if isinstance(choices, list):
        return read_usage(spent), _of_choices(choices), None
    if "stop_reason" in answer:
        return read_usage(spent), _reason(answer["stop_reason"]), None
    if isinstance(response_id, str) and _RESPONSE_ID.fullmatch(response_id):
        return read_usage(spent), _of_response(answer), response_id
    return None


def _of_choices(choices: list[Any]) -> FinishReason | None:
    """Return how the last choice ended. One that called a tool says so, whatever its own reason says."""
    last: FinishReason | None = None
    called = False
    for choice in choices:
        if isinstance(choice, dict):
            reason = _reason(choice.get("finish_reason"))
            last = last if reason is None or last is FinishReason.TOOL_CALLS else reason
            message = choice.get("message")
            called = called or (isinstance(message, dict) and bool(message.get("tool_calls")))
    return FinishReason.TOOL_CALLS if last is FinishReason.STOP and called else last


def _of_response(answer: Mapping[str, Any]) -> FinishReason:
    """A response has no finish reason: it is cut short, or calls a function, or is done."""
    if isinstance(answer.get("incomplete_details"), dict):
        return FinishReason.LENGTH
    output = answer.get("output")
    items = output if isinstance(output, list) else []
    called = any(isinstance(item, dict) and item.get("type") == "function_call" for item in items)
    return FinishReason.TOOL_CALLS if called else FinishReason.STOP


def _reason(word: object) -> FinishReason | None:
    return reason_of(word) if isinstance(word, str) else None
