"""A network between two programs, which may be cut: packets vanish, connections stay open, as behind a dead switch."""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Self

from tests.chaos.relay import Relay, Streams


class Wire(Relay):
    """Leads to a port of this machine; a context manager. What is under way when it is cut arrives after ``heal``."""

    def __init__(self, to: int) -> None:
        super().__init__()
        self._to = to
        self._loop = asyncio.new_event_loop()
        self._whole = asyncio.Event()
        self._whole.set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="wire")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def cut(self) -> None:
        self._loop.call_soon_threadsafe(self._whole.clear)

    def heal(self) -> None:
        self._loop.call_soon_threadsafe(self._whole.set)

    def __enter__(self) -> Self:
        self._thread.start()
        self.port = self._run(self.listen())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._run(self.end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, doing):
        return asyncio.run_coroutine_threadsafe(doing, self._loop).result()

    async def connect(self) -> Streams:
        return await asyncio.open_connection("127.0.0.1", self._to)

    async def passing(self) -> None:
        await self._whole.wait()
