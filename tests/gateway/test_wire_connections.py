"""Connections on both sides when things happen at the worst moment."""

import asyncio

import pytest

from concur_proxy.config import UpstreamSettings
from concur_proxy.gateway.handler import HandlerSettings
from concur_proxy.gateway.upstream import UpstreamPool
from tests.gateway.harness import CHAT, Engine, Proxy, ok, request, run, until
from tests.gateway.test_upstream import GET, Sink, silent

LIMIT = 64 << 10


@pytest.mark.sources
@pytest.mark.parametrize("at_once", [True, False])
def test_a_pool_closed_while_a_connection_is_being_made_keeps_no_ghost(at_once, loop):
    """uvloop does not tell of a transport that it closes because its dial was cancelled; a ghost would hold a slot."""

    class ClosesWhenConnected(UpstreamPool):
        def add(self, connection):
            super().add(connection)
            if at_once:
                self.close()
            else:
                self.loop.call_soon(self.close)

    async def main():
        async with Engine(silent) as engine:
            pool, sink = ClosesWhenConnected(engine.url, UpstreamSettings()), Sink()
            pool.send(GET, b"", sink)
            await until(lambda: sink.failure)
            await until(lambda: not pool.open_connections and not engine.open)

    run(main(), loop)


@pytest.mark.parametrize("behind", [request(CHAT), request(CHAT) * 3, b"GARBAGE\r\n\r\n"])
def test_nothing_is_begun_behind_a_body_that_is_too_large_for_the_application(behind, loop):
    """One read brings the end of the body and what comes behind it."""

    async def main():
        settings = HandlerSettings(max_body_bytes=LIMIT)
        async with Engine() as engine, Proxy((engine,), settings=settings) as proxy:
            client = await proxy.client()
            head = b"POST /nowhere HTTP/1.1\r\nHost: p\r\nTransfer-Encoding: chunked\r\n\r\n"
            body = b"x" * (LIMIT + 1)
            await client.send(head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) + behind)
            assert (await client.answer()).status in (404, 413)
            assert await client.at_end()
            await client.close()
            await until(lambda: not proxy.state.connections and proxy.idle())
            assert not engine.seen
            assert not any(turn.path == "/v1/chat/completions" for turn in proxy.turns)

    run(main(), loop)


def test_a_body_that_is_too_large_for_the_application_gets_a_413_before_any_answer():
    """The application waits for the body; what it would have answered is not said any more."""

    async def main():
        settings = HandlerSettings(max_body_bytes=LIMIT)
        async with Engine() as engine, Proxy((engine,), settings=settings) as proxy:
            client = await proxy.client()
            busy = request(CHAT) + b"POST /nowhere HTTP/1.1\r\nHost: p\r\nTransfer-Encoding: chunked\r\n\r\n"
            body = b"x" * (LIMIT + 1)
            await client.send(busy + b"%x\r\n%b" % (len(body), body))
            assert (await client.answer()).status == 200
            answer = await client.answer()
            assert (answer.status, answer.value(b"connection")) == (413, b"close")
            assert await client.at_end()
            await client.close()
            await until(lambda: not proxy.state.tasks)

    run(main())


LIVE = request(b"", path=b"/livez", method=b"GET")


@pytest.mark.parametrize("how", ["reset", "end"])
@pytest.mark.parametrize("tail", [LIVE, LIVE * 3, request() * 10, request() * 3 + LIVE * 20, request() * 1000])
def test_who_leaves_is_noticed_however_much_waits_behind(tail, how, loop):
    async def main():
        async with Engine(silent) as engine, Proxy((engine,)) as proxy:
            client = await proxy.client()
            await client.send(request() + tail)
            await until(lambda: engine.seen)
            if how == "reset":
                client.leave()
            else:
                await client.close()
            await until(lambda: proxy.idle() and not engine.open and not proxy.state.connections)
            assert len(engine.seen) == 1

    run(main(), loop)


@pytest.mark.parametrize("size", [1, 7, 100, 5000])
def test_a_long_line_of_requests_in_pieces_is_answered_in_order(size, loop):
    async def echo(seen, wire):
        if b'"n":0' in seen.body:
            await released.wait()
        await wire.send(ok(seen.body))

    async def main():
        async with Engine(echo) as engine, Proxy((engine,)) as proxy:
            client = await proxy.client()
            raw = b"".join(request(b'{"n":%d}' % number) + (LIVE if number % 5 == 0 else b"") for number in range(60))
            for start in range(0, len(raw), size):
                client.writer.write(raw[start : start + size])
                await asyncio.sleep(0)
            released.set()
            for number in range(60):
                assert (await client.answer()).body == b'{"n":%d}' % number
                if number % 5 == 0:
                    assert (await client.answer()).body == b'{"status":"alive"}'
            assert len(engine.seen) == 60
            await client.close()
            await until(proxy.idle)

    released = asyncio.Event()
    run(main(), loop)


def test_a_flood_behind_a_running_request_stops_being_read(loop):
    async def main():
        async with Engine(silent) as engine, Proxy((engine,)) as proxy:
            client = await proxy.client()
            await client.send(request())
            await until(lambda: engine.seen)
            client.writer.transport.set_write_buffer_limits(high=0)
            (connection,) = proxy.state.connections
            sent = 0
            while not connection.flow.read_paused:
                client.writer.write(request() * 500)
                sent += 500
                await asyncio.sleep(0)
                assert sent < 200_000
            assert connection._kept_bytes < 1 << 20
            assert len(connection.pipeline) < 10_000
            client.leave()
            proxy.handler.abort_all()
            await until(proxy.idle)

    run(main(), loop)


@pytest.mark.parametrize("behind", [request(CHAT), LIVE, b"CONNECT /livez HTTP/1.1\r\nHost: p\r\n\r\n"])
def test_a_connection_whose_end_is_told_in_a_trailer_ends(behind, loop):
    """The parser takes the trailer for the end, too: what came behind it would never be answered."""

    async def main():
        async with Engine() as engine, Proxy((engine,)) as proxy:
            client = await proxy.client()
            trailer = b"2\r\n{}\r\n0\r\nConnection: close\r\n\r\n"
            await client.send(request(trailer, headers=b"transfer-encoding: chunked\r\n", length=False) + behind)
            answer = await client.answer()
            assert (answer.status, answer.value(b"connection")) == (200, b"close")
            assert await client.at_end()
            assert len(engine.seen) == 1
            await client.close()

    run(main(), loop)


def test_an_answer_is_not_lost_because_the_client_still_sends(loop):
    """A connection closed over bytes that nobody has read is reset, and the reset overtakes the answer."""

    async def main():
        async with Engine() as engine, Proxy((engine,)) as proxy:
            client = await proxy.client()
            await client.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: p\r\nHost: q\r\nContent-Length: 0\r\n\r\n")
            for _ in range(50):
                await client.send(b"more" * 1000)
                await asyncio.sleep(0)
            assert (await client.answer()).status == 400
            assert await client.at_end()
            assert not engine.seen
            await client.close()

    run(main(), loop)
