"""What a line of an input file may be, and what becomes of it."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from concur_proxy.batch import lines
from concur_proxy.batch.lines import Line, Problem
from concur_proxy.batch.records import Spent
from tests.batch.stores import CHAT

OWN = ("X-Agent",)


def line(**changes: Any) -> dict[str, Any]:
    usual = {"custom_id": "a", "method": "POST", "url": CHAT, "body": {"model": "m", "messages": []}}
    return {name: value for name, value in {**usual, **changes}.items() if value is not ...}


def read(**changes: Any) -> Line | Problem:
    return lines.read(json.dumps(line(**changes)).encode(), CHAT, OWN)


def test_a_line_in_order() -> None:
    found = read()
    assert isinstance(found, Line)
    assert (found.custom_id, found.model, found.session) == ("a", "m", None)
    assert orjson.loads(found.body) == {"model": "m", "messages": []}


@pytest.mark.parametrize(
    "body", ['{"seed": 123456789012345678901234567890}', '{ "a":1.10, "a": 2 }', '{"a": "\\u00e9"}']
)
def test_a_body_is_sent_as_it_was_written(body: str) -> None:
    found = lines.read(json.dumps(line(body="here")).replace('"here"', body).encode(), CHAT, OWN)
    assert isinstance(found, Line)
    assert found.body == body.encode()


@pytest.mark.parametrize("depth", [200, 300, 800, 1100, 100_000])
def test_deep_bodies_are_sent_or_refused(depth: int) -> None:
    text = json.dumps(line(body={"messages": "here"})).replace('"here"', "[" * depth + "]" * depth)
    found = lines.read(text.encode(), CHAT, OWN)
    if depth <= 800:
        assert isinstance(found, Line)
    else:
        assert isinstance(found, Problem)
        assert found.code == "invalid_json_line"


@pytest.mark.parametrize(
    "wrong",
    [
        '"method": "%s"' % ("x" * 1_000_000),
        '"method": %s' % ("[" * 990 + "]" * 990),
        '"headers": {"%s": ""}' % ("h" * 10_000),
    ],
)
def test_errors_do_not_repeat_whatever_was_wrong(wrong: str) -> None:
    """A hundred of them are kept."""
    text = json.dumps(line())[:-1] + f", {wrong}}}"
    found = lines.read(text.encode(), CHAT, OWN)
    assert isinstance(found, Problem)
    assert len(found.message) + len(found.param or "") < 500


@pytest.mark.parametrize(
    "answer", ["[" * 600 + "]" * 600, "[\n" * 600 + "]\r\n" * 600, '{"n":\n 1234567890123456789012}']
)
def test_answers_of_any_shape_are_one_line(answer: str) -> None:
    text = lines.answered("batch_1", 1, "a", 200, answer.encode()).text
    assert text.count(b"\n") == 1
    assert text.count(b"\r") == 0
    assert json.loads(text)["response"]["body"] == json.loads(answer)


@pytest.mark.parametrize(
    ("changes", "session"),
    [
        ({"headers": {"X-Session-ID": "s"}}, "s"),
        ({"headers": {"x-agent": "own"}}, "own"),
        ({"headers": {"X-Dynamo-Session-Id": "d", "x-dynamo-session-final": "true"}}, "d"),
        ({"headers": {"x-acme-session-id": "abcdefgh"}}, "abcdefgh"),
        ({"body": {"session_id": "b"}}, "b"),
        ({"body": {"vllm_xargs": {"session_id": "v"}}}, "v"),
        ({"headers": {"x-vllm-priority": "3"}}, None),
    ],
)
def test_lines_name_sessions_as_requests_do(changes: dict[str, Any], session: str | None) -> None:
    found = read(**changes)
    assert isinstance(found, Line)
    assert found.session == session


@pytest.mark.parametrize(
    ("changes", "code", "param"),
    [
        ({"custom_id": ...}, "missing_required_parameter", "custom_id"),
        ({"custom_id": 3}, "invalid_value", "custom_id"),
        ({"custom_id": ""}, "invalid_value", "custom_id"),
        ({"custom_id": "x" * 513}, "invalid_value", "custom_id"),
        ({"custom_id": "a\0b"}, "invalid_value", "custom_id"),
        ({"method": ...}, "missing_required_parameter", "method"),
        ({"method": "GET"}, "invalid_method", "method"),
        ({"url": ...}, "missing_required_parameter", "url"),
        ({"url": "/v1/embeddings"}, "url_mismatch", "url"),
        ({"body": ...}, "missing_required_parameter", "body"),
        ({"body": []}, "invalid_value", "body"),
        ({"body": {"stream": True}}, "invalid_value", "body.stream"),
        ({"body": {"background": True}}, "invalid_value", "body.background"),
        ({"headers": [1]}, "invalid_value", "headers"),
        ({"headers": {"x-session-id": 3}}, "invalid_header", "headers.x-session-id"),
        ({"headers": {"x-session-id": "a\r\nb: c"}}, "invalid_header", "headers.x-session-id"),
        ({"headers": {"x-session-id": "y" * 2000}}, "invalid_header", "headers.x-session-id"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, Any], code: str, param: str) -> None:
    found = read(**changes)
    assert isinstance(found, Problem)
    assert (found.code, found.param) == (code, param)


@pytest.mark.parametrize(
    "name",
    ["Authorization", "x-api-key", "Cookie", "Host", "content-length", "x-forwarded-for", "x-concur-cold", "X-Team"],
)
def test_no_header_may_say_who_the_client_is(name: str) -> None:
    found = read(headers={name: "x"})
    assert isinstance(found, Problem)
    assert found.code == "invalid_header"


@pytest.mark.parametrize("text", [b"", b"nonsense", b"[1]", b"null", b'"text"', b"\xff", b"{"])
def test_what_is_no_object_is_no_line(text: bytes) -> None:
    found = lines.read(text, CHAT, OWN)
    assert isinstance(found, Problem)
    assert found.code == "invalid_json_line"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 53), 1 << 53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(
        st.sampled_from(["custom_id", "method", "url", "body", "headers"]),
        json_values | st.sampled_from(["POST", CHAT, {}]),
    )
)
def test_any_object_is_a_line_or_a_problem(fields: dict[str, Any]) -> None:
    assert isinstance(lines.read(orjson.dumps(fields), CHAT, OWN), Line | Problem)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(status=st.sampled_from([200, 201, 400, 404, 500]), body=st.binary(max_size=50) | json_values.map(orjson.dumps))
def test_any_answer_is_one_line(status: int, body: bytes) -> None:
    answer = lines.answered("batch_1", 7, "a", status, body)
    assert answer.text.count(b"\n") == 1
    assert answer.text.endswith(b"\n")
    told = orjson.loads(answer.text)
    assert (told["custom_id"], told["error"], told["response"]["status_code"]) == ("a", None, status)
    assert answer.failed == (status >= 300)


def test_a_pretty_answer_becomes_one_line() -> None:
    answer = lines.answered("batch_1", 7, "a", 200, json.dumps({"a": {"b": 1}}, indent=2).encode())
    assert orjson.loads(answer.text)["response"]["body"] == {"a": {"b": 1}}


def test_a_line_without_an_answer_says_why() -> None:
    told = orjson.loads(lines.unanswered("batch_1", 7, "a", "batch_expired", "Too late.").text)
    assert told == {
        "id": "batch_req_1_7",
        "custom_id": "a",
        "response": None,
        "error": {"code": "batch_expired", "message": "Too late."},
    }


@pytest.mark.parametrize(
    ("usage", "spent"),
    [
        (
            {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 3}},
            Spent(5, 3, 2, 0),
        ),
        ({"input_tokens": 5, "output_tokens": 2, "output_tokens_details": {"reasoning_tokens": 1}}, Spent(5, 0, 2, 1)),
        ({"prompt_tokens": "many", "completion_tokens": None, "prompt_tokens_details": 3}, Spent()),
        (None, Spent()),
    ],
)
def test_tokens_are_read_in_every_api(usage: object, spent: Spent) -> None:
    assert lines.answered("batch_1", 1, "a", 200, orjson.dumps({"usage": usage})).spent == spent
