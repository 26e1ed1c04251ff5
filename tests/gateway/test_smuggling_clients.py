"""Requests that two readers could take for different ones are refused, and nothing behind them is read as a request."""

import asyncio
import logging

import pytest

from concur_proxy.gateway.headers import HOSTS, LONGEST_NAME, MAX_SPELLINGS
from tests.gateway.harness import CHAT, Engine, Proxy, ok, request, run, until

POST = b"POST /v1/chat/completions HTTP/1.1\r\n"
HEAD = POST + b"Host: p\r\n"
EMPTY = b"Content-Length: 0\r\n\r\n"
IN_CHUNKS = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
NO_CHUNKS = b"\r\n\r\n0\r\n\r\n"
SMUGGLED = request(b'{"smuggled":1}')

FRAMING = {
    "length and chunks": HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked" + NO_CHUNKS,
    "chunks and length": HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 5" + NO_CHUNKS,
    "no length and chunks": HEAD + b"Content-Length: 0\r\nTransfer-Encoding: chunked" + NO_CHUNKS,
    "identity and length": HEAD + b"Transfer-Encoding: identity\r\nContent-Length: 5" + NO_CHUNKS,
    "two lengths": HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "two lengths, the second none": HEAD + b"Content-Length: 3\r\nContent-Length: 0\r\n\r\nabc",
    "the same length twice": HEAD + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "list of lengths": HEAD + b"Content-Length: 3, 3\r\n\r\nabc",
    "list with nothing": HEAD + b"Content-Length: 3,\r\n\r\nabc",
    "signed length": HEAD + b"Content-Length: +3\r\n\r\nabc",
    "negative length": HEAD + b"Content-Length: -3\r\n\r\nabc",
    "negative nothing": HEAD + b"Content-Length: -0\r\n\r\n",
    "length with a space": HEAD + b"Content-Length: 1 2\r\n\r\nabcdefghijkl",
    "length in hex": HEAD + b"Content-Length: 0x3\r\n\r\nabc",
    "length with a point": HEAD + b"Content-Length: 3.0\r\n\r\nabc",
    "length with an exponent": HEAD + b"Content-Length: 1e1\r\n\r\nabcdefghij",
    "length with an underscore": HEAD + b"Content-Length: 1_0\r\n\r\nabcdefghij",
    "length of another script": HEAD + "Content-Length: \u0663\r\n\r\nabc".encode(),
    "superscript length": HEAD + b"Content-Length: \xb3\r\n\r\nabc",
    "empty length": HEAD + b"Content-Length:\r\n\r\nabc",
    "quoted length": HEAD + b'Content-Length: "3"\r\n\r\nabc',
    "length of 65 bits": HEAD + b"Content-Length: 18446744073709551619\r\n\r\nabc",
    "length of a thousand digits": HEAD + b"Content-Length: " + b"9" * 1000 + b"\r\n\r\nabc",
    "length with a control character": HEAD + b"Content-Length: 3\x0b\r\n\r\nabc",
    "space before the colon of a length": HEAD + b"Content-Length : 3\r\n\r\nabc",
    "tab before the colon of a length": HEAD + b"Content-Length\t: 3\r\n\r\nabc",
    "folded length": HEAD + b"Content-Length:\r\n 3\r\n\r\nabc",
    "chunks after identity": HEAD + b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked" + NO_CHUNKS,
    "chunks after gzip": HEAD + b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked" + NO_CHUNKS,
    "chunks before identity": HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity" + NO_CHUNKS,
    "chunks twice": HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked" + NO_CHUNKS,
    "chunked, identity": HEAD + b"Transfer-Encoding: chunked, identity" + NO_CHUNKS,
    "identity, chunked": HEAD + b"Transfer-Encoding: identity, chunked" + NO_CHUNKS,
    "chunked, chunked": HEAD + b"Transfer-Encoding: chunked, chunked" + NO_CHUNKS,
    "gzip, chunked": HEAD + b"Transfer-Encoding: gzip, chunked" + NO_CHUNKS,
    "comma, chunked": HEAD + b"Transfer-Encoding: ,chunked" + NO_CHUNKS,
    "chunked, comma": HEAD + b"Transfer-Encoding: chunked," + NO_CHUNKS,
    "xchunked": HEAD + b"Transfer-Encoding: xchunked" + NO_CHUNKS,
    "chunkedx": HEAD + b"Transfer-Encoding: chunkedx" + NO_CHUNKS,
    "chunk": HEAD + b"Transfer-Encoding: chunk" + NO_CHUNKS,
    "identity": HEAD + b"Transfer-Encoding: identity" + NO_CHUNKS,
    "coding with a parameter": HEAD + b"Transfer-Encoding: chunked;q=1" + NO_CHUNKS,
    "quoted coding": HEAD + b'Transfer-Encoding: "chunked"' + NO_CHUNKS,
    "empty coding": HEAD + b"Transfer-Encoding:" + NO_CHUNKS,
    "coding behind a no-break space": HEAD + b"Transfer-Encoding: \xa0chunked" + NO_CHUNKS,
    "coding before a no-break space": HEAD + "Transfer-Encoding: chunked\u00a0".encode() + NO_CHUNKS,
    "coding behind a vertical tab": HEAD + b"Transfer-Encoding: \x0bchunked" + NO_CHUNKS,
    "coding before a tab": HEAD + b"Transfer-Encoding: chunked\t" + NO_CHUNKS,
    "folded coding": HEAD + b"Transfer-Encoding:\r\n chunked" + NO_CHUNKS,
    "space before the colon of a coding": HEAD + b"Transfer-Encoding : chunked" + NO_CHUNKS,
    "coding behind a bare line feed": HEAD + b"X: a\nTransfer-Encoding: chunked" + NO_CHUNKS,
    "coding behind a bare carriage return": HEAD + b"X: a\rTransfer-Encoding: chunked" + NO_CHUNKS,
    "chunks in HTTP/1.0": POST.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked" + NO_CHUNKS,
    "unknown coding of a GET": b"GET /v1/responses/a HTTP/1.1\r\nHost: p\r\nTransfer-Encoding: x" + NO_CHUNKS,
}
CHUNKS = {
    "signed size": IN_CHUNKS + b"+1\r\na\r\n0\r\n\r\n",
    "negative size": IN_CHUNKS + b"-1\r\na\r\n0\r\n\r\n",
    "size with 0x": IN_CHUNKS + b"0x1\r\na\r\n0\r\n\r\n",
    "size with an underscore": IN_CHUNKS + b"1_0\r\nabcdefghijklmnop\r\n0\r\n\r\n",
    "size behind a space": IN_CHUNKS + b" 1\r\na\r\n0\r\n\r\n",
    "size before a space": IN_CHUNKS + b"1 \r\na\r\n0\r\n\r\n",
    "size before a tab": IN_CHUNKS + b"1\t\r\na\r\n0\r\n\r\n",
    "two sizes": IN_CHUNKS + b"1,1\r\na\r\n0\r\n\r\n",
    "empty size": IN_CHUNKS + b"\r\na\r\n0\r\n\r\n",
    "size of 68 bits": IN_CHUNKS + b"fffffffffffffffff\r\na\r\n0\r\n\r\n",
    "size that overflows to the right one": IN_CHUNKS + b"10000000000000001\r\na\r\n0\r\n\r\n",
    "size that overflows twice": IN_CHUNKS + b"100000000000000000000000000000001\r\na\r\n0\r\n\r\n",
    "extension without a size": IN_CHUNKS + b";x\r\na\r\n0\r\n\r\n",
    "line feed in an extension": IN_CHUNKS + b"1;x\na\r\n0\r\n\r\n",
    "carriage return in an extension": IN_CHUNKS + b"1;x\ry\r\na\r\n0\r\n\r\n",
    "NUL in an extension": IN_CHUNKS + b"1;x\0y\r\na\r\n0\r\n\r\n",
    "line end in a quoted extension": IN_CHUNKS + b'1;x="\r\n"\r\na\r\n0\r\n\r\n',
    "bare line feeds": IN_CHUNKS + b"1\na\n0\n\n",
    "line feed behind a size": IN_CHUNKS + b"1\na\r\n0\r\n\r\n",
    "line feed behind data": IN_CHUNKS + b"1\r\na\n0\r\n\r\n",
    "line feed at the end": IN_CHUNKS + b"1\r\na\r\n0\r\n\n",
    "carriage return behind a size": IN_CHUNKS + b"1\ra\r\n0\r\n\r\n",
    "data longer than its chunk": IN_CHUNKS + b"1\r\nab\r\n0\r\n\r\n",
    "data shorter than its chunk": IN_CHUNKS + b"3\r\na\r\n0\r\n\r\n",
    "length as a trailer": IN_CHUNKS + b"1\r\na\r\n0\r\nContent-Length: 7\r\n\r\n",
    "coding as a trailer": IN_CHUNKS + b"1\r\na\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n",
    "folded trailer": IN_CHUNKS + b"1\r\na\r\n0\r\na: b\r\n c\r\n\r\n",
    "trailer without a colon": IN_CHUNKS + b"1\r\na\r\n0\r\nab\r\n\r\n",
}
HEADERS = {
    "bare line feed": HEAD + b"X: 1\n" + EMPTY,
    "bare line feeds": b"POST /v1/chat/completions HTTP/1.1\nHost: p\n\n",
    "bare carriage return": HEAD + b"X: 1\rY: 2\r\n" + EMPTY,
    "two carriage returns": HEAD + b"X: 1\r\r\n" + EMPTY,
    "folded with a space": HEAD + b"X: 1\r\n  2\r\n" + EMPTY,
    "folded with a tab": HEAD + b"X: 1\r\n\t2\r\n" + EMPTY,
    "folded first line": POST + b" Host: p\r\n" + EMPTY,
    "NUL in a value": HEAD + b"X: 1\x002\r\n" + EMPTY,
    "NUL in a name": HEAD + b"X\0: 1\r\n" + EMPTY,
    "control character in a value": HEAD + b"X: 1\x012\r\n" + EMPTY,
    "delete in a value": HEAD + b"X: 1\x7f2\r\n" + EMPTY,
    "space in a name": HEAD + b"X Y: 1\r\n" + EMPTY,
    "space behind a name": HEAD + b"X : 1\r\n" + EMPTY,
    "parentheses in a name": HEAD + b"X(Y): 1\r\n" + EMPTY,
    "name beyond ASCII": HEAD + b"X\xe9: 1\r\n" + EMPTY,
    "empty name": HEAD + b": 1\r\n" + EMPTY,
    "no colon": HEAD + b"XY\r\n" + EMPTY,
    "no host": POST + EMPTY,
    "two hosts": HEAD + b"Host: q\r\n" + EMPTY,
    "the same host twice": HEAD + b"hOST: p\r\n" + EMPTY,
    "two hosts in HTTP/1.0": POST.replace(b"1.1", b"1.0") + b"Host: p\r\nHost: q\r\n" + EMPTY,
    "host with a path": POST + b"Host: p/q\r\n" + EMPTY,
    "host with a user": POST + b"Host: q@p\r\n" + EMPTY,
    "host with a space": POST + b"Host: p q\r\n" + EMPTY,
    "list of hosts": POST + b"Host: p, q\r\n" + EMPTY,
    "host with a query": POST + b"Host: p?q\r\n" + EMPTY,
}
TARGETS = {
    "absolute": b"POST http://p/v1/chat/completions HTTP/1.1\r\nHost: p\r\n" + EMPTY,
    "absolute of another host": b"POST http://q/v1/chat/completions HTTP/1.1\r\nHost: p\r\n" + EMPTY,
    "absolute with TLS": b"POST https://p/v1/chat/completions HTTP/1.1\r\nHost: p\r\n" + EMPTY,
    "absolute without a path": b"GET http://p HTTP/1.1\r\nHost: p\r\n\r\n",
    "authority": b"CONNECT p:80 HTTP/1.1\r\nHost: p\r\n\r\n",
    "asterisk": b"OPTIONS * HTTP/1.1\r\nHost: p\r\n\r\n",
    "relative": b"POST v1/chat/completions HTTP/1.1\r\nHost: p\r\n" + EMPTY,
    "none": b"POST  HTTP/1.1\r\nHost: p\r\n" + EMPTY,
    "two": b"POST /v1/chat/completions /v1/embeddings HTTP/1.1\r\nHost: p\r\n" + EMPTY,
    "tab behind": b"POST /v1/chat/completions\tHTTP/1.1\r\nHost: p\r\n" + EMPTY,
    "NUL within": b"POST /v1/chat/completions?a\0b HTTP/1.1\r\nHost: p\r\n" + EMPTY,
    "control character within": b"POST /v1/chat/completions?a\x01b HTTP/1.1\r\nHost: p\r\n" + EMPTY,
    "carriage return within": b"POST /v1/chat/completions?a\rb HTTP/1.1\r\nHost: p\r\n" + EMPTY,
    "beyond ASCII": b"POST /v1/chat/completions?\xe9 HTTP/1.1\r\nHost: p\r\n" + EMPTY,
}
LINES = {
    "lower-case method": POST.replace(b"POST", b"post") + b"Host: p\r\n" + EMPTY,
    "unknown method": POST.replace(b"POST", b"BREW") + b"Host: p\r\n" + EMPTY,
    "method with more in front": b"X" + HEAD + EMPTY,
    "NUL in the method": POST.replace(b"POST", b"PO\0ST") + b"Host: p\r\n" + EMPTY,
    "method of 70 kB": b"A" * 70_000,
    "space in front": b" " + HEAD + EMPTY,
    "an answer": ok(),
    "HTTP/0.9 by its number": POST.replace(b"1.1", b"0.9") + b"Host: p\r\n" + EMPTY,
    "HTTP/0.9 without a number": b"GET /v1/responses/a\r\n\r\n",
    "HTTP/1.2": POST.replace(b"1.1", b"1.2") + b"Host: p\r\n" + EMPTY,
    "HTTP/1.10": POST.replace(b"1.1", b"1.10") + b"Host: p\r\n" + EMPTY,
    "HTTP/11": POST.replace(b"1.1", b"11") + b"Host: p\r\n" + EMPTY,
    "HTTP/2.0": POST.replace(b"1.1", b"2.0") + b"Host: p\r\n" + EMPTY,
    "HTTP/2 with prior knowledge": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0",
    "lower-case version": POST.replace(b"HTTP/1.1", b"http/1.1") + b"Host: p\r\n" + EMPTY,
    "another protocol": POST.replace(b"HTTP/1.1", b"ICE/1.0") + b"Host: p\r\n" + EMPTY,
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
}
REFUSED = {
    f"{kind}: {name}": raw
    for kind, cases in {
        "framing": FRAMING,
        "chunks": CHUNKS,
        "headers": HEADERS,
        "target": TARGETS,
        "start line": LINES,
    }.items()
    for name, raw in cases.items()
}
OFFER = b"Connection: Upgrade\r\nUpgrade: h2c\r\n"


