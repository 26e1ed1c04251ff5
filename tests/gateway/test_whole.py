import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from concur_proxy.core.bodyscan import BodyScanner
from concur_proxy.core.usage import PassiveReader
from concur_proxy.gateway.whole import MAX_WHOLE, WholeReader, reader_of, told_by, told_in_full
from concur_proxy.model import FinishReason, Usage

COUNTS = st.one_of(st.none(), st.integers(0, 10**6), st.just(-1), st.just("3"), st.just(True))
WORDS = st.sampled_from(["a", "", '"usage": {', "finish_reason", "é\n", '"finish_reason":"stop"', "tool_calls"])
REASONS = st.sampled_from(
    [None, "stop", "tool_calls", "length", "content_filter", "end_turn", "tool_use", "max_tokens"]
)


def some(**fields):
    return st.fixed_dictionaries({}, optional=fields)


CHAT_SPENT = some(
    prompt_tokens=COUNTS,
    completion_tokens=COUNTS,
    prompt_tokens_details=st.one_of(st.none(), some(cached_tokens=COUNTS)),
)
ITEM_SPENT = some(
    input_tokens=COUNTS,
    output_tokens=COUNTS,
    cache_read_input_tokens=COUNTS,
    cache_creation_input_tokens=COUNTS,
    input_tokens_details=some(cached_tokens=COUNTS),
)
CALLS = st.lists(st.just({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}), max_size=2)
CHOICES = st.lists(
    some(
        finish_reason=REASONS,
        stop_reason=st.one_of(st.none(), st.integers(0, 9)),
        message=some(content=WORDS, tool_calls=CALLS),
    ),
    max_size=3,
)
CHAT = st.fixed_dictionaries({"id": st.just("chatcmpl-1"), "choices": CHOICES, "usage": CHAT_SPENT})
MESSAGES = st.fixed_dictionaries(
    {"content": st.lists(some(type=st.just("text"), text=WORDS)), "stop_reason": REASONS, "usage": ITEM_SPENT}
)
RESPONSE = st.fixed_dictionaries(
    {
        "id": st.just("resp_1"),
        "output": st.lists(some(type=st.sampled_from(["message", "function_call"]), name=WORDS), max_size=3),
        "incomplete_details": st.one_of(st.none(), st.just({"reason": "max_output_tokens"})),
        "usage": some(input_tokens=st.integers(0, 9), output_tokens=COUNTS),
    }
)


def seen(reader):
    return reader.usage, reader.finish_reason, reader.response_id, reader.saw_token


def read(reader, *pieces):
    for piece in pieces:
        assert reader.feed(piece) is piece
    assert reader.finish() == b""
    return seen(reader)


@given(st.one_of(CHAT, MESSAGES), st.sampled_from([None, 1]))
def test_a_whole_answer_says_what_looking_through_it_finds(answer, indent):
    body = json.dumps(answer, indent=indent).encode()
    assert read(WholeReader(), body) == read(PassiveReader(streamed=False), body)


@given(RESPONSE)
def test_a_whole_response_says_what_looking_through_it_finds(answer):
    body = json.dumps(answer).encode()
    told, found = read(WholeReader(), body), read(PassiveReader(streamed=False), body)
    if "input_tokens" in answer["usage"]:
        assert told == found
    assert (told[0], told[2]) == (found[0], "resp_1")


@given(CHAT, st.data())
def test_pieces_are_looked_through(answer, data):
    body = json.dumps(answer).encode()
    cut = data.draw(st.integers(1, len(body) - 1))
    scanner = BodyScanner(streamed=False)
    for piece in (body[:cut], body[cut:]):
        scanner.feed(piece)
    assert read(WholeReader(), body[:cut], body[cut:]) == (scanner.usage, scanner.finish_reason, None, False)


def test_what_is_asked_before_the_end_is_known_as_far_as_it_came():
    reader = WholeReader()
    reader.feed(b'{"usage":{"prompt_tokens":3,"completion_tokens":2},"choices":[{"finish_reason":"stop"')
    assert seen(reader) == (Usage(3, 2), FinishReason.STOP, None, False)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"[1]",
        b'{"response":{"id":"resp_2","usage":{"input_tokens":4,"output_tokens":1}}}',
        b'{"data":[],"usage":{"prompt_tokens":4,"total_tokens":4}}',
        b'{"usage":null,"choices":[{"finish_reason":"length"}]}',
        b'{"choices":[],"usage":{"prompt_tokens":3},"pad":"' + b"x" * MAX_WHOLE + b'"}',
    ],
)
def test_other_shapes_are_looked_through(body):
    assert read(WholeReader(), body) == read(PassiveReader(streamed=False), body)


def test_only_plain_json_is_taken_whole():
    assert isinstance(reader_of(b"application/json", strip_usage_event=True), WholeReader)
    assert isinstance(reader_of(b"application/json; charset=utf-8", strip_usage_event=False), PassiveReader)
    assert isinstance(reader_of(b"text/event-stream", strip_usage_event=False), PassiveReader)


ODD = st.fixed_dictionaries(
    {},
    optional={
        "usage": st.one_of(
            CHAT_SPENT, ITEM_SPENT, st.builds(dict.__or__, CHAT_SPENT, ITEM_SPENT), st.none(), st.just(7)
        ),
        "choices": st.one_of(
            CHOICES, st.none(), st.just([1, {"finish_reason": 3}, {"message": {"tool_calls": {"a": 1}}}])
        ),
        "id": st.one_of(st.just("resp_1"), st.integers()),
        "stop_reason": REASONS,
    },
)


SPENT = {"prompt_tokens": 5, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 9}}


@given(st.one_of(CHAT, MESSAGES, RESPONSE, ODD))
@example({"choices": [], "usage": SPENT})
@example({"choices": [{"finish_reason": "stop", "message": {"tool_calls": [{}]}}], "usage": SPENT})
@example({"choices": [{"finish_reason": "tool_calls"}, {"finish_reason": "stop"}], "usage": SPENT})
@example({"choices": [{"finish_reason": "stop"}], "usage": {**SPENT, "cached_tokens": 2}})
@example({"choices": [{"finish_reason": "stop"}], "usage": {**SPENT, "cache_read_input_tokens": 2}})
def test_the_short_way_tells_what_the_long_one_does(answer):
    body = json.dumps(answer).encode()
    assert told_by(body) == told_in_full(body)


@given(st.one_of(CHAT, ODD), st.data())
def test_no_answer_is_believed_that_is_not_whole(answer, data):
    body = json.dumps(answer).encode()
    cut = body[: data.draw(st.integers(0, len(body) - 1))]
    assert told_by(cut) == told_in_full(cut) is None
