"""Answers that the proxy gives by itself, in the shape that the client's library understands."""

from __future__ import annotations

import http
import math
from collections.abc import Iterable

import orjson

from concur_proxy.errors import (
    BackendError,
    ConcurError,
    NoBackendError,
    QueueFullError,
    QueueTimeoutError,
    ShuttingDownError,
    TurnRefusedError,
)
from concur_proxy.gateway.paths import Shape
from concur_proxy.model import RefusalReason, Refused

Headers = Iterable[tuple[bytes, bytes]]

ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}

REFUSALS: dict[RefusalReason, tuple[type[TurnRefusedError], str]] = {
    RefusalReason.QUEUE_TIMEOUT: (QueueTimeoutError, "The turn waited for a place for as long as it may."),
    RefusalReason.QUEUE_FULL: (QueueFullError, "The window is full and so is the queue in front of it."),
    RefusalReason.NO_BACKEND: (NoBackendError, "No healthy backend serves this model now."),
    RefusalReason.SHUTTING_DOWN: (ShuttingDownError, "The proxy is shutting down."),
}


def refusal(refused: Refused) -> TurnRefusedError:
    """Return the error that tells a client of the gate's refusal."""
    kind, message = REFUSALS[refused.reason]
    return kind(message, retry_after_s=refused.retry_after_s)


def error_json(error: ConcurError, shape: Shape) -> bytes:
    """Return the body of an error."""
    if shape is Shape.ANTHROPIC:
        kind = ANTHROPIC_TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
        return orjson.dumps({"type": "error", "error": {"type": kind, "message": error.message}})
    inner = {"message": error.message, "type": error.type, "param": error.param, "code": error.code}
    return orjson.dumps({"error": inner})


def error_event(error: ConcurError, shape: Shape) -> bytes:
    """Return an error as an event of a stream whose headers are already out."""
    name = b"event: error\n" if shape is Shape.ANTHROPIC else b""
    return b"%bdata: %b\n\n" % (name, error_json(error, shape))


def retry_headers(error: ConcurError) -> list[tuple[bytes, bytes]]:
    """Return what tells clients whether and when to try again; nothing for errors that a retry cannot mend."""
    if not isinstance(error, TurnRefusedError | BackendError):
        return []
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