async def echo(seen, wire):
    await wire.send(ok(seen.body))


def against_proxy(test, script=echo, loop="uvloop", **options):
    """Run ``test(proxy, client, engine)``; afterwards nothing may be left of any request."""

    async def main():
        async with Engine(script) as engine, Proxy((engine,), **options) as proxy:
            client = await proxy.client()
            await test(proxy, client, engine)
            assert (await proxy.ask(b'{"still":1}')).body == b'{"still":1}'
            await until(proxy.idle)
            await client.close()

    run(main(), loop)


def quiet(caplog):
    """Tell whether no exception of the proxy came as far as the log; the fake engine's end leaves one of its own."""
    ours = [record for record in caplog.records if not record.name.startswith("asyncio")]
    return "concur_proxy/gateway/" not in caplog.text and not [r for r in ours if r.levelno >= logging.WARNING]


async def is_refused(client, status=400):
    """Read an answer that refuses and the end of the connection."""
    answer = await client.answer()
    assert (answer.status, answer.value(b"connection")) == (status, b"close")
    assert b'"type":"invalid_request_error"' in answer.body
    assert await client.at_end()


@pytest.mark.parametrize("raw", REFUSED.values(), ids=REFUSED)
def test_refused_and_closed_and_nothing_behind_it_is_a_request(raw, caplog):
    async def test(proxy, client, engine):
        await client.send(raw + SMUGGLED)
        await is_refused(client)
        assert not engine.seen
        assert [turn.outcome for turn in proxy.turns] == ["client_error"]

    against_proxy(test)
    assert quiet(caplog)


