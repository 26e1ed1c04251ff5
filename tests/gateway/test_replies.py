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
    assert told_by(event, shape)["error"]["message"] == "x"


def told_by(event, shape):
    lines = event.split(b"\n")
    assert lines[-2:] == [b"", b""]
    assert lines[:-3] == ([] if shape is Shape.OPENAI else [b"event: error"])
    return json.loads(lines[-3].removeprefix(b"data: "))


def test_an_error_event_of_the_responses_api_has_its_own_fields():
    told = told_by(replies.error_event(BackendError("x", param="p"), Shape.RESPONSES), Shape.RESPONSES)
    assert told.pop("error") == {"message": "x", "type": "server_error", "param": "p", "code": "backend_error"}
    assert told == {"type": "error", "sequence_number": 0, "message": "x", "param": "p", "code": "backend_error"}


SAID = [
    (b'{"error":{"message":"m","type":"BadRequestError","param":"q","code":400}}', "m", "BadRequestError"),
    (b'{"object":"error","message":"m","type":"BadRequestError","code":400}', "m", "BadRequestError"),
    (b'{"type":"error","error":{"type":"overloaded_error","message":"m"}}', "m", "overloaded_error"),
    (b'{"error":"m"}', "m", None),
    (b'{"detail":"m"}', "m", None),
    (b'{"detail":[{"loc":["a"]}]}', '[{"loc":["a"]}]', None),
    (b"<html>bad</html>", "<html>bad</html>", None),
    (b'"text"', '"text"', None),
    (b"", "The engine answered with status 400 and not with a stream of events.", None),
]


@pytest.mark.parametrize("shape", Shape)
@pytest.mark.parametrize(("body", "message", "kind"), SAID)
def test_what_an_engine_said_as_an_event(body, message, kind, shape):
    told = told_by(replies.engine_error_event(400, body, shape), shape)
    assert told["error"]["message"] == message
    assert told["error"]["type"] == (kind or "invalid_request_error")
    if shape is not Shape.ANTHROPIC and b'"q"' in body:
        assert (told["error"]["param"], told["error"]["code"]) == ("q", 400)


def test_an_engine_that_answers_without_a_stream_is_quoted():
    event = replies.engine_error_event(200, b'{"choices":[]}', Shape.OPENAI)
    assert b'status 200 and not with a stream of events. {\\"choices\\":[]}' in event
    assert b'"type":"server_error"' in event


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
