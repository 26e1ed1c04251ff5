"""Listens for what other replicas have to say: who should look again, and, where we lead, how turns ended.

A word that is lost is no harm: everybody looks by themselves now and then (``replica.POLL_S``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from redis.exceptions import RedisError

BLOCK_MS = 500
PATIENCE_S = 2.0
PAUSE_S = 0.5
MOST = 500

_log = logging.getLogger(__name__)


class Wakes:
    """``leads``: whether the turns of others are of interest."""

    def __init__(
        self,
        client: Any,
        prefix: str,
        *,
        woken: Callable[[str, str], None],
        heard: Callable[[Mapping[str, str]], None],
        leads: Callable[[], bool],
    ) -> None:
        self._client = client
        self._wake, self._turns = f"{prefix}wake", f"{prefix}turns"
        self._woken = woken
        self._heard = heard
        self._leads = leads
        self._last: dict[str, str] = {self._wake: "$"}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="state wakes")

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await self._listen()
            except (RedisError, OSError, TimeoutError):
                await asyncio.sleep(PAUSE_S)
            except Exception:  # noqa: BLE001 - a bug here must not make this replica deaf
                _log.exception("listening to other replicas failed")
                await asyncio.sleep(PAUSE_S)

    async def _listen(self) -> None:
        if not self._leads():
            self._last.pop(self._turns, None)
        elif self._turns not in self._last:
            self._last[self._turns] = "$"
        answer = await self._client.xread(dict(self._last), count=MOST, block=BLOCK_MS)
        streams = answer.items() if isinstance(answer, dict) else answer
        for stream, entries in streams or ():
            for number, said in entries:
                self._last[stream] = number
                if stream == self._wake:
                    self._woken(said["why"], said["whom"])
                else:
                    self._heard(said)
