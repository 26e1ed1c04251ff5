"""Answers that the proxy gives by itself, in the shape that the client's library understands."""

from __future__ import annotations

import http
import math
from collections.abc import Iterable
from typing import Final

import orjson

from concur_proxy.errors import (
    CHALLENGE,
    BackendError,
    BatchPausedError,
    ConcurError,
    CutOffError,
    NoBackendError,
    NotAuthenticatedError,
    QueueFullError,
    QueueTimeoutError,
    ShuttingDownError,
    TokenRateError,
    TooManyHeldError,
    TooManySessionsError,
    TurnRateError,
    TurnRefusedError,
)
from concur_proxy.gateway.paths import Shape
from concur_proxy.model import RefusalReason, Refused

Headers = Iterable[tuple[bytes, bytes]]

ANTHROPIC_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}

MAX_QUOTED_BYTES: Final = 2000

REFUSALS: Final[dict[RefusalReason, tuple[type[TurnRefusedError], str]]] = {
    RefusalReason.QUEUE_TIMEOUT: (QueueTimeoutError, "The turn waited for a place for as long as it may."),
    RefusalReason.QUEUE_FULL: (QueueFullError, "The window is full and so is the queue in front of it."),
    RefusalReason.NO_BACKEND: (NoBackendError, "No healthy backend serves this model now; GET /readyz says why."),
    RefusalReason.SHUTTING_DOWN: (ShuttingDownError, "The proxy is shutting down."),
    RefusalReason.CUT_OFF: (CutOffError, "This replica of the proxy is cut off from the others: ask again."),
    RefusalReason.TOO_MANY_SESSIONS: (
        TooManySessionsError,
        "As many of your sessions are active as may be at once; this one may begin when another has ended.",
    ),
    RefusalReason.TOO_MANY_HELD: (TooManyHeldError, "As many of your turns wait for a place as may at once."),
    RefusalReason.TURN_RATE: (TurnRateError, "You have sent as many turns as you may within a minute."),
    RefusalReason.TOKEN_RATE: (TokenRateError, "Your turns have taken as many tokens as they may within a minute."),
    RefusalReason.BATCH_PAUSED: (BatchPausedError, "Batch work is paused until interactive answers are quick again."),
}


def refusal(refused: Refused) -> TurnRefusedError:
    """Return the error that tells a client of the gate's refusal."""
    kind, message = REFUSALS[refused.reason]
    return kind(message, retry_after_s=refused.retry_after_s)


def error_json(error: ConcurError, shape: Shape) -> bytes:
    """Return the body of an error."""
    if shape is Shape.ANTHROPIC:
        return _anthropic(anthropic_type(error.status), error.message)
    return orjson.dumps({"error": _openai(error)})


def anthropic_type(status: int) -> str:
    return ANTHROPIC_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")


def _anthropic(kind: str, message: str) -> bytes:
    return orjson.dumps({"type": "error", "error": {"type": kind, "message": message}})


def _openai(error: ConcurError) -> dict[str, object]:
    return {"message": error.message, "type": error.type, "param": error.param, "code": error.code}


def error_event(error: ConcurError, shape: Shape) -> bytes:
    """Return an error as an event of a stream whose headers are already out."""
    if shape is Shape.ANTHROPIC:
        return b"event: error\ndata: %b\n\n" % error_json(error, shape)
    return _event(_openai(error), shape)


def _event(error: dict[str, object], shape: Shape) -> bytes:
    """Return OpenAI's event for an error; that of the Responses API also has it as clients of older events look for."""
    if shape is not Shape.RESPONSES:
        return b"data: %b\n\n" % orjson.dumps({"error": error})
    told = {name: error[name] for name in ("message", "param", "code")}
    event = {"type": "error", "sequence_number": 0, **told, "error": error}
    return b"event: error\ndata: %b\n\n" % orjson.dumps(event)


def engine_error_event(status: int, body: bytes, shape: Shape) -> bytes:
    """Return what an engine answered, instead of with a stream, as an event of the stream that its client has."""
    told = _told(body)
    message = told.get("message") or told.get("detail") or body[:MAX_QUOTED_BYTES].decode(errors="replace")
    text = message if isinstance(message, str) else orjson.dumps(message).decode()
    if not text or status < 300:
        text = f"The engine answered with status {status} and not with a stream of events. {text}".rstrip()
    kind = told.get("type")
    if shape is Shape.ANTHROPIC:
        return b"event: error\ndata: %b\n\n" % _anthropic(str(kind or anthropic_type(status)), text)
    kind = kind or ("invalid_request_error" if 400 <= status < 500 else "server_error")
    return _event({"message": text, "type": kind, "param": told.get("param"), "code": told.get("code")}, shape)


def _told(body: bytes) -> dict[str, object]:
    """Return the fields of an engine's error, in whichever of the usual shapes; empty where it is in none."""
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    inner = fields.get("error") if isinstance(fields, dict) else None
    if isinstance(inner, str):
        return {"message": inner}
    fields = inner if isinstance(inner, dict) else fields
    return fields if isinstance(fields, dict) else {}


def retry_headers(error: ConcurError) -> list[tuple[bytes, bytes]]:
    """Return what tells clients whether and when to try again, and with what; nothing where neither would help."""
    if isinstance(error, NotAuthenticatedError):
        return [CHALLENGE]
    if not isinstance(error, TurnRefusedError | BackendError):
        return [] if error.retry_after_s is None else [(b"retry-after", b"%d" % math.ceil(error.retry_after_s))]
    headers = [(b"x-should-retry", b"true")]
    if error.retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % math.ceil(error.retry_after_s)))
        headers.append((b"retry-after-ms", b"%d" % math.ceil(error.retry_after_s * 1000)))
    return headers


def reason_phrase(status: int) -> bytes:
    try:
        return http.HTTPStatus(status).phrase.encode()
    except ValueError:
        return b""


def message(status: int, headers: Headers, body: bytes, *, keep_alive: bool, head_only: bool = False) -> bytes:
    """Return a whole HTTP/1.1 response with a JSON body; ``head_only`` answers HEAD."""
    lines = [b"HTTP/1.1 %d %b" % (status, reason_phrase(status))]
    lines += [b"%b: %b" % header for header in headers]
    lines += [b"content-type: application/json", b"content-length: %d" % len(body)]
    if not keep_alive:
        lines.append(b"connection: close")
    return b"\r\n".join(lines) + b"\r\n\r\n" + (b"" if head_only else body)
