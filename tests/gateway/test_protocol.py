"""The fast lane as a client meets it: what is accepted, in which order it is answered, what is refused."""

import asyncio
import socket

import pytest

from concur_proxy.gateway.handler import HandlerSettings
from concur_proxy.gateway.limits import ClientLimits
from tests.gateway.harness import CHAT, Engine, Proxy, ok, request, run, until

LIMIT = 64 << 10
SMALL = HandlerSettings(max_body_bytes=LIMIT)


def against_proxy(test, script=None, loop="uvloop", **options):
    """Run ``test(proxy, client, engine)``."""

    async def main():
        async with Engine(script) as engine, Proxy((engine,), **options) as proxy:
            client = await proxy.client()
            await test(proxy, client, engine)
            await client.close()

    run(main(), loop)


async def echo(seen, wire):
    await wire.send(ok(seen.body))


def test_pipelined_requests_are_answered_in_order(loop):
    async def test(_proxy, client, engine):
        await client.send(b"".join(request(b'{"n":%d}' % number) for number in range(20)))
        for number in range(20):
            assert (await client.answer()).body == b'{"n":%d}' % number
        assert engine.connections == 1

    against_proxy(test, echo, loop)


def test_both_lanes_share_one_order(loop):
    async def slow(seen, wire):
        await released.wait()
        await echo(seen, wire)

    async def test(_proxy, client, engine):
        live = request(b"", path=b"/livez", method=b"GET")
        await client.send(request(b'{"n":1}') + live + request(b'{"n":2}') + live)
        await until(lambda: engine.seen)
        released.set()
        bodies = [(await client.answer()).body for _ in range(4)]
        assert bodies == [b'{"n":1}', b'{"status":"alive"}', b'{"n":2}', b'{"status":"alive"}']

    released = asyncio.Event()
    against_proxy(test, slow, loop)


def test_thousands_of_requests_that_wait_for_one_do_not_nest():
    async def slow(seen, wire):
        await released.wait()
        await echo(seen, wire)

    async def test(_proxy, client, engine):
        await client.send(request() + request(b"", method=b"GET") * 2500)
        await until(lambda: engine.seen)
        released.set()
        assert (await client.answer()).status == 200
        for _ in range(2500):
            assert (await client.answer()).status == 405

    released = asyncio.Event()
    against_proxy(test, slow)


def test_an_idle_connection_is_closed_in_time_and_a_busy_one_is_not(loop):
    async def slow(seen, wire):
        end = asyncio.get_running_loop().time() + 0.1
        await until(lambda: asyncio.get_running_loop().time() > end)
        await echo(seen, wire)

    async def test(_proxy, client, _engine):
        for _ in range(2):
            await client.send(request())
            assert (await client.answer()).status == 200
        assert await client.at_end()

    against_proxy(test, slow, loop, limits=ClientLimits(idle_timeout_s=0.05))


def test_a_vanished_client_is_probed_for():
    async def test(proxy, client, _engine):
        await client.send(request())
        await client.answer()
        (connection,) = proxy.state.connections
        sock = connection.transport.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    against_proxy(test)


def test_a_leaving_client_is_noticed_behind_a_pipelined_request():
    async def silent(_seen, wire):
        await wire.gone()
        return False

    async def test(proxy, client, engine):
        await client.send(request() + request())
        await until(lambda: engine.seen)
        client.leave()
        await until(lambda: proxy.idle() and not engine.open)
        assert len(engine.seen) == 1

    against_proxy(test, silent)


def test_continue_is_said_when_it_is_waited_for(loop):
    async def test(_proxy, client, engine):
        await client.send(request(CHAT, headers=b"Expect: 100-continue\r\n")[: -len(CHAT)])
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.send(CHAT)
        assert (await client.answer()).status == 200
        assert engine.seen[0].values(b"expect") == []

    against_proxy(test, loop=loop)


def test_continue_of_a_pipelined_request_waits_for_its_turn():
    async def test(_proxy, client, _engine):
        await client.send(request(b'{"n":1}') + request(CHAT, headers=b"Expect: 100-continue\r\n")[: -len(CHAT)])
        assert (await client.answer()).body == b'{"n":1}'
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.send(CHAT)
        assert (await client.answer()).body == CHAT

    against_proxy(test, echo)


