"""Writes the history: every ten seconds, what gate, engines and the ledger of answers say of each backend."""

from __future__ import annotations

import asyncio
import logging
import math
from itertools import takewhile
from typing import TYPE_CHECKING

from concur_proxy.core.regulator import Regulator
from concur_proxy.core.report import BackendSnapshot
from concur_proxy.engines.base import EngineSample
from concur_proxy.history import INTERVAL_S, Counters, History, Meter, Moment
from concur_proxy.history.moment import UNKNOWN
from concur_proxy.model import BackendId
from concur_proxy.tasks import end
from concur_proxy.windows.base import Unit

if TYPE_CHECKING:
    from concur_proxy.runtime.node import Node

logger = logging.getLogger(__name__)


class Historian:
    """Keeps ``history`` up to date while it runs."""

    def __init__(self, node: Node) -> None:
        self.history = History()
        self._node = node
        self._meters: dict[BackendId, Meter] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="history")

    async def stop(self) -> None:
        await end(self._task)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL_S)
            try:
                self.record()
            except Exception:
                logger.exception("the history misses a moment")

    def record(self) -> None:
        """Keep this moment."""
        node, now = self._node, self._node.clock()
        snapshot = node.gate.snapshot(now=now)
        books = snapshot.backends
        self._meters = {backend: self._meters.get(backend) or Meter() for backend in books}
        regulated = ((backend, node.loop.regulator(backend)) for backend in books)
        moments: dict[str, Moment] = {
            backend: self._moment(books[backend], regulator, now) for backend, regulator in regulated if regulator
        }
        self.history.record(moments, now=now, held=snapshot.held)

    def _moment(self, books: BackendSnapshot, regulator: Regulator, now: float) -> Moment:
        rates = self._meters[books.id].read(self._counters(books.id, regulator.tracker.latest), now=now)
        law, takes_turns = regulator.law.snapshot(), books.up  # what one that takes none could hold is no room
        return Moment(
            window_sessions=books.window if takes_turns and books.unit is Unit.SESSIONS else UNKNOWN,
            window_tokens=books.window if takes_turns and books.unit is Unit.TOKENS else UNKNOWN,
            active=books.active,
            running=books.running,
            held=books.held,
            queued=_number(regulator.signals.waiting),
            footprint_tokens=books.footprint_tokens,
            capacity_tokens=_number(books.capacity_tokens) if takes_turns else UNKNOWN,
            kv_usage=_usage(regulator, now) if takes_turns else UNKNOWN,
            queried_tokens_per_s=rates.queried,
            hit_tokens_per_s=rates.hit,
            prompt_tokens_per_s=rates.prompt,
            generated_tokens_per_s=rates.generated,
            recomputed_tokens_per_s=rates.recomputed,
            congestion=_number(law.get("congestion")),
            threshold=_number(law.get("threshold")),
        )

    def _counters(self, backend: BackendId, engine: EngineSample | None) -> Counters:
        """The engine's counters see all its traffic; where it has none, the usage of answers that went through here."""
        spent, recomputed = self._node.metrics.spent(backend), self._node.metrics.recomputed(backend)
        told = engine or EngineSample(at=0.0)
        counted = told.prefix_queries is not None and told.prefix_hits is not None
        return Counters(
            queried_tokens=told.prefix_queries if counted else spent.measured,
            hit_tokens=told.prefix_hits if counted else spent.cached,
            prompt_tokens=spent.prompt if told.prompt_tokens is None else told.prompt_tokens,
            generated_tokens=spent.completion if told.generation_tokens is None else told.generation_tokens,
            recomputed_tokens=recomputed,
        )


def _usage(regulator: Regulator, now: float) -> float:
    """Usage jumps from second to second: return its mean since the moment before."""
    newest = takewhile(lambda point: point.at > now - INTERVAL_S, reversed(regulator.history))
    known = [point.kv_usage for point in newest if point.kv_usage is not None]
    return sum(known) / len(known) if known else UNKNOWN


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else UNKNOWN
