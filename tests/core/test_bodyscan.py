import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.core import bodyscan
from concur_proxy.core.bodyscan import MAX_VALUE, BodyScanner
from concur_proxy.core.spent import read_usage
from concur_proxy.model import FinishReason, Usage
from tests.core.answers import CHAT_USAGE, HARD_TEXT, STREAMS, USAGE, chat_body, chunk, event


def scan(*pieces, streamed=False):
    scanner = BodyScanner(streamed=streamed)
    for piece in pieces:
        scanner.feed(piece)
    return scanner


def scan_json(body, **layout):
    return scan(json.dumps(body, **layout).encode())


@pytest.mark.parametrize(
    ("told", "usage"),
    [
        ({"prompt_tokens": 5, "completion_tokens": 2}, Usage(5, 2, None)),
        ({"prompt_tokens": 5, "total_tokens": 5}, Usage(5, 0, None)),
        ({"prompt_tokens": 5, "completion_tokens": None, "prompt_tokens_details": None}, Usage(5, 0, None)),
        ({"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 0}}, Usage(5, 0, 0)),
        ({"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 9}}, Usage(5, 0, 5)),
        ({"prompt_tokens": 5, "cached_tokens": 4}, Usage(5, 0, 4)),
        ({"input_tokens": 5, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 4}}, Usage(5, 2, 4)),
        ({"input_tokens": 5, "output_tokens": 2}, Usage(5, 2, None)),
        ({"input_tokens": 5, "output_tokens": 2, "cache_read_input_tokens": 4}, Usage(9, 2, 4)),
        ({"input_tokens": 5, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 4}, Usage(12, 0, 4)),
        ({"input_tokens": 5, "cache_creation_input_tokens": 3, "cache_read_input_tokens": None}, Usage(8, 0, None)),
        ({}, None),
        ({"completion_tokens": 5}, None),
        ({"prompt_tokens": "5"}, None),
        ({"prompt_tokens": True}, None),
        ({"prompt_tokens": -1}, None),
        ({"prompt_tokens": 5.0}, None),
    ],
)
def test_usage_of_every_api_and_nonsense(told, usage):
    assert read_usage(told) == usage


@pytest.mark.parametrize("layout", [{}, {"separators": (",", ":")}, {"indent": 2}, {"separators": (" , ", " : ")}])
def test_a_chat_answer_in_any_layout(layout):
    found = scan_json(chat_body(), **layout)
    assert (found.usage, found.finish_reason, found.saw_token) == (CHAT_USAGE, FinishReason.STOP, False)


@pytest.mark.parametrize(
    ("finish", "fields", "reason"),
    [
        ("stop", {}, FinishReason.STOP),
        ("length", {}, FinishReason.LENGTH),
        ("tool_calls", {}, FinishReason.TOOL_CALLS),
        ("stop", {"tool_calls": [{"id": "c", "function": {}}]}, FinishReason.TOOL_CALLS),
        ("length", {"tool_calls": [{"id": "c", "function": {}}]}, FinishReason.LENGTH),
        ("abort", {}, FinishReason.OTHER),
        (None, {}, None),
    ],
)
def test_finish_reasons_of_chat(finish, fields, reason):
    assert scan_json(chat_body(finish=finish, **fields)).finish_reason is reason


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        ("end_turn", FinishReason.STOP),
        ("stop_sequence", FinishReason.STOP),
        ("max_tokens", FinishReason.LENGTH),
        ("tool_use", FinishReason.TOOL_CALLS),
        ("refusal", FinishReason.OTHER),
        (None, None),
    ],
)
def test_stop_reasons_of_messages(stop, reason):
    assert scan_json({"type": "message", "stop_reason": stop, "stop_sequence": None}).finish_reason is reason


def test_the_text_that_vllm_stopped_at_is_no_reason():
    body = {"choices": [{"finish_reason": "length", "stop_reason": "tool_use"}]}
    assert scan_json(body).finish_reason is FinishReason.LENGTH


def test_of_several_choices_one_that_calls_a_tool_counts():
    body = {"choices": [{"finish_reason": "tool_calls"}, {"finish_reason": "stop"}]}
    assert scan_json(body).finish_reason is FinishReason.TOOL_CALLS


def test_what_the_model_says_is_not_taken_for_the_engines_word():
    body = chat_body(HARD_TEXT + '"finish_reason":"length"', usage=None)
    found = scan_json(body)
    assert (found.usage, found.finish_reason) == (None, FinishReason.STOP)


def test_a_tool_argument_like_usage_does_not_last():
    arguments = {"usage": {"input_tokens": 1, "cache_read_input_tokens": 1}}
    content = [{"type": "tool_use", "input": arguments}]
    body = {"type": "message", "content": content, "stop_reason": "tool_use", "usage": {"input_tokens": 5}}
    assert scan_json(body).usage == Usage(5, 0, None)


def test_a_schema_like_usage_is_none():
    tools = [{"type": "function", "parameters": {"properties": {"usage": {"type": "string"}}}}]
    usage = {"input_tokens": 5, "output_tokens": 1}
    assert scan_json({"usage": usage, "id": "resp_1", "tools": tools}).usage == Usage(5, 1)


@pytest.mark.parametrize("size", [MAX_VALUE, 3 * MAX_VALUE])
def test_an_object_that_is_too_large_is_passed_over(size):
    odd = {"usage": {"x": "y" * size}}
    assert scan_json([odd, {"usage": USAGE}]).usage == Usage(100, 7)


def test_usage_before_much_else_is_found():
    body = json.dumps(chat_body() | {"prompt_logprobs": [0.5] * 50_000}).encode()
    pieces = [body[start : start + 4096] for start in range(0, len(body), 4096)]
    assert scan(*pieces).usage == CHAT_USAGE


def test_nothing_but_the_end_of_a_large_body_is_kept():
    scanner = BodyScanner(streamed=False)
    for _ in range(128):
        scanner.feed(b'"usage":{"a' + b"x" * 65_536)
        assert len(scanner._carry) <= 2 * MAX_VALUE
    scanner.feed(b'"usage"' + b" " * 65_536)
    scanner.feed(b" " * 65_536)
    assert len(scanner._carry) <= 2 * MAX_VALUE


def test_nesting_without_end_is_passed_over_once(monkeypatch):
    calls = []
    decode = bodyscan._decode
    monkeypatch.setattr(bodyscan, "_decode", lambda text: (calls.append(text), decode(text))[1])
    assert scan(b'{"usage":' * 100_000).usage is None
    assert len(calls) <= 9 * 100_000 / MAX_VALUE + 1


def test_a_long_usage_object_cut_anywhere():
    body = json.dumps({"usage": USAGE | {"completion_tokens_details": {f"kind_{n}": n for n in range(40)}}}).encode()
    for cut in range(len(body)):
        assert scan(body[:cut], body[cut:]).usage == Usage(100, 7)


def test_lines_of_a_json_body_may_end_between_key_and_value():
    assert scan(b'{"finish_reason":\n', b'"stop"}').finish_reason is FinishReason.STOP


def test_the_id_of_a_response_is_its_own():
    body = {"previous_response_id": "resp_0", "id": "resp_1", "output": [{"id": "resp_2"}]}
    assert scan_json(body).response_id == "resp_1"
    assert scan_json({"id": "chatcmpl-1"}).response_id is None


@pytest.mark.parametrize("status", ["completed", "incomplete"])
def test_a_whole_response(status):
    details = {"reason": "max_output_tokens"} if status == "incomplete" else None
    body = {"id": "resp_1", "status": status, "incomplete_details": details, "usage": {"input_tokens": 5}}
    expected = FinishReason.LENGTH if details else FinishReason.STOP
    assert scan_json(body).finish_reason is expected


@pytest.mark.parametrize(("stream", "usage", "reason", "response_id"), STREAMS)
def test_streams_of_every_api_cut_anywhere(stream, usage, reason, response_id):
    for cut in range(len(stream)):
        found = scan(stream[:cut], stream[cut:], streamed=True)
        assert (found.usage, found.finish_reason, found.response_id) == (usage, reason, response_id)
        assert found.saw_token


@pytest.mark.parametrize(("stream", "usage", "reason", "response_id"), STREAMS)
@given(st.data())
def test_streams_of_every_api_cut_into_any_pieces(stream, usage, reason, response_id, data):
    cuts = sorted({0, len(stream), *data.draw(st.lists(st.integers(0, len(stream)), max_size=40))})
    found = scan(*(stream[a:b] for a, b in itertools.pairwise(cuts)), streamed=True)
    assert (found.usage, found.finish_reason, found.response_id) == (usage, reason, response_id)


@pytest.mark.parametrize(
    ("event_body", "saw"),
    [
        (chunk({"role": "assistant", "content": ""}), False),
        (chunk({"role": "assistant", "content": None, "tool_calls": None}), False),
        (chunk({"content": "a"}), True),
        (chunk({"content": '"'}), True),
        (chunk({"reasoning_content": "a"}), True),
        (chunk({"reasoning": "a"}), True),
        (chunk({"tool_calls": [{"function": {"name": "f", "arguments": ""}}]}), True),
        (chunk({}, "stop"), True),
        ({"choices": [{"text": "a"}]}, True),
        ({"choices": [{"text": ""}]}, False),
        ({"type": "message_start", "message": {"content": [], "usage": {"input_tokens": 1}}}, False),
        ({"type": "content_block_start", "content_block": {"type": "text", "text": ""}}, False),
        ({"type": "content_block_start", "content_block": {"type": "tool_use", "name": "f", "input": {}}}, True),
        ({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}}, True),
        ({"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "a"}}, True),
        ({"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": "{"}}, True),
        ({"type": "response.created", "response": {"id": "resp_1", "instructions": "be good"}}, False),
        ({"type": "response.output_text.delta", "delta": "a"}, True),
    ],
)
def test_the_first_token_of_a_stream(event_body, saw):
    assert scan(b": ping\n\n", event(event_body), streamed=True).saw_token is saw


def test_of_continuous_usage_the_last_counts():
    events = [event(chunk({"content": "a"}, usage={"prompt_tokens": 9, "completion_tokens": n})) for n in range(4)]
    assert scan(*events, streamed=True).usage == Usage(9, 3)


@given(st.lists(st.binary() | st.sampled_from([b'"usage"', b":", b"{", b"}", b'"prompt_tokens"', b"\n", b"1"])))
def test_nothing_that_can_come_raises(pieces):
    for streamed in (True, False):
        found = scan(*pieces, streamed=streamed)
        assert found.usage is None or found.usage.prompt_tokens >= 0
        assert found.response_id is None
