"""Hostile engines: what they send must not become a second answer, a header of ours, or a client that never ends."""

import asyncio
import logging

import pytest

from concur_proxy.config import UpstreamSettings
from tests.gateway.harness import CHAT, STREAMED, Engine, Proxy, chunked, ok, request, run, until

OK = b"HTTP/1.1 200 OK\r\n"
LENGTH_0 = b"content-length: 0\r\n\r\n"
IN_CHUNKS = OK + b"transfer-encoding: chunked\r\n\r\n"
ABC = b"3\r\nabc\r\n0\r\n\r\n"
PATIENT = UpstreamSettings(keepalive_s=60.0)
"""A connection that is closed sooner was closed for a reason."""
ANSWER = chunked(b"abc", kind=b"text/plain")

REFUSED = {
    "length and chunks": [OK + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n" + ABC],
    "chunks and length": [OK + b"transfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n" + ABC],
    "two lengths": [OK + b"content-length: 3\r\ncontent-length: 4\r\n\r\nabcd"],
    "the same length twice": [OK + b"content-length: 3\r\ncontent-length: 3\r\n\r\nabc"],
    "list of lengths": [OK + b"content-length: 3, 3\r\n\r\nabc"],
    "negative length": [OK + b"content-length: -3\r\n\r\nabc"],
    "signed length": [OK + b"content-length: +3\r\n\r\nabc"],
    "huge length": [OK + b"content-length: 99999999999999999999999999\r\n\r\nabc"],
    "empty length": [OK + b"content-length: \r\n\r\nabc"],
    "length with a space": [OK + b"content-length: 1 2\r\n\r\nabc"],
    "a coding of another line": [OK + b"transfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n" + ABC],
    "chunked twice": [OK + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n" + ABC],
    "identity": [OK + b"transfer-encoding: identity\r\n\r\nabc"],
    "gzip, chunked": [OK + b"transfer-encoding: gzip, chunked\r\n\r\n" + ABC],
    "chunked, identity": [OK + b"transfer-encoding: chunked, identity\r\n\r\n" + ABC],
    "xchunked": [OK + b"transfer-encoding: xchunked\r\n\r\n" + ABC],
    "empty coding": [OK + b"transfer-encoding: \r\n\r\nabc"],
    "bare line feed": [OK + b"x: a\nset-cookie: b\r\n" + LENGTH_0],
    "bare carriage return": [OK + b"x: a\rset-cookie: b\r\n" + LENGTH_0],
    "only line feeds": [b"HTTP/1.1 200 OK\ncontent-length: 0\n\n"],
    "head that ends with a line feed": [OK + b"content-length: 0\r\n\n"],
    "NUL in a value": [OK + b"x: a\0b\r\n" + LENGTH_0],
    "control character in a value": [OK + b"x: a\x01b\r\n" + LENGTH_0],
    "folded header": [OK + b"x: a\r\n b\r\n" + LENGTH_0],
    "space before the colon": [OK + b"x : a\r\n" + LENGTH_0],
    "space in a name": [OK + b"x y: a\r\n" + LENGTH_0],
    "no colon": [OK + b"xy\r\n" + LENGTH_0],
    "NUL in the reason": [b"HTTP/1.1 200 O\0K\r\n" + LENGTH_0],
    "control character in the reason": [b"HTTP/1.1 200 \x1b[2J\r\n" + LENGTH_0],
    "carriage return in the reason": [b"HTTP/1.1 200 O\rset-cookie: a\r\n" + LENGTH_0],
    "line feed in the reason": [b"HTTP/1.1 200 O\nset-cookie: a\r\n" + LENGTH_0],
    "status 000": [b"HTTP/1.1 000 No\r\n" + LENGTH_0],
    "status 099": [b"HTTP/1.1 099 No\r\n" + LENGTH_0],
    "status of two digits": [b"HTTP/1.1 20 No\r\n" + LENGTH_0],
    "status of four digits": [b"HTTP/1.1 2000 No\r\n" + LENGTH_0],
    "HTTP/2.0": [b"HTTP/2.0 200 OK\r\n" + LENGTH_0],
    "HTTP/0.9": [b"HTTP/0.9 200 OK\r\n" + LENGTH_0],
    "HTTP/1.2": [b"HTTP/1.2 200 OK\r\n" + LENGTH_0],
    "a request": [request()],
    "blank line before": [b"\r\n" + ok()],
    "blank lines between heads": [b"HTTP/1.1 100 Continue\r\n\r\n\r\n\r\n" + ANSWER],
    "blank line between heads, later": [b"HTTP/1.1 100 Continue\r\n\r\n", b"\r\n" + ANSWER],
    "blank line between heads, alone": [b"HTTP/1.1 100 Continue\r\n\r\n", b"\r\n", ANSWER],
    "blank lines between heads, in pieces": [b"HTTP/1.1 100 Continue\r\n\r\n", b"\r", b"\n\r", b"\n" + ANSWER],
    "body of an informational answer": [b"HTTP/1.1 100 Continue\r\ncontent-length: 3\r\n\r\nabc" + ANSWER],
    "switching protocols": [b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n" + ANSWER],
    "chunks of bare line feeds": [IN_CHUNKS + b"3\nabc\n0\n\n"],
    "chunk size with a sign": [IN_CHUNKS + b"+3\r\nabc\r\n0\r\n\r\n"],
    "chunk size that overflows": [IN_CHUNKS + b"fffffffffffffffff\r\nabc\r\n0\r\n\r\n"],
    "NUL in a chunk extension": [IN_CHUNKS + b"3;a\0\r\nabc\r\n0\r\n\r\n"],
    "data longer than its chunk": [IN_CHUNKS + b"3\r\nabcd\r\n0\r\n\r\n"],
    "length as a trailer": [IN_CHUNKS + b"3\r\nabc\r\n0\r\ncontent-length: 5\r\n\r\n"],
    "coding as a trailer": [IN_CHUNKS + b"3\r\nabc\r\n0\r\ntransfer-encoding: gzip\r\n\r\n"],
    "connection as a trailer": [IN_CHUNKS + b"3\r\nabc\r\n0\r\nconnection: close\r\n\r\n"],
    "header of ours as a trailer": [IN_CHUNKS + b"3\r\nabc\r\n0\r\nx-concur-session: forged\r\n\r\n"],
    "bare line feed in a trailer": [IN_CHUNKS + b"3\r\nabc\r\n0\r\na: b\nc: d\r\n\r\n"],
    "folded trailer": [IN_CHUNKS + b"3\r\nabc\r\n0\r\na: b\r\n c\r\n\r\n"],
    "large head": [OK + b"x: " + b"a" * 300_000 + b"\r\n" + LENGTH_0],
    "large head of many headers": [OK + b"x: 1\r\n" * 60_000 + LENGTH_0],
    "informational heads without end": [b"HTTP/1.1 103 Early Hints\r\nlink: " + b"a" * 4000 + b"\r\n\r\n"] * 80,
}


def sending(pieces, received):
    """An engine that sends pieces, each once the proxy has taken the one before, then answers well."""

    async def script(seen, wire):
        if seen.connection > 1:
            await wire.send(ok())
            return
        await wire.send(pieces[0])
        for piece in pieces[1:]:
            await received()
            await wire.send(piece)

    return script


def against(pieces, test, loop="uvloop"):
    """Run ``test(proxy, engine)`` against an engine whose first connection sends ``pieces``, each read by itself."""

    async def main():
        async def taken():
            """Wait until the proxy has read all that was sent."""
            connections = list(proxy.pools["b0"]._connections)
            before = [connection._head_bytes for connection in connections]
            for _ in range(20):
                await asyncio.sleep(0)
            if not before:
                raise ConnectionError

        async with Engine(sending(pieces, taken)) as engine, Proxy((engine,), upstream=PATIENT) as proxy:
            await test(proxy, engine)
            await until(proxy.idle)

    run(main(), loop)


def quiet(caplog):
    """Tell whether no exception of the proxy came as far as the log; the fake engine's end leaves one of its own."""
    ours = [record for record in caplog.records if not record.name.startswith("asyncio")]
    return "concur_proxy/gateway/" not in caplog.text and not [r for r in ours if r.levelno >= logging.WARNING]


@pytest.mark.parametrize("body", [CHAT, STREAMED], ids=["whole", "streamed"])
@pytest.mark.parametrize("pieces", REFUSED.values(), ids=REFUSED)
def test_an_engine_that_breaks_the_rules_is_a_502_and_not_asked_again_on_this_connection(pieces, body, caplog):
    async def test(proxy, engine):
        client = await proxy.client()
        await client.send(request(body))
        answer = await client.answer()
        while answer.status < 200:
            assert answer.status == 103
            answer = await client.answer()
        assert (answer.status, answer.whole) == (502, True)
        assert answer.values(b"set-cookie") == []
        await until(lambda: not engine.open and not proxy.pools["b0"].open_connections)
        await client.send(request())
        assert (await client.answer()).body == b'{"ok":true}'
        assert engine.connections == 2
        await client.close()

    against(pieces, test)
    assert quiet(caplog)


@pytest.mark.parametrize("end", [b"\r\n", b"\n", b"\r\n\r\n", b"\r"])
@pytest.mark.parametrize("cut", [0, 1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("trailers", [b"", b"a: b\r\n"], ids=["", "trailers"])
def test_blank_lines_behind_the_last_chunk_stay_behind(end, cut, trailers, caplog):
    """``cut``: how much of the proper end comes by itself before."""
    raw = chunked(b"abc", kind=b"text/plain", trailers=trailers)
    pieces = [raw[:-cut], raw[-cut:] + end] if cut else [raw + end]

    async def test(proxy, engine):
        client = await proxy.client()
        await client.send(request())
        text = await client.reader.readuntil(b"\r\n\r\n")
        assert text.startswith(b"HTTP/1.1 200")
        rest = b"3\r\nabc\r\n0\r\n" + trailers + b"\r\n"
        assert await client.reader.readexactly(len(rest)) == rest
        await until(lambda: not engine.open)
        await client.send(request())
        answer = await client.answer()
        assert (answer.line, answer.body) == (b"HTTP/1.1 200 OK", b'{"ok":true}')
        await client.close()

    against(pieces, test)
    assert quiet(caplog)


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 204 No Content\r\ncontent-length: 6\r\n\r\nforged",
        b"HTTP/1.1 204 No Content\r\ntransfer-encoding: chunked\r\n\r\n" + ABC,
        b"HTTP/1.1 304 Not Modified\r\ncontent-length: 6\r\n\r\nforged",
        b"HTTP/1.1 304 Not Modified\r\ntransfer-encoding: chunked\r\n\r\n" + ABC,
        ok() + ok(b"forged"),
        ok() + b"forged",
        ok() + b"\r\n",
        b"HTTP/1.1 304 Not Modified\r\n\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\ntransfer-encoding: identity\r\n\r\n",
    ],
    ids=[
        *(
            "204 with length",
            "204 in chunks",
            "304 with length",
            "304 in chunks",
            "two answers",
            "more than its length",
        ),
        *("blank line behind its length", "blank line behind a 304", "304 with a coding"),
    ],
)
def test_what_follows_an_answer_never_reaches_a_client(raw, caplog):
    async def test(proxy, engine):
        client = await proxy.client()
        for _ in range(2):
            await client.send(request())
            answer = await client.answer()
            assert answer.status in (200, 204, 304)
            assert b"forged" not in answer.body
            assert b"abc" not in answer.body
        assert engine.connections == 2
        await client.close()

    against([raw], test)
    assert quiet(caplog)


@pytest.mark.parametrize(
    ("framing", "body"),
    [(b"content-length: 3", b"abc"), (b"transfer-encoding: chunked", ABC)],
    ids=["length", "chunks"],
)
@pytest.mark.parametrize("named", [b"Content-Length", b"transfer-encoding, content-length", b"close, content-length"])
def test_connection_cannot_take_the_framing_away(named, framing, body):
    """Without it a client would read until the end of a connection that is kept."""

    async def test(proxy, _engine):
        client = await proxy.client()
        await client.send(request())
        answer = await client.answer()
        assert (answer.status, answer.body, answer.whole) == (200, b"abc", True)
        assert (answer.value(b"content-length"), answer.value(b"transfer-encoding")).count(None) == 1
        await client.send(request())
        assert (await client.answer()).status == 200
        await client.close()

    against([OK + b"connection: " + named + b"\r\n" + framing + b"\r\n\r\n" + body], test)


@pytest.mark.parametrize("what", ["trailer of many lines", "trailer without end", "extension without end"])
def test_what_nobody_reads_is_not_kept_for_ever(what, loop):
    """The parser keeps a trailer until it ends, and no limit of a body counts it."""
    start, more = {
        "trailer of many lines": (b"3\r\nabc\r\n0\r\n", b"x: 1\r\n" * 1000),
        "trailer without end": (b"3\r\nabc\r\n0\r\nx: ", b"a" * 6000),
        "extension without end": (b"3\r\nabc\r\n3;a=", b"a" * 6000),
    }[what]
    sent = 0

    async def script(_seen, wire):
        nonlocal sent
        await wire.send(IN_CHUNKS + start)
        while sent < 20 << 20:
            await wire.send(more)
            sent += len(more)

    async def main():
        async with Engine(script) as engine, Proxy((engine,)) as proxy:
            client = await proxy.client()
            await client.send(request())
            text = await client.reader.read()
            assert text.startswith(b"HTTP/1.1 200")
            assert len(text) < 1 << 20
            await until(lambda: not engine.open and proxy.idle())
            assert sent < 20 << 20
            await client.close()

    run(main(), loop)


def test_a_head_that_never_ends_is_given_up():
    async def script(_seen, wire):
        await wire.send(OK)
        for _ in range(2000):
            await wire.send(b"x: " + b"a" * 10_000 + b"\r\n")

    async def main():
        async with Engine(script) as engine, Proxy((engine,)) as proxy:
            assert (await proxy.ask()).status == 502
            await until(lambda: not engine.open)

    run(main())
