"""The workers of one proxy (``--workers``) among themselves: whichever is asked for metrics shows those of all.

Each listens on a Unix socket in a folder that only they know, and answers with its own page.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from concur_proxy.observe.merge import merge

PATIENCE_S = 2.0
"""A worker that does not answer by then is left out of the page."""
MOST_BYTES = 64 << 20

Render = Callable[[str], bytes]
"""Returns the page of this process, in a format that an Accept header asks for."""


@dataclass(slots=True)
class Siblings:
    """One worker's view; ``number`` is its own place among ``count``."""

    folder: Path
    count: int
    number: int
    _server: asyncio.Server | None = None

    async def start(self, render: Render) -> None:
        """Answer the others from now on. A worker that takes the place of one that has died takes its socket, too."""

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                accept = await reader.readuntil(b"\n")
                writer.write(render(accept.decode("latin-1").strip()))
                await writer.drain()
            writer.close()

        path = self._path(self.number)
        path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(answer, path)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._path(self.number).unlink(missing_ok=True)

    async def page(self, accept: str, own: bytes) -> bytes:
        """Return one page made of ``own`` and of those that the others give."""
        others = [number for number in range(self.count) if number != self.number]
        told = await asyncio.gather(*(self._ask(number, accept) for number in others))
        pages = {self.number: own, **{number: page for number, page in zip(others, told, strict=True) if page}}
        return merge({str(number): page.decode() for number, page in sorted(pages.items())}).encode()

    async def _ask(self, number: int, accept: str) -> bytes:
        try:
            async with asyncio.timeout(PATIENCE_S):
                reader, writer = await asyncio.open_unix_connection(self._path(number), limit=MOST_BYTES)
                with contextlib.closing(writer):
                    writer.write(accept.replace("\n", " ").encode("latin-1", "replace") + b"\n")
                    return await reader.read(-1)
        except (OSError, TimeoutError):
            return b""

    def _path(self, number: int) -> Path:
        return self.folder / f"{number}.sock"


def meeting_place() -> tempfile.TemporaryDirectory[str]:
    """Return a folder for the sockets that nobody else may look into; gone when it is cleaned up."""
    return tempfile.TemporaryDirectory(prefix="concur-workers-")
