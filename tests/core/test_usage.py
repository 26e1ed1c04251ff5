import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.core.usage import reader_for
from concur_proxy.model import FinishReason
from tests.core.answers import CHAT_USAGE, STREAMS, chat_stream, messages_stream

SSE = "text/event-stream; charset=utf-8"


def play(reader, pieces):
    return b"".join([*(reader.feed(piece) for piece in pieces), reader.finish()])


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=utf-8", "application/vnd.x+json"])
@pytest.mark.parametrize("strip", [True, False])
def test_json_is_read_and_left_alone(kind, strip):
    body = b'{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1}}'
    reader = reader_for(kind, strip_usage_event=strip)
    assert reader.feed(body) is body
    assert reader.finish() == b""
    assert reader.usage.prompt_tokens == 3


@pytest.mark.parametrize(
    ("kind", "encoded"),
    [("application/json", True), (SSE, True), ("text/plain", False), ("", False), ("audio/wav", False)],
)
def test_what_cannot_be_read_passes(kind, encoded):
    reader = reader_for(kind, strip_usage_event=True, encoded=encoded)
    body = b'data: {"id":"resp_1","choices":[],"usage":{"prompt_tokens":3}}\n\n'
    assert reader.feed(body) is body
    assert reader.finish() == b""
    assert (reader.usage, reader.finish_reason, reader.saw_token, reader.response_id) == (None, None, False, None)


@pytest.mark.parametrize(("stream", "usage", "reason", "response_id"), STREAMS)
def test_a_stream_is_read_and_left_alone(stream, usage, reason, response_id):
    reader = reader_for(SSE)
    for position in range(0, len(stream), 100):
        piece = stream[position : position + 100]
        assert reader.feed(piece) is piece
    assert reader.finish() == b""
    assert (reader.usage, reader.finish_reason, reader.response_id) == (usage, reason, response_id)
    assert reader.saw_token


@given(st.lists(st.integers(0, len(chat_stream())), max_size=30))
def test_the_usage_event_is_read_and_taken_out(cuts):
    stream = chat_stream()
    edges = sorted({0, len(stream), *cuts})
    reader = reader_for(SSE, strip_usage_event=True)
    out = play(reader, [stream[a:b] for a, b in itertools.pairwise(edges)])
    assert out == chat_stream(usage=None)
    assert (reader.usage, reader.finish_reason) == (CHAT_USAGE, FinishReason.STOP)


def test_only_openais_usage_event_is_taken_out():
    stream = messages_stream()
    assert play(reader_for(SSE, strip_usage_event=True), [stream]) == stream
