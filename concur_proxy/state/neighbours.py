"""Replicas ask each other whether they reach Redis, past it: who is cut off alone learns of it from those who are not.

One line goes there, the name of whom is asked, which only those know who have read it in Redis; one character comes
back. Nobody has to be reachable: where no neighbour answers, nothing is known.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from concur_proxy.state.hosts import hosts_of
from concur_proxy.tasks import end

TIMEOUT_S = 0.5
LONGEST_NAME = 64
YES, NO = b"1", b"0"
ANY_PORT = 9
"""Nothing is sent there: to be asked by which address we would."""


class Neighbours:
    """``reaches_redis`` is what others are told of us."""

    def __init__(self, name: str, reaches_redis: Callable[[], bool]) -> None:
        self._name = name.encode()
        self._reaches_redis = reaches_redis
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, redis_url: str) -> str:
        """Listen where others that reach this Redis may reach us, and return that address; empty where that fails."""
        try:
            host = await asyncio.to_thread(local_address, redis_url)
            self._server = await asyncio.start_server(self._serve, host, 0, limit=2 * LONGEST_NAME)
        except (OSError, ValueError):
            return ""
        port = self._server.sockets[0].getsockname()[1]
        return f"{host} {port}"

    async def aclose(self) -> None:
        if self._server is not None:
            self._server.close()
        await end(*self._tasks)

    def ask(self, others: Sequence[tuple[str, str]], then: Callable[[], None]) -> None:
        """Ask all of them, by name and address; ``then`` is called once where one of them reaches Redis."""
        task = asyncio.get_running_loop().create_task(_ask_all(others, then), name="state neighbours")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                asked = await reader.readline()
                if asked.strip() == self._name:
                    writer.write(YES if self._reaches_redis() else NO)
                    await writer.drain()
        except (OSError, ValueError, TimeoutError):
            pass
        finally:
            writer.close()


async def _ask_all(others: Sequence[tuple[str, str]], then: Callable[[], None]) -> None:
    if any(await asyncio.gather(*(_ask(name, address) for name, address in others))):
        then()


async def _ask(name: str, address: str) -> bool:
    """Return whether a neighbour says that it reaches Redis."""
    host, _, port = address.rpartition(" ")
    try:
        async with asyncio.timeout(TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                writer.write(name.encode() + b"\n")
                return await reader.read(1) == YES
            finally:
                writer.close()
    except (OSError, OverflowError, ValueError, TimeoutError):  # an address may be anything
        return False


def local_address(redis_url: str) -> str:
    """Return our own address on the way to Redis; on one host with it, the loopback. OSError where there is none."""
    parts = urlsplit(redis_url)
    if parts.scheme == "unix":
        return "127.0.0.1"
    host, _ = hosts_of(parts, port=ANY_PORT)[0]
    family, kind, _, _, where = socket.getaddrinfo(host, ANY_PORT, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(where)
        address: str = probe.getsockname()[0]
    return address
