"""Reads the engines' metrics once in every interval, each backend on its own.

A slow, broken or missing page is reported in words and tried again, less often the longer it lasts; it never ends the
loop, never touches another backend, and two scrapes of one backend never overlap.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from concur_proxy.control.ports import Clock, Fetch
from concur_proxy.control.probe import EngineProbe, Scrape
from concur_proxy.control.target import EngineTarget
from concur_proxy.model import BackendId
from concur_proxy.tasks import end

LONGEST_PAUSE_S = 5.0
"""Between two tries of a page that fails: short enough to see the engine come back before many turns have."""

_log = logging.getLogger(__name__)


def pause_after(failures: int, *, interval_s: float) -> float:
    """Return the time between two scrapes: doubled for every failure in a row, at most ``LONGEST_PAUSE_S``."""
    return max(interval_s, min(interval_s * 2.0 ** min(failures, 16), LONGEST_PAUSE_S))


class Scraper:
    """Runs one task per backend and tells each outcome to ``tell``."""

    __slots__ = ("_clock", "_fetch", "_interval_s", "_tasks", "_tell", "_timeout_s")

    def __init__(
        self, fetch: Fetch, tell: Callable[[Scrape], None], *, interval_s: float, timeout_s: float, clock: Clock
    ) -> None:
        self._fetch = fetch
        self._tell = tell
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._clock = clock
        self._tasks: dict[BackendId, asyncio.Task[None]] = {}

    def add(self, target: EngineTarget) -> None:
        """Start to scrape a backend; one without metrics is left alone."""
        if target.kind != "none":
            probe = EngineProbe(target, self._fetch, timeout_s=self._timeout_s)
            name = f"scrape {target.backend}"
            self._tasks[target.backend] = asyncio.get_running_loop().create_task(self._watch(probe), name=name)

    async def remove(self, backend: BackendId) -> None:
        """Stop to scrape a backend."""
        await end(self._tasks.pop(backend, None))

    async def aclose(self) -> None:
        for backend in list(self._tasks):
            await self.remove(backend)

    async def _watch(self, probe: EngineProbe) -> None:
        failures = 0
        while True:
            started = self._clock()
            failures = 0 if await self._once(probe) else failures + 1
            spent = self._clock() - started
            await asyncio.sleep(max(0.0, pause_after(failures, interval_s=self._interval_s) - spent))

    async def _once(self, probe: EngineProbe) -> bool:
        try:
            scrape = await probe.scrape(clock=self._clock)
            self._tell(scrape)
        except Exception:  # noqa: BLE001
            # A bug must not stop the watching: without it the window would stay where it is for ever.
            _log.exception("scraping %s failed", probe.target.backend)
            return False
        return scrape.sample is not None
