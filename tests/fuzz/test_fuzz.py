"""A short run of the fuzzer with a seed that stays, and proof that it finds what is broken on purpose.

`python bench/fuzz.py --minutes 10` is the long one.
"""

import asyncio
import random

import pytest
import uvloop

from concur_proxy.gateway import connection, headers, protocol, relay
from concur_proxy.gateway.dispatch import Dispatcher
from tests.fuzz import judges
from tests.fuzz.arena import Finding, Lane, listening
from tests.fuzz.grammar import Case, draw_case

CASES = 150


def play(cases):
    async def main():
        with listening() as log:
            async with Lane(log) as lane:
                for case in cases:
                    await lane.play(case)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def drawn(seed, count=CASES):
    rng = random.Random(seed)
    return [draw_case(rng) for _ in range(count)]


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_found(seed):
    play(drawn(seed))


def test_a_case_can_be_written_down_and_read_again():
    for case in drawn(3):
        assert Case.from_json(case.to_json()) == case


HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: p\r\n"
TWO_CODINGS = HEAD + b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"
GOOD = HEAD + b"Content-Length: 2\r\n\r\n{}"
ANSWER = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
BROKEN = {
    "two codings pass": (
        protocol.FastLaneProtocol,
        "_is_in_chunks",
        lambda _self, _exchange: True,
        Case((TWO_CODINGS,)),
        "forwarded what a strict reader does not find",
    ),
    "an exception on the way": (
        relay,
        "one",
        lambda pieces: pieces[7],
        Case((GOOD,)),
        "0 answers to 1 requests",
    ),
    "a lease is not given back": (
        Dispatcher,
        "finish",
        lambda *_args, **_kwargs: None,
        Case((GOOD,)),
        "something is left",
    ),
    "blank lines behind chunks pass": (
        connection.UpstreamConnection,
        "_up_to_the_end",
        lambda _self, raw: raw,
        Case((GOOD * 2,), (ANSWER + b"\r\n",), "keep"),
        "used again",
    ),
    "a coding of another line passes": (
        connection,
        "occurrences",
        lambda _headers, _wanted: 1,
        Case((GOOD,), (ANSWER.replace(b"Tr", b"Transfer-Encoding: gzip\r\nTr", 1),), "keep"),
        "delivered what a strict reader refuses",
    ),
    "lines are joined": (
        headers,
        "response_lines",
        lambda head, **_: [b"HTTP/1.1 %d \r\nx : y\r\n" % head.status],
        Case((GOOD,)),
        "the client got what is not HTTP",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_on_purpose_is_found(name, monkeypatch):
    place, attribute, broken, case, finding = BROKEN[name]
    play([case])
    monkeypatch.setattr(place, attribute, broken)
    monkeypatch.setattr("tests.fuzz.arena.PATIENCE_S", 0.5)
    with pytest.raises(Finding, match=finding):
        play([case])


def test_the_second_reader_reads_in_order():
    sent = judges.requests_in(GOOD + TWO_CODINGS + GOOD)
    assert [request.body for request in sent.requests] == [b"{}"]
    assert sent.error
    (one,) = sent.requests
    other = judges.Request(b"GET", b"/", b"")
    assert judges.is_ordered_part([one], [other, one])
    assert judges.is_ordered_part([one, one], [one])
    assert not judges.is_ordered_part([one, other], [other, one])
