"""Whoever does not read is not written for: memory stays bounded in both directions."""

import asyncio
import socket

import pytest

from concur_proxy.config import UpstreamSettings
from tests.gateway.harness import Engine, Proxy, ok, request, run, until

PIECE = b"x" * 65536
ENOUGH = 400
"""Pieces that no buffer on the way can hold."""


async def narrow_connection(proxy):
    """Return the proxy's side of the one connection, for which little is buffered."""
    await until(lambda: proxy.state.connections)
    (connection,) = proxy.state.connections
    connection.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    connection.transport.set_write_buffer_limits(high=0)
    return connection


async def settled(count):
    """Let the loop turn until a count stays."""
    before = -1
    while before != count():
        before = count()
        for _ in range(200):
            await asyncio.sleep(0)


@pytest.mark.parametrize("framing", ["chunks", "length", "close"])
def test_a_client_that_does_not_read_stops_the_engine(framing, loop):
    sent = 0

    async def floods(_seen, wire):
        nonlocal sent
        heads = {
            "chunks": b"transfer-encoding: chunked\r\n",
            "length": b"content-length: %d\r\n" % (ENOUGH * len(PIECE)),
            "close": b"",
        }
        await wire.send(b"HTTP/1.1 200 OK\r\n" + heads[framing] + b"\r\n")
        for _ in range(ENOUGH):
            await wire.send(b"%x\r\n%b\r\n" % (len(PIECE), PIECE) if framing == "chunks" else PIECE)
            sent += 1
        if framing == "chunks":
            await wire.send(b"0\r\n\r\n")
        return framing != "close"

    async def main():
        async with Engine(floods) as engine, Proxy((engine,)) as proxy:
            sock = socket.create_connection(("127.0.0.1", proxy.port))
            sock.setblocking(False)
            loop_ = asyncio.get_running_loop()
            await loop_.sock_sendall(sock, request())
            (connection,) = await connections(proxy)
            await until(lambda: connection.flow is not None and connection.flow.write_paused)
            await settled(lambda: sent)
            assert sent < ENOUGH // 2
            assert connection.transport.get_write_buffer_size() < 8 * len(PIECE)
            received = 0
            while received < ENOUGH * len(PIECE):
                received += len(await loop_.sock_recv(sock, 1 << 20))
            await until(lambda: sent == ENOUGH and proxy.idle())
            sock.close()

    async def connections(proxy):
        await until(lambda: proxy.state.connections)
        return list(proxy.state.connections)

    run(main(), loop)


def test_the_next_answer_waits_too_while_the_client_has_not_read_the_last(loop):
    sent = [0, 0]

    async def floods(_seen, wire):
        number = len(engine.seen) - 1
        pieces = (18, ENOUGH)[number]
        await wire.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (pieces * len(PIECE)))
        for _ in range(pieces):
            await wire.send(PIECE)
            sent[number] += 1

    async def main():
        nonlocal engine
        async with Engine(floods) as engine, Proxy((engine,)) as proxy:
            client = await proxy.client()
            await narrow_connection(proxy)
            await client.send(request() + request())
            while not proxy.turns:  # until the proxy has the whole first answer, of which much is not written yet
                await client.reader.read(4096)
                await asyncio.sleep(0)
            await until(lambda: sent[1])
            await settled(lambda: sent[1])
            assert sent[1] < ENOUGH // 2
            client.leave()
            await until(lambda: proxy.idle() and not engine.open)

    engine = None
    run(main(), loop)


def test_a_connection_that_had_to_wait_serves_the_next_call(loop):
    async def answers(_seen, wire):
        await wire.send(ok(PIECE * 18 if len(engine.seen) == 1 else b"small"))

    async def main():
        nonlocal engine
        async with Engine(answers) as engine, Proxy((engine,)) as proxy:
            client = await proxy.client()
            connection = await narrow_connection(proxy)
            proxy.handler.on_turn = lambda _turn: paused.append(connection.flow.write_paused)
            await client.send(request() + request())
            while not paused:
                await client.reader.read(4096)
                await asyncio.sleep(0)
            await until(lambda: len(paused) == 2)
            assert (await proxy.ask()).body == b"small"
            assert engine.connections == 1
            client.leave()

    for _ in range(20):  # whether the client lags behind at the very end is up to the kernel's buffers
        engine, paused = None, []
        run(main(), loop)
        if paused[0]:
            return
    raise AssertionError("the end of an answer never came while its client lagged behind")


def test_silence_counts_only_while_we_listen(loop):
    async def answers(_seen, wire):
        await wire.send(ok(PIECE * ENOUGH))

    async def main():
        async with Engine(answers) as engine, Proxy((engine,), upstream=UpstreamSettings(idle_timeout_s=0.6)) as proxy:
            client = await proxy.client()
            await client.send(request())
            await until(lambda: proxy.state.connections)
            (connection,) = proxy.state.connections
            await until(lambda: connection.flow.write_paused)
            end = asyncio.get_running_loop().time() + 1.5
            await until(lambda: asyncio.get_running_loop().time() > end)
            assert (await client.answer()).whole
            await client.close()

    run(main(), loop)


def test_a_client_that_leaves_without_reading_frees_the_engine(loop):
    async def floods(_seen, wire):
        await wire.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            await wire.send(b"%x\r\n%b\r\n" % (len(PIECE), PIECE))

    async def main():
        async with Engine(floods) as engine, Proxy((engine,)) as proxy:
            client = await proxy.client()
            await client.send(request())
            await until(lambda: proxy.state.connections)
            (connection,) = proxy.state.connections
            await until(lambda: connection.flow.write_paused)
            client.leave()
            await until(lambda: proxy.idle() and not engine.open)

    run(main(), loop)


def test_an_engine_that_reads_slowly_gets_it_all(loop):
    async def main():
        async with Engine() as engine, Proxy((engine,)) as proxy:
            body = b"y" * (20 << 20)
            answer = await proxy.ask(body)
            assert answer.status == 200
            assert engine.seen[0].body == body

    run(main(), loop)
