"""Connections to an engine: kept, renewed, bounded, closed."""

import asyncio
import contextlib
import socket

import pytest

from concur_proxy.config import UpstreamSettings
from concur_proxy.gateway.connection import Failure
from concur_proxy.gateway.upstream import UpstreamPool
from tests.gateway.harness import Engine, chunked, ok, run, until

GET = b"GET / HTTP/1.1\r\nhost: e\r\n\r\n"


class Sink:
    """Keeps what it is told."""

    def __init__(self):
        self.head, self.body, self.ended, self.failure, self.informational = None, b"", False, None, []

    def on_informational(self, head):
        self.informational.append(head.status)

    def on_head(self, head):
        self.head = head

    def on_data(self, raw, pieces, *, end, trailers):
        assert not self.final
        self.body += b"".join(pieces)
        self.ended = end

    def on_failure(self, failure, detail):
        assert not self.final
        assert detail
        self.failure = failure

    @property
    def final(self):
        return self.ended or self.failure is not None


def with_pool(test, script=None, loop="uvloop", engine=None, **settings):
    async def main():
        async with engine or Engine(script) as running:
            pool = UpstreamPool(running.url, UpstreamSettings(**settings))
            try:
                await test(pool, running)
            finally:
                pool.close()
                await until(lambda: not pool.open_connections)

    run(main(), loop)


async def ask(pool, body=b""):
    sink = Sink()
    pool.send(GET[:-2] + b"content-length: %d\r\n\r\n" % len(body), body, sink)
    await until(lambda: sink.final)
    return sink


async def silent(_seen, wire):
    await wire.gone()
    return False


def test_a_connection_is_used_again(loop):
    async def test(pool, engine):
        for _ in range(5):
            assert (await ask(pool)).body == b'{"ok":true}'
        assert (engine.connections, pool.open_connections, pool.idle_connections) == (1, 1, 1)

    with_pool(test, loop=loop)


def test_a_reused_connection_that_died_costs_a_new_one_and_no_error(loop):
    async def once(seen, wire):
        await wire.send(ok())
        if seen.connection == 1:
            wire.reset()
            return False
        return True

    async def test(pool, engine):
        assert (await ask(pool)).ended
        assert (await ask(pool)).ended
        assert engine.connections == 2

    with_pool(test, once, loop)


def test_a_reused_connection_that_dies_under_a_request_is_retried_once(loop):
    async def dies_when_used_again(seen, wire):
        if seen.connection in served:
            return False
        served.add(seen.connection)
        await wire.send(ok())
        return True

    async def test(pool, engine):
        for count in range(1, 6):
            assert (await ask(pool, b"body")).ended
            assert len([seen for seen in engine.seen if seen.body == b"body"]) == 2 * count - 1
        assert pool.retries == 4

    served = set()
    with_pool(test, dies_when_used_again, loop)


@pytest.mark.sources
def test_an_engine_that_closes_as_soon_as_it_has_accepted():
    async def test(pool, engine):
        async def connect_too_late():
            connection = await connect()
            connection.transport.abort()
            return connection

        connect, pool._connect = pool._connect, connect_too_late
        assert (await ask(pool)).failure is Failure.LOST_EARLY
        assert not engine.seen

    with_pool(test)


def test_a_vanished_engine_is_probed_for(loop):
    async def test(pool, _engine):
        await ask(pool)
        (connection,) = pool._connections
        sock = connection.transport.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    with_pool(test, loop=loop)


def test_a_new_connection_that_dies_is_not_retried():
    async def dies(_seen, _wire):
        return False

    async def test(pool, engine):
        assert (await ask(pool)).failure is Failure.LOST_EARLY
        assert len(engine.seen) == 1

    with_pool(test, dies)


def test_a_reused_connection_that_dies_within_an_answer_is_not_retried():
    async def dies_later(seen, wire):
        await wire.send(ok() if len(engine_seen(seen)) == 1 else ok()[:-4])
        return len(everything) == 1

    def engine_seen(seen):
        everything.append(seen)
        return everything

    async def test(pool, engine):
        assert (await ask(pool)).ended
        assert (await ask(pool)).failure is Failure.LOST
        assert len(engine.seen) == 2

    everything = []
    with_pool(test, dies_later)


