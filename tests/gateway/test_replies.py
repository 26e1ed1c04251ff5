"""Errors in words that clients' libraries understand."""

import json

import pytest

from concur_proxy.errors import (
    BackendError,
    BackendTimeoutError,
    BodyTooLargeError,
    ConcurError,
    ModelNotFoundError,
    QueueFullError,
    QueueTimeoutError,
)
from concur_proxy.gateway import replies
from concur_proxy.gateway.paths import Shape
from concur_proxy.model import RefusalReason, Refused


def test_the_openai_shape():
    error = json.loads(replies.error_json(ModelNotFoundError("gone", param="model"), Shape.OPENAI))
    inner = {"message": "gone", "type": "invalid_request_error", "param": "model", "code": "model_not_found"}
    assert error == {"error": inner}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (BodyTooLargeError("x"), "request_too_large"),
        (QueueFullError("x"), "rate_limit_error"),
        (QueueTimeoutError("x"), "overloaded_error"),
        (BackendError("x"), "api_error"),
        (BackendTimeoutError("x"), "timeout_error"),
        (ConcurError("x"), "api_error"),
    ],
)
def test_the_anthropic_shape(error, kind):
    told = json.loads(replies.error_json(error, Shape.ANTHROPIC))
    assert told == {"type": "error", "error": {"type": kind, "message": "x"}}


@pytest.mark.parametrize("shape", Shape)
def test_an_error_as_an_event(shape):
    event = replies.error_event(BackendError("x"), shape)
    lines = event.split(b"\n")
    assert lines[-2:] == [b"", b""]
    assert lines[:-3] == ([b"event: error"] if shape is Shape.ANTHROPIC else [])
    assert json.loads(lines[-3].removeprefix(b"data: "))["error"]["message"] == "x"


@pytest.mark.parametrize("reason", RefusalReason)
def test_every_refusal_has_its_code_and_says_when_to_retry(reason):
    error = replies.refusal(Refused(1, reason, 1.2))
    assert error.code == reason.value
    assert dict(replies.retry_headers(error)) == {
        b"x-should-retry": b"true",
        b"retry-after": b"2",
        b"retry-after-ms": b"1200",
    }


def test_a_client_error_says_nothing_of_retries():
    assert replies.retry_headers(BodyTooLargeError("x")) == []


def test_a_whole_message():
    raw = replies.message(404, [(b"a", b"b")], b"{}", keep_alive=False)
    head, _, body = raw.partition(b"\r\n\r\n")
    assert body == b"{}"
    assert head.split(b"\r\n") == [
        b"HTTP/1.1 404 Not Found",
        b"a: b",
        b"content-type: application/json",
        b"content-length: 2",
        b"connection: close",
    ]
    assert replies.message(599, [], b"{}", keep_alive=True, head_only=True).endswith(b"content-length: 2\r\n\r\n")
