import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.core.sse import MAX_EVENT, UsageEventCutter, is_usage_event
from tests.core.answers import HARD_TEXT, USAGE, USAGE_CHUNK, chat_stream, chunk, done, event

USAGE_EVENT = event(USAGE_CHUNK)


def cut(pieces):
    cutter = UsageEventCutter()
    return [*(cutter.feed(piece) for piece in pieces), cutter.finish()]


def pieces_of(stream, cuts):
    edges = sorted({0, len(stream), *cuts})
    return [stream[a:b] for a, b in itertools.pairwise(edges)]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("space", [" ", ""])
def test_the_usage_event_is_gone_and_all_else_is_there_wherever_the_stream_is_cut(end, space):
    stream, expected = chat_stream(end=end, space=space), chat_stream(end=end, space=space, usage=None)
    for position in range(len(stream)):
        assert b"".join(cut([stream[:position], stream[position:]])) == expected
    assert b"".join(cut([stream])) == expected
    assert b"".join(cut(pieces_of(stream, range(len(stream))))) == expected


OTHERS = [
    chunk({"content": HARD_TEXT}),
    chunk({"content": "a"}, usage=None),
    chunk({"content": "a"}, usage=USAGE),
    chunk({}, "stop", usage=USAGE),
    chunk(),
    chunk(usage=None),
    chunk(usage=USAGE, error={"message": "no"}),
    {"choices": [], "prompt_filter_results": []},
    {"error": {"message": "no", "code": 500}},
    {"usage": USAGE},
    {"choices": None, "usage": USAGE},
    {"choices": [], "usage": []},
    [USAGE_CHUNK],
    "usage",
    None,
]
RAW = [
    b": ping\n\n",
    b":\n\n",
    b"\n",
    b"\r\n",
    b"event: x\ndata: 1\n\n",
    b"retry: 5\n\n",
    b'data: {"usage"\n\n',
    b"id\n\n",
]
EVENTS = st.one_of(
    st.sampled_from(RAW).map(lambda raw: (raw, raw)),
    st.tuples(st.sampled_from(OTHERS), st.sampled_from(["\n", "\r\n"])).map(
        lambda drawn: (event(drawn[0], end=drawn[1]),) * 2
    ),
    st.sampled_from(["\n", "\r\n"]).map(lambda end: (event(USAGE_CHUNK, end=end), b"")),
    st.text(max_size=20).map(lambda text: (event(chunk({"content": text})),) * 2),
)


@given(st.lists(EVENTS, max_size=8), st.data())
def test_the_output_is_the_input_without_the_usage_event(events, data):
    stream = b"".join(raw for raw, _ in events)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=30))
    assert b"".join(cut(pieces_of(stream, cuts))) == b"".join(kept for _, kept in events)


@given(st.lists(EVENTS, max_size=8), st.data())
def test_whole_events_are_never_kept_back(events, data):
    stream = b"".join(raw for raw, _ in events)
    cutter, fed, out = UsageEventCutter(), b"", b""
    for piece in pieces_of(stream, data.draw(st.lists(st.integers(0, len(stream)), max_size=30))):
        fed += piece
        out += cutter.feed(piece)
        whole, done_with = b"", 0
        for raw, kept in events:
            done_with += len(raw)
            if done_with > len(fed):
                break
            whole += kept if raw.strip() else b""
        assert len(out.replace(b"\n", b"").replace(b"\r", b"")) >= len(whole.replace(b"\n", b"").replace(b"\r", b""))


@given(st.lists(st.binary(max_size=40) | st.sampled_from([b"\n", b"\r", b"data:", b'{"usage"', b'"choices":[]'])))
def test_any_bytes_without_a_usage_event_stay_as_they_are(pieces):
    assert b"".join(cut(pieces)) == b"".join(pieces)


def test_what_needs_no_change_is_not_copied():
    cutter = UsageEventCutter()
    for piece in (
        event(chunk({"content": "a"})),
        event(chunk({"content": "a"}, usage=None)),
        b": ping\r\n\r\n",
        done(),
    ):
        assert cutter.feed(piece) is piece
    large = b'data: {"choices":[{"delta":{"content":"' + b"x" * 100_000
    assert cutter.feed(large) is large
    more = b"y" * 100_000
    assert cutter.feed(more) is more
    assert cutter.feed(b'"}}]}\n\n' + USAGE_EVENT) == b'"}}]}\n\n'


def test_the_beginning_of_an_event_leaves_as_soon_as_it_has_a_choice():
    cutter = UsageEventCutter()
    assert cutter.feed(b'data: {"id":"1","choices":[') == b""
    assert cutter.feed(b"{") == b'data: {"id":"1","choices":[{'


def test_a_long_event_is_not_kept():
    cutter = UsageEventCutter()
    out = cutter.feed(b"data: " + b"x" * MAX_EVENT)
    assert len(out) == MAX_EVENT + 6
    assert cutter._held == b""
    assert cutter.feed(b"\n") == b"\n"
    assert cutter.feed(b"\n" + USAGE_EVENT + done()) == b"\n" + done()


def test_a_stream_that_ends_in_the_middle_keeps_what_came():
    assert b"".join(cut([b"data: 1\n\ndata: 2"])) == b"data: 1\n\ndata: 2"
    assert b"".join(cut([USAGE_EVENT[:-20]])) == USAGE_EVENT[:-20]


@pytest.mark.parametrize("missing", [1, 2])
def test_a_usage_event_whose_end_is_the_end_of_the_stream_is_gone(missing):
    assert b"".join(cut([done() + USAGE_EVENT[:-missing]])) == done()


def test_a_usage_event_in_several_data_lines():
    lines = json.dumps(USAGE_CHUNK, indent=1).splitlines()
    assert is_usage_event("".join(f"data: {line}\n" for line in lines).encode() + b"\n")


def test_nesting_without_end_is_no_usage_event():
    assert not is_usage_event(b'data: {"choices":[],"usage":' + b"[" * 8000 + b"\n\n")