def test_idle_connections_are_closed_in_time(loop):
    async def test(pool, engine):
        await asyncio.gather(*(ask(pool) for _ in range(3)))
        assert engine.open == 3
        await until(lambda: not engine.open)
        assert pool.open_connections == 0

    with_pool(test, loop=loop, keepalive_s=0.05)


def test_an_expired_connection_is_not_used():
    async def test(pool, engine):
        for _ in range(3):
            assert (await ask(pool)).ended
        assert engine.connections == 3

    with_pool(test, keepalive_s=0)


@pytest.mark.parametrize("raw", [ok(extra=b"connection: close\r\n"), ok() + b"\r\nmore", b"HTTP/1.0 200 OK\r\n\r\nabc"])
def test_connections_that_cannot_serve_another_call_are_closed(raw):
    async def script(_seen, wire):
        await wire.send(raw)
        return not raw.startswith(b"HTTP/1.0")

    async def test(pool, engine):
        for _ in range(2):
            assert (await ask(pool)).ended
        assert engine.connections == 2

    with_pool(test, script)


def test_an_engine_that_answers_before_it_has_the_whole_request(loop):
    async def hasty(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(ok(status=b"413 Content Too Large"))
        await writer.drain()
        with contextlib.suppress(ConnectionError):
            while await reader.read(4096):  # a little at a time: most of the request stays where it is
                await asyncio.sleep(0)
        writer.close()
        ended.append(writer)

    async def main():
        async with await asyncio.start_server(hasty, "127.0.0.1", 0) as server:
            pool = UpstreamPool(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", UpstreamSettings())
            for _ in range(2):
                assert (await ask(pool, b"x" * (20 << 20))).head.status == 413
                assert pool.idle_connections == 0
            pool.close()
            await until(lambda: not pool.open_connections and len(ended) == 2)

    ended = []
    run(main(), loop)


def test_an_idle_engine_that_speaks_up_is_not_listened_to():
    async def script(seen, wire):
        await wire.send(ok())
        if seen.connection == 1:
            await asked.wait()
            await wire.send(ok(b"forged"))
        return True

    async def test(pool, engine):
        await ask(pool)
        asked.set()
        await until(lambda: not pool.open_connections)
        assert (await ask(pool)).body == b'{"ok":true}'

    asked = asyncio.Event()
    with_pool(test, script)


def test_no_more_connections_than_allowed(loop):
    async def counts(_seen, wire):
        together.append(engine_now.open)
        await asyncio.sleep(0)
        await wire.send(ok())

    async def test(pool, engine):
        nonlocal engine_now
        engine_now = engine
        sinks = await asyncio.gather(*(ask(pool) for _ in range(50)))
        assert all(sink.ended for sink in sinks)
        assert max(together) <= 4
        assert engine.connections <= 4

    together, engine_now = [], None
    with_pool(test, counts, loop, max_connections=4)


def test_a_lost_connection_makes_room_for_the_next_call():
    async def dies(_seen, _wire):
        return False

    async def test(pool, _engine):
        sinks = await asyncio.gather(*(ask(pool) for _ in range(10)))
        assert {sink.failure for sink in sinks} == {Failure.LOST_EARLY}

    with_pool(test, dies, max_connections=1)


def test_abort_closes_the_connection_at_once(loop):
    async def test(pool, engine):
        sink = Sink()
        call = pool.send(GET, b"", sink)
        await until(lambda: engine.seen)
        call.abort()
        await until(lambda: not engine.open and not pool.open_connections)
        assert not sink.final

    with_pool(test, silent, loop)


def test_abort_of_a_call_that_waits_for_a_connection():
    async def test(pool, engine):
        first, second, third = Sink(), Sink(), Sink()
        calls = [pool.send(GET, b"", sink) for sink in (first, second, third)]
        await until(lambda: engine.seen)
        calls[1].abort()
        calls[0].abort()
        await until(lambda: len(engine.seen) == 2)
        calls[2].abort()
        await until(lambda: not pool.open_connections)

    with_pool(test, silent, max_connections=1)


def test_abort_while_connecting_leaves_a_usable_connection():
    async def test(pool, engine):
        pool.send(GET, b"", Sink()).abort()
        await until(lambda: pool.idle_connections)
        assert (await ask(pool)).ended
        assert (engine.connections, len(engine.seen)) == (1, 1)

    with_pool(test)


def test_abort_after_the_end_leaves_the_connection_alone():
    async def test(pool, engine):
        sink = Sink()
        call = pool.send(GET, b"", sink)
        await until(lambda: sink.ended)
        call.abort()
        assert (await ask(pool)).ended
        assert engine.connections == 1

    with_pool(test)


def test_connecting_has_a_time_limit(loop):
    async def main():
        pool = UpstreamPool(f"http://127.0.0.1:{port}", UpstreamSettings(connect_timeout_s=0.02))
        assert (await ask(pool)).failure is Failure.CONNECT
        await until(lambda: pool.open_connections == 0)

    with socket.socket() as deaf, contextlib.ExitStack() as stack:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        port = deaf.getsockname()[1]
        for _ in range(4):  # nobody accepts: once the backlog is full, connecting takes for ever
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", port))
        run(main(), loop)


def test_a_closed_pool_fails_what_it_cannot_serve():
    async def main():
        async with Engine(silent) as engine:
            pool = UpstreamPool(engine.url, UpstreamSettings(max_connections=2))
            sinks = [Sink() for _ in range(4)]
            for sink in sinks[:2]:
                pool.send(GET, b"", sink)
            await until(lambda: len(engine.seen) == 2)
            for sink in sinks[2:]:
                pool.send(GET, b"", sink)
            pool.close()
            await until(lambda: all(sink.failure for sink in sinks))
            assert pool.open_connections == 0

    run(main())


def test_a_pool_closed_while_connecting():
    async def main():
        async with Engine(silent) as engine:
            pool, sink = UpstreamPool(engine.url, UpstreamSettings()), Sink()
            pool.send(GET, b"", sink)
            await asyncio.sleep(0)
            pool.close()
            await until(lambda: sink.failure)
            assert sink.failure is Failure.CONNECT

    run(main())


def test_fetch_returns_a_whole_resource_or_an_error(loop):
    async def test(pool, _engine):
        head, body = await pool.fetch("/v1/models", [(b"authorization", b"Bearer k")])
        assert (head.status, body) == (200, b"abcdef")
        with pytest.raises(OSError, match="closed the connection"):
            await pool.fetch("/v1/models", [])

    async def script(seen, wire):
        if seen.values(b"authorization") != [b"Bearer k"]:
            return False
        await wire.send(chunked(b"abc", b"def"))
        return True

    with_pool(test, script, loop)


def test_unix_sockets(tmp_path, loop):
    async def test(pool, _engine):
        assert (await ask(pool)).body == b'{"ok":true}'

    with_pool(test, loop=loop, engine=Engine(path=str(tmp_path / "s")))


def test_ipv6(loop):
    async def test(pool, engine):
        assert pool.address.authority == b"[::1]:%d" % engine.port
        assert (await ask(pool)).body == b'{"ok":true}'

    with_pool(test, loop=loop, engine=Engine(host="::1"))


def test_lines_of_the_backend_go_before_those_of_the_client():
    async def main():
        async with Engine() as engine:
            pool = UpstreamPool(engine.url, UpstreamSettings(), lines=b"x-data-parallel-rank: 1\r\n")
            head = pool.request_head(b"GET", b"/", [b"X-Data-Parallel-Rank: 7\r\n"], None)
            sink = Sink()
            pool.send(head, b"", sink)
            await until(lambda: sink.final)
            assert engine.seen[0].values(b"x-data-parallel-rank") == [b"1", b"7"]  # of two, engines take the first
            pool.close()
            await until(lambda: not pool.open_connections)

    run(main())
