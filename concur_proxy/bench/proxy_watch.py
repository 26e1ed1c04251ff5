"""Reads a running proxy's status again and again, beside a workload that runs through it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import orjson

from concur_proxy.bench.client import Client

INTERVAL_S = 0.25


class ProxyWatch:
    """``status`` is the newest answer of ``GET /concur/status``; empty before the first."""

    def __init__(self, url: str) -> None:
        self._client = Client(url)
        self._task: asyncio.Task[None] | None = None
        self.status: dict[str, Any] = {}

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        await self._client.aclose()

    async def _read(self) -> None:
        while True:
            with suppress(OSError, TimeoutError, ValueError):
                reply = await self._client.request("GET", "/concur/status")
                if reply.status == 200:
                    self.status = orjson.loads(reply.body)
            await asyncio.sleep(INTERVAL_S)