def test_a_refused_request_is_not_told_to_continue():
    async def test(_proxy, client, _engine):
        await client.send(request(CHAT, method=b"PUT", headers=b"Expect: 100-continue\r\n")[: -len(CHAT)])
        assert (await client.answer()).status == 405
        client.writer.write_eof()
        assert await client.at_end()

    against_proxy(test)


@pytest.mark.parametrize("in_chunks", [False, True], ids=["length", "chunks"])
def test_too_large_a_body_is_read_and_answered_never_reset(in_chunks, loop):
    async def test(proxy, client, engine):
        body = b"x" * (40 * LIMIT)
        if in_chunks:
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
            raw = request(body, headers=b"transfer-encoding: chunked\r\n", length=False)
        else:
            raw = request(body)
        await client.send(*[raw[start : start + LIMIT] for start in range(0, len(raw), LIMIT)])
        answer = await client.answer()
        assert (answer.status, answer.value(b"connection")) == (413, b"close")
        assert b'"code":"body_too_large"' in answer.body
        assert not any(connection.cycle._pieces for connection in proxy.state.connections)
        assert await client.at_end()
        assert not engine.seen
        assert (proxy.turns[0].status, proxy.turns[0].outcome) == (413, "client_error")

    against_proxy(test, loop=loop, settings=SMALL)


def test_a_body_of_exactly_the_limit_passes():
    async def test(_proxy, client, _engine):
        await client.send(request(b"x" * LIMIT))
        assert len((await client.answer()).body) == LIMIT

    against_proxy(test, echo, settings=SMALL)


def test_too_large_a_body_for_the_application_is_answered_never_reset():
    async def test(_proxy, client, _engine):
        head = b"POST /programs/release HTTP/1.1\r\nHost: p\r\nTransfer-Encoding: chunked\r\n\r\n"
        await client.send(head + b"%x\r\n" % (40 * LIMIT))
        for _ in range(40):
            await client.send(b"x" * LIMIT)
        answer = await client.answer()
        assert (answer.status, answer.value(b"connection")) in ((404, None), (413, b"close"))
        assert await client.at_end()

    against_proxy(test, settings=SMALL)


@pytest.mark.parametrize("method", [b"GET", b"HEAD", b"PUT", b"DELETE"])
def test_wrong_methods(method, loop):
    async def test(_proxy, client, engine):
        for _ in range(2):
            await client.send(request(b"", method=method))
            answer = await client.answer(head_only=method == b"HEAD")
            assert (answer.status, answer.value(b"allow")) == (405, b"POST")
        assert not engine.seen

    against_proxy(test, loop=loop)


@pytest.mark.parametrize("path", [b"/nope", b"/v1/chat", b"/reset_prefix_cache", b"/v1/responses/../../sleep", b"/"])
def test_unknown_paths(path):
    async def test(_proxy, client, engine):
        await client.send(request(path=path))
        answer = await client.answer()
        assert answer.status == 404
        assert b'"code":"unknown_path"' in answer.body
        assert b"end in /v1" in answer.body
        assert not engine.seen

    against_proxy(test)


HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: p\r\n"
SMUGGLING = {
    "both framings": HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "same length twice": HEAD + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "list of lengths": HEAD + b"Content-Length: 3, 3\r\n\r\nabc",
    "signed length": HEAD + b"Content-Length: +3\r\n\r\nabc",
    "huge length": HEAD + b"Content-Length: 99999999999999999999999\r\n\r\nabc",
    "bare line feed": HEAD + b"X: 1\nContent-Length: 0\r\n\r\n",
    "bare line feeds": b"POST /v1/chat/completions HTTP/1.1\nHost: p\n\n",
    "folded header": HEAD + b"X: 1\r\n  2\r\nContent-Length: 0\r\n\r\n",
    "NUL": HEAD + b"X: 1\x002\r\nContent-Length: 0\r\n\r\n",
    "space before colon": HEAD + b"Content-Length : 3\r\n\r\nabc",
    "other coding": HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "coding with a tab": HEAD + b"Transfer-Encoding: chunked\x0b\r\n\r\n0\r\n\r\n",
    "chunks in HTTP/1.0": b"POST /v1/chat/completions HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunk size with a sign": HEAD + b"Transfer-Encoding: chunked\r\n\r\n+1\r\na\r\n0\r\n\r\n",
    "chunk size with 0x": HEAD + b"Transfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n",
    "huge chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\na\r\n0\r\n\r\n",
    "no host": b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
    "two hosts": HEAD + b"Host: q\r\nContent-Length: 0\r\n\r\n",
    "absolute target": b"POST http://p/v1/chat/completions HTTP/1.1\r\nHost: p\r\nContent-Length: 0\r\n\r\n",
    "not HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
}


