"""Carries bytes between whoever connects and somebody else, both ways: what a network or a balancer does."""

from __future__ import annotations

import asyncio
from contextlib import suppress

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Relay:
    """Listens on a free port of loopback. Subclasses say where connections go, and may hold up what passes."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self) -> int:
        """Return the port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def end(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def connect(self) -> Streams | None:
        """Return the other end for a new connection, None where nobody accepts."""
        raise NotImplementedError

    async def passing(self) -> None:
        """Wait until bytes may pass."""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        there: asyncio.StreamWriter | None = None
        try:
            with suppress(OSError):
                if (streams := await self.connect()) is not None:
                    answers, there = streams
                    await asyncio.gather(self._pump(reader, there), self._pump(answers, writer))
        finally:
            for end in (writer, there):
                if end is not None:
                    end.close()
            self._tasks.discard(task)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                await self.passing()
                writer.write(data)
                await writer.drain()
            await self.passing()
        with suppress(OSError):
            writer.close()
