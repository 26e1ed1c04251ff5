"""Reads of a stream that are whole chunks pass by the parser, and leave as they came."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from concur_proxy.gateway.connection import UpstreamConnection, are_chunks, chunk_of
from tests.core.answers import USAGE_CHUNK, chunk, event
from tests.gateway.harness import STREAMED, Engine, Proxy, run, until
from tests.gateway.test_handler import OPEN_STREAM, piece


@given(st.binary(min_size=1, max_size=1100))
@settings(deadline=None)
def test_one_whole_chunk_is_told_from_everything_else(data):
    framed = b"%x\r\n%b\r\n" % (len(data), data)
    assert chunk_of(framed) == (data if len(framed) < 1 << 10 else b"")
    assert are_chunks(framed)
    assert are_chunks(framed * 3)
    assert are_chunks(b"%X\r\n%b\r\n" % (len(data), data))
    for cut in range(1, min(len(framed), 40)):
        assert not chunk_of(framed[cut:]) or framed[cut:].startswith(b"%x\r\n" % len(chunk_of(framed[cut:])))
        assert not chunk_of(framed[:-cut])
        assert not are_chunks(framed[:-cut])
    for more in (
        b"0\r\n\r\n",
        b"1",
        b"\r\n",
        b"5;a=b\r\nhello\r\n",
        b"0x1\r\na\r\n",
        b" 1\r\na\r\n",
        b"+1\r\na\r\n",
        b"1_0\r\n",
    ):
        assert not are_chunks(framed + more)
        assert not chunk_of(framed + more)


@pytest.mark.sources
@pytest.mark.parametrize("wants_usage", [False, True])
def test_whole_chunks_pass_by_the_parser_also_when_some_come_together(monkeypatch, wants_usage):
    parsed, taken = [], []
    feed, take = UpstreamConnection._feed, UpstreamConnection._is_chunk
    monkeypatch.setattr(UpstreamConnection, "_feed", lambda self, data: (parsed.append(data), feed(self, data))[1])
    monkeypatch.setattr(
        UpstreamConnection, "_is_chunk", lambda self, *args: (taken.append(take(self, *args)), taken[-1])[1]
    )
    events = [event(chunk({"content": str(number)})) for number in range(20)]

    async def script(_seen, wire):
        await wire.send(OPEN_STREAM)
        await until(lambda: any(pool.received_bytes for pool in proxy.pools.values()))
        for number, one in enumerate(events):
            more = piece(events[0]) if number == 7 else b""
            received = sum(pool.received_bytes for pool in proxy.pools.values())
            await wire.send(piece(one) + more)
            await until(lambda before=received: sum(p.received_bytes for p in proxy.pools.values()) > before)
        await wire.send(piece(event(USAGE_CHUNK)) + b"0\r\n\r\n")

    async def main():
        nonlocal proxy
        body = STREAMED[:-1] + (b',"stream_options":{"include_usage":true}}' if wants_usage else b"}")
        async with Engine(script) as engine, Proxy((engine,)) as proxy:
            answer = await proxy.ask(body)
            sent = [*events[:8], events[0], *events[8:], *([event(USAGE_CHUNK)] if wants_usage else [])]
            assert answer.body == b"".join(sent)
            await until(lambda: proxy.turns)
            assert proxy.turns[0].usage is not None

    proxy = None
    run(main())
    assert sum(taken) == 19
    assert len(parsed) == 3
