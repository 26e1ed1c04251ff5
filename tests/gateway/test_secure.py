"""Handshakes that clients begin and do not finish, on both loops: bounded in time, per client, and in all."""

import asyncio

import pytest

from concur_proxy.gateway.limits import ClientLimits
from tests.gateway.harness import Engine, Proxy, request, run, until
from tests.gateway.test_tls import certificates, client_side, serving  # noqa: F401 - a fixture

BEGINNING = b"\x16\x03\x01\x02\x00\x01"
"""Of a client's first message."""


async def begin(proxy, sent=BEGINNING):
    """Connect, and send no more than the beginning of a handshake."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(sent)
    return reader, writer


async def at_end(reader):
    try:
        return await reader.read() == b""
    except ConnectionResetError:
        return True


async def is_served(proxy, certificates):  # noqa: F811
    client = await proxy.client(client_side(certificates))
    await client.send(request())
    status = (await client.answer()).status
    await client.close()
    return status == 200


def secure(engine, certificates, *, limits=None, **handshakes):  # noqa: F811
    tls = serving(certificates)
    return Proxy((engine,), serve_tls=tls, limits=limits or ClientLimits(), handshakes=handshakes)


@pytest.mark.parametrize("sent", [b"", BEGINNING, BEGINNING + b"\x00" * 40])
def test_a_handshake_that_does_not_go_on_ends(certificates, loop, sent):  # noqa: F811
    async def main():
        async with Engine() as engine, secure(engine, certificates, longest_s=0.2) as proxy:
            reader, writer = await begin(proxy, sent)
            assert await at_end(reader)
            await until(lambda: not len(proxy.server))
            writer.close()

    run(main(), loop)


def test_one_client_cannot_begin_more_than_it_may_have_connections(certificates, loop):  # noqa: F811
    async def main():
        limits = ClientLimits(max_connections_per_client=3)
        async with Engine() as engine, secure(engine, certificates, limits=limits) as proxy:
            begun = [await begin(proxy) for _ in range(3)]
            await until(lambda: len(proxy.server) == 3)
            reader, writer = await begin(proxy)
            assert await at_end(reader)
            assert len(proxy.server) == 3
            for _, each in (*begun, (reader, writer)):
                each.close()
            await until(lambda: not len(proxy.server))
            assert await is_served(proxy, certificates)

    run(main(), loop)


def test_where_there_is_no_room_for_one_more_the_oldest_makes_way(certificates, loop):  # noqa: F811
    async def main():
        async with Engine() as engine, secure(engine, certificates, most=4) as proxy:
            begun = [await begin(proxy) for _ in range(4)]
            await until(lambda: len(proxy.server) == 4)
            assert await is_served(proxy, certificates)
            assert await at_end(begun[0][0])
            newer = [reader for reader, _ in begun[2:]]
            assert not any(reader.at_eof() for reader in newer)
            assert len(proxy.server) <= 4
            for _, writer in begun:
                writer.close()

    run(main(), loop)


def test_hundreds_of_honest_clients_at_once_are_all_served(certificates, loop):  # noqa: F811
    async def main():
        async with Engine() as engine, secure(engine, certificates) as proxy:
            served = await asyncio.gather(*(is_served(proxy, certificates) for _ in range(100)))
            assert all(served)
            assert not len(proxy.server)

    run(main(), loop)


def test_what_is_no_tls_is_closed_and_harms_nobody(certificates, loop):  # noqa: F811
    async def main():
        async with Engine() as engine, secure(engine, certificates) as proxy:
            reader, writer = await begin(proxy, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await asyncio.wait_for(reader.read(), 60)
            writer.close()
            assert await is_served(proxy, certificates)
            assert not len(proxy.server)

    run(main(), loop)


def test_without_files_for_more_connections_it_waits_and_goes_on(certificates, loop, monkeypatch):  # noqa: F811
    monkeypatch.setattr("concur_proxy.gateway.secure.PAUSE_S", 0.01)

    async def main():
        async with Engine() as engine, secure(engine, certificates) as proxy:
            real, tries = proxy.server._sock, []

            class Exhausted:
                def accept(self):
                    tries.append(1)
                    if len(tries) < 3:
                        raise OSError(24, "Too many open files")
                    return real.accept()

                def fileno(self):
                    return real.fileno()

            proxy.server._sock = Exhausted()
            assert await is_served(proxy, certificates)
            assert len(tries) >= 3
            proxy.server._sock = real

    run(main(), loop)


def test_the_end_does_not_wait_for_handshakes(certificates, loop):  # noqa: F811
    async def main():
        async with Engine() as engine, secure(engine, certificates) as proxy:
            reader, writer = await begin(proxy)
            await until(lambda: len(proxy.server) == 1)
            proxy.server.close()
            await proxy.server.wait_closed()
            assert await at_end(reader)
            writer.close()

    run(main(), loop)
