"""Whoever does not read is not written for: memory stays bounded in both directions."""

import asyncio
import socket

import pytest

from tests.gateway.harness import Engine, Proxy, request, run, until

PIECE = b"x" * 65536
ENOUGH = 400
"""Pieces that no buffer on the way can hold."""


def buffered(transport):
    return transport.get_write_buffer_size()


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
            before = -1
            while before != sent:
                before = sent
                for _ in range(200):
                    await asyncio.sleep(0)
            assert sent < ENOUGH // 2
            assert buffered(connection.transport) < 8 * len(PIECE)
            received = 0
            while received < ENOUGH * len(PIECE):
                received += len(await loop_.sock_recv(sock, 1 << 20))
            await until(lambda: sent == ENOUGH and proxy.idle())
            sock.close()

    async def connections(proxy):
        await until(lambda: proxy.state.connections)
        return list(proxy.state.connections)

    run(main(), loop)


def test_the_next_answer_waits_too_while_the_client_has_not_read_the_last():
    sent = [0, 0]

    async def floods(_seen, wire):
        number = len(engine.seen) - 1
        await wire.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (ENOUGH * len(PIECE)))
        for _ in range(ENOUGH):
            await wire.send(PIECE)
            sent[number] += 1

    async def main():
        nonlocal engine
        async with Engine(floods) as engine, Proxy((engine,)) as proxy:
            client = await proxy.client()
            await client.send(request() + request())
            await client.reader.readuntil(b"\r\n\r\n")
            await client.reader.readexactly(ENOUGH * len(PIECE) - 1000)
            await until(lambda: sent[1])
            before = -1
            while before != sent[1]:
                before = sent[1]
                for _ in range(200):
                    await asyncio.sleep(0)
            assert sent[1] < ENOUGH // 2
            await client.reader.readexactly(1000)
            assert len((await client.answer()).body) == ENOUGH * len(PIECE)
            await client.close()

    engine = None
    run(main())


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