@pytest.mark.parametrize("raw", REFUSED.values(), ids=REFUSED)
def test_refused_behind_a_good_request_too(raw):
    async def test(_proxy, client, engine):
        await client.send(request(CHAT) + raw + SMUGGLED)
        assert (await client.answer()).body == CHAT
        await is_refused(client)
        assert [seen.body for seen in engine.seen] == [CHAT]

    against_proxy(test)


@pytest.mark.parametrize("method", [b"POST", b"PUT"])
@pytest.mark.parametrize("path", [b"/v1/chat/completions", b"/livez"])
def test_nothing_is_begun_behind_a_request_that_closes(method, path, caplog):
    async def test(proxy, client, engine):
        first = request(CHAT, method=method, path=path, headers=b"Connection: close\r\n")
        await client.send(first + SMUGGLED + b"GARBAGE\r\n\r\n")
        answer = await client.answer()
        assert (answer.status in (200, 405), answer.value(b"connection")) == (True, b"close")
        assert await client.at_end()
        assert not any(seen.body != CHAT for seen in engine.seen)
        assert len(proxy.turns) == (path != b"/livez")

    against_proxy(test)
    assert quiet(caplog)


@pytest.mark.parametrize("raw", [raw for raw in REFUSED.values() if len(raw) < 1000])
def test_refused_when_it_comes_byte_by_byte(raw):
    async def test(_proxy, client, engine):
        for position in range(len(raw)):
            client.writer.write(raw[position : position + 1])
            await asyncio.sleep(0)
        await client.send(SMUGGLED)
        await is_refused(client)
        assert not engine.seen

    against_proxy(test)


