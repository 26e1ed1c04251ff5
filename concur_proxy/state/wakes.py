"""Listens for what other replicas have to say: who should look again, and, where we lead, how turns ended.

A word that is lost is no harm: everybody looks by themselves now and then (``replica.POLL_S``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from redis.exceptions import RedisError

from concur_proxy.tasks import end

BLOCK_MS = 500
PATIENCE_S = 2.0
PAUSE_S = 0.5
MOST = 500

NEWS = "$"
"""From now on."""

_log = logging.getLogger(__name__)


class Wakes:
    """``turns_from``: how often we have begun to lead, and from where on turns are of interest; None for not at all."""

    def __init__(
        self,
        client: Any,
        prefix: str,
        *,
        woken: Callable[[str, str], None],
        heard: Callable[[Mapping[str, str]], None],
        turns_from: Callable[[], tuple[int, str] | None],
    ) -> None:
        self._client = client
        self._wake, self._turns = f"{prefix}wake", f"{prefix}turns"
        self._woken = woken
        self._heard = heard
        self._turns_from = turns_from
        self._begun = 0
        self._last: dict[str, str] = {self._wake: NEWS}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="state wakes")

    async def aclose(self) -> None:
        await end(self._task)

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await self._listen()
            except (RedisError, OSError, TimeoutError):
                self._last[self._wake] = NEWS  # a Redis that has forgotten everything may count from less
                await asyncio.sleep(PAUSE_S)
            except Exception:  # noqa: BLE001 - a bug here must not make this replica deaf
                _log.exception("listening to other replicas failed")
                await asyncio.sleep(PAUSE_S)

    async def _listen(self) -> None:
        answer = await self._client.xread(self._streams(), count=MOST, block=BLOCK_MS)
        streams = answer.items() if isinstance(answer, dict) else answer
        for stream, entries in streams or ():
            for number, said in entries:
                self._last[stream] = number
                if stream == self._wake:
                    self._woken(said["why"], said["whom"])
                else:
                    self._heard(said)

    def _streams(self) -> dict[str, str]:
        """What to listen to, each from where on. A leader that begins misses no turn while it waits for other news."""
        began = self._turns_from()
        if began is None:
            return {self._wake: self._last[self._wake]}
        if began[0] != self._begun:
            self._begun, self._last[self._turns] = began
        return dict(self._last)
