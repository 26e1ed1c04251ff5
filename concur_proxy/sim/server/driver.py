"""Paces an engine by the clock: one task that starts a step, sleeps until its end, and hands out its tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from concur_proxy.sim.engine import Engine
from concur_proxy.sim.step import Request

MAX_LAG_S = 0.1
"""How far the engine may run behind the clock and still catch up. A host that is slower than the simulated engine, or
that slept, loses the rest."""

Listener = Callable[[Request, int], None]
"""Told of a request's new tokens."""


class Driver:
    """Steps follow each other without gaps while there is work: a step that is noticed late does not delay the next."""

    def __init__(self, engine: Engine, clock: Callable[[], float]) -> None:
        self.engine = engine
        self._clock = clock
        self._listeners: dict[Request, Listener] = {}
        self._work = asyncio.Event()
        self._step_ends: float | None = None

    def now(self) -> float:
        """The clock, held back where the step under way should have ended: nothing arrives before it is over."""
        now = self._clock()
        return now if self._step_ends is None else min(now, self._step_ends)

    def submit(self, requests: Sequence[Request], listener: Listener) -> None:
        for request in requests:
            self.engine.submit(request)
            self._listeners[request] = listener
        self._work.set()

    def abort(self, requests: Sequence[Request]) -> None:
        """Drop those that have not ended; the engine has forgotten them when this returns."""
        for request in requests:
            if self._listeners.pop(request, None) is not None:
                self.engine.abort(request)

    async def run(self) -> None:
        while True:
            await self._work.wait()
            await self._busy(self._clock())
            self._work.clear()

    async def _busy(self, start: float) -> None:
        """Run steps from ``start`` on until nothing can run."""
        while (end := self.engine.start_step(start)) is not None:
            self._step_ends = end
            await asyncio.sleep(max(0.0, end - self._clock()))
            self._hand_out()
            start = max(end, self._clock() - MAX_LAG_S)
        self._step_ends = None

    def _hand_out(self) -> None:
        result = self.engine.end_step()
        finished = set(result.finished)
        for request, count in result.emitted:
            listener = self._listeners.pop(request) if request in finished else self._listeners[request]
            listener(request, count)