TO_THE_APPLICATION = [raw for raw in (*FRAMING.values(), *HEADERS.values()) if raw.startswith(POST)]


@pytest.mark.parametrize("raw", TO_THE_APPLICATION)
def test_refused_on_the_paths_of_the_application_too(raw):
    async def test(_proxy, client, engine):
        await client.send(raw.replace(b"/v1/chat/completions", b"/livez") + SMUGGLED)
        await is_refused(client)
        assert not engine.seen

    against_proxy(test)


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"POST /v1/chat/completions?" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: p\r\n" + EMPTY, 414),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: p\r\n\r\n", 414),
        (HEAD + b"X: " + b"a" * 70_000 + b"\r\n" + EMPTY, 431),
        (HEAD + b"X-%b: 1\r\n" % (b"a" * 70_000) + EMPTY, 431),
        (HEAD + b"X: 1\r\n" * 300 + EMPTY, 431),
        (HEAD + b"Content-Length: 18446744073709551615\r\n\r\n", 413),
    ],
    ids=["path", "path of the application", "value", "name", "headers", "body"],
)
@pytest.mark.parametrize("cut", [None, 100, 66_000])
def test_too_large_is_said_so(raw, status, cut, caplog):
    async def test(_proxy, client, engine):
        pieces = [raw] if cut is None else [raw[:cut], raw[cut:]]
        for piece in pieces:
            await client.send(piece)
            await asyncio.sleep(0)
        answer = await client.answer()
        assert (answer.status, answer.value(b"connection")) == (status, b"close")
        client.writer.write_eof()
        assert await client.at_end()
        assert not engine.seen

    against_proxy(test)
    assert quiet(caplog)