@pytest.mark.parametrize("raw", SMUGGLING.values(), ids=SMUGGLING)
def test_ambiguous_requests_are_refused_and_the_connection_closed(raw):
    async def test(_proxy, client, engine):
        await client.send(raw + request())
        client.writer.write_eof()
        answer = await client.answer()
        assert (answer.status, answer.value(b"connection")) == (400, b"close")
        assert b'"type":"invalid_request_error"' in answer.body
        assert await client.reader.read() == b""
        assert not engine.seen

    against_proxy(test)


def test_what_comes_before_garbage_is_still_answered():
    async def test(_proxy, client, engine):
        await client.send(request(b'{"n":1}') + request(b'{"n":2}') + b"GARBAGE\r\n\r\n")
        assert (await client.answer()).body == b'{"n":1}'
        assert (await client.answer()).body == b'{"n":2}'
        assert (await client.answer()).status == 400
        assert await client.at_end()
        assert len(engine.seen) == 2

    against_proxy(test, echo)


def test_too_large_a_head(loop):
    async def test(_proxy, client, _engine):
        await client.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: p\r\n")
        answer = asyncio.create_task(client.answer())
        while not answer.done():
            client.writer.write(b"X: " + b"x" * 8192 + b"\r\n")
            await asyncio.sleep(0)
        assert (await answer).status == 431

    against_proxy(test, loop=loop)


def test_too_many_headers():
    async def test(_proxy, client, engine):
        await client.send(request(headers=b"".join(b"X-%d: 1\r\n" % number for number in range(300))))
        assert (await client.answer()).status == 431
        assert await client.at_end()
        assert not engine.seen

    against_proxy(test)


@pytest.mark.parametrize("path", [b"/v1/realtime", b"/v1/chat/completions"])
def test_websockets_are_not_supported(path):
    async def test(_proxy, client, engine):
        upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: eA==\r\n"
        await client.send(request(b"", path=path, method=b"GET", headers=upgrade, length=False))
        answer = await client.answer()
        assert answer.status == 501
        assert b'"code":"not_supported"' in answer.body
        assert await client.at_end()
        assert not engine.seen

    against_proxy(test)


@pytest.mark.parametrize("cut", [None, 40, 150])
def test_an_offer_of_http_2_is_declined_and_the_request_served(cut, loop):
    async def test(_proxy, client, engine):
        offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\nX-Kept: 1\r\n"
        raw = request(CHAT, headers=offer)
        await client.send(raw[:cut], raw[cut:] if cut else b"")
        assert (await client.answer()).body == CHAT
        await client.send(request(b"{}"))
        assert (await client.answer()).body == b"{}"
        assert engine.seen[0].values(b"x-kept") == [b"1"]
        assert engine.seen[0].values(b"upgrade") == []

    against_proxy(test, echo, loop)


def test_close_is_honoured():
    async def test(_proxy, client, _engine):
        await client.send(request(headers=b"Connection: close\r\n") + request())
        answer = await client.answer()
        assert (answer.status, answer.value(b"connection")) == (200, b"close")
        assert await client.reader.read() == b""

    against_proxy(test)


def test_too_many_connections_are_refused():
    async def test(proxy, client, _engine):
        other = await proxy.client()
        await other.send(request())
        answer = await other.answer()
        assert (answer.status, answer.value(b"retry-after")) == (429, b"2")
        await other.close()
        await until(lambda: len(proxy.state.connections) == 1)
        await client.send(request())
        assert (await client.answer()).status == 200

    against_proxy(test, limits=ClientLimits(max_connections=1))