@pytest.mark.parametrize("target", [b"/v1/chat/completions", b"/livez", b"/v1/responses/a"])
def test_connect_to_a_path_is_refused_and_closed(target):
    """The parser reads nothing more behind it: a connection that stayed open would never answer again."""

    async def test(_proxy, client, engine):
        await client.send(b"CONNECT %b HTTP/1.1\r\nHost: p\r\n\r\n" % target + SMUGGLED)
        await is_refused(client, 501)
        assert not engine.seen

    against_proxy(test)


@pytest.mark.parametrize(
    "target", [b"/v1/responses/a#b", b"/v1/responses/a\\b", b"//p/v1/chat/completions", b"/v1/audio/..%2fx", b"/a:b"]
)
def test_targets_that_could_be_read_in_two_ways_go_to_no_engine(target, caplog):
    async def test(_proxy, client, engine):
        await client.send(b"GET %b HTTP/1.1\r\nHost: p\r\n\r\n" % target)
        assert (await client.answer()).status == 404
        assert not engine.seen

    against_proxy(test)
    assert quiet(caplog)


@pytest.mark.parametrize("named", [b"Content-Length", b"content-length, host", b"transfer-encoding, keep-alive"])
@pytest.mark.parametrize("in_chunks", [False, True], ids=["length", "chunks"])
@pytest.mark.parametrize("offer", [b"", b", Upgrade\r\nUpgrade: h2c"], ids=["", "upgrade"])
def test_connection_cannot_take_the_framing_away(named, in_chunks, offer):
    """Without it the body would be read as the next request."""

    async def test(_proxy, client, engine):
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(SMUGGLED), SMUGGLED) if in_chunks else SMUGGLED
        headers = b"Connection: %b%b\r\n" % (named, offer)
        headers += b"Transfer-Encoding: chunked\r\n" if in_chunks else b""
        await client.send(request(body, headers=headers, length=not in_chunks))
        assert (await client.answer()).body == SMUGGLED
        assert len(engine.seen) == 1
        assert engine.seen[0].values(b"content-length") == [b"%d" % len(SMUGGLED)]

    against_proxy(test)


def test_an_offer_keeps_what_else_connection_says():
    async def test(_proxy, client, engine):
        offer = b"Connection: close, Upgrade, X-Private\r\nUpgrade: h2c\r\nX-Private: 1\r\n"
        await client.send(request(CHAT, headers=offer) + SMUGGLED)
        answer = await client.answer()
        assert (answer.body, answer.value(b"connection")) == (CHAT, b"close")
        assert await client.at_end()
        assert len(engine.seen) == 1
        assert engine.seen[0].values(b"x-private") == []

    against_proxy(test)


def test_an_offer_of_an_old_client_is_answered_in_its_version():
    async def test(_proxy, client, _engine):
        await client.send(request(CHAT, headers=OFFER).replace(b"HTTP/1.1", b"HTTP/1.0"))
        answer = await client.answer()
        assert (answer.body, answer.value(b"connection")) == (CHAT, b"close")

    against_proxy(test)


@pytest.mark.parametrize("broken", [FRAMING["two lengths"], HEADERS["two hosts"], CHUNKS["signed size"]])
def test_a_broken_request_with_an_offer_is_refused(broken):
    async def test(_proxy, client, engine):
        await client.send(broken.replace(HEAD, HEAD + OFFER) + SMUGGLED)
        await is_refused(client)
        assert not engine.seen

    against_proxy(test)


def test_a_storm_of_offers_neither_nests_nor_ends(loop, caplog):
    async def test(_proxy, client, engine):
        await client.send(request(CHAT, headers=OFFER) * 3000)
        for _ in range(3000):
            assert (await client.answer()).body == CHAT
        assert len(engine.seen) == 3000

    against_proxy(test, loop=loop)
    assert quiet(caplog)


@pytest.mark.parametrize(
    "raw",
    [
        IN_CHUNKS.replace(b"Transfer-Encoding: chunked", b"TRANSFER-ENCODING:\tChunked") + b"1\r\na\r\n0\r\n\r\n",
        IN_CHUNKS + b"00000000000000000000000000000000000001;a=b;c\r\na\r\n0;d\r\nx: y\r\n\r\n",
        HEAD + b"Content-Length: 000000000000000000000000000000001\r\n\r\na",
        HEAD + b"Content-Length:\t1\t\r\n\r\na",
        b"\r\n\r\n" + HEAD + b"Content-Length: 1\r\n\r\na",
        POST + b"Host:\r\nContent-Length: 1\r\n\r\na",
        POST + b"Host: [fe80::1%25eth0]:8080\r\nContent-Length: 1\r\n\r\na",
        POST + b"Host: a_b.example-1.test:8080\r\nContent-Length: 1\r\n\r\na",
        POST.replace(b"1.1", b"1.0") + b"Content-Length: 1\r\n\r\na",
        HEAD + b"X: \t a\xe9\xff\t \r\nContent-Length: 1\r\n\r\na",
    ],
)
def test_what_is_odd_but_clear_is_served(raw):
    async def test(_proxy, client, engine):
        await client.send(raw)
        assert (await client.answer()).body == b"a"
        assert engine.seen[0].body == b"a"

    against_proxy(test)


@pytest.mark.parametrize("name", [b"X-Session-ID", b"X-Request-Id", b"traceparent", b"X-Forwarded-For", b"Host"])
@pytest.mark.parametrize(
    "value", [b"a%0d%0aset-cookie:%20b", b"a\\r\\nset-cookie: b", b"a\xe5\x98\x8a\xe5\x98\x8dset-cookie: b"]
)
def test_values_never_become_lines(name, value):
    """Whatever a decoder further on could make of them, they stay one value in both directions."""

    async def test(_proxy, client, engine):
        raw = request(CHAT, headers=name + b": " + value + b"\r\n")
        if name == b"Host":
            raw = raw.replace(b"Host: proxy.test\r\n", b"")
        await client.send(raw)
        answer = await client.answer()
        assert answer.values(b"set-cookie") == []
        assert all(seen.values(b"set-cookie") == [] for seen in engine.seen)

    against_proxy(test)


def test_hosts_that_clients_invent_are_not_remembered_for_ever():
    for number in range(2 * MAX_SPELLINGS):
        assert HOSTS[f"h{number}"]
        assert not HOSTS[f"h{number}/"]
    assert HOSTS["x" * 10_000]
    assert len(HOSTS) <= MAX_SPELLINGS
    assert max(map(len, HOSTS)) <= LONGEST_NAME
    HOSTS.clear()
