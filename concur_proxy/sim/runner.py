"""Runs one engine in virtual time, and breaks it on demand: lost and back, flushed, shrunk."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from concur_proxy.model import BackendId
from concur_proxy.sim.engine import Engine
from concur_proxy.sim.events import Events
from concur_proxy.sim.step import EngineConfig, Request


class End(enum.Enum):
    """How a request has ended, for whoever waits for it."""

    COMPLETE = "complete"
    LOST = "lost"
    """The engine has died."""
    REFUSED = "refused"
    """The engine is full and has not taken it."""


OnEnd = Callable[[End], None]


@dataclass(slots=True)
class Work:
    """What all engines of one backend have done, one after the other."""

    steps: int = 0
    busy_s: float = 0.0
    scheduled_tokens: int = 0
    generated_tokens: int = 0
    preemptions: int = 0
    evictions: int = 0

    def add(self, engine: Engine) -> None:
        stats = engine.stats
        self.steps += stats.steps
        self.busy_s += stats.busy_s
        self.scheduled_tokens += stats.scheduled_tokens
        self.generated_tokens += stats.generation_tokens
        self.preemptions += stats.preemptions
        self.evictions += engine.pool.evictions


class Runner:
    """Steps follow each other without gaps while there is work.

    Equal steps are merged, as far as the next reading of the engine; whatever else happens to it meanwhile cuts them.
    """

    def __init__(
        self, backend: BackendId, config: EngineConfig, events: Events, *, max_queued: int | None = None
    ) -> None:
        self.backend = backend
        self.max_queued = max_queued
        self.config = config
        self.engine = Engine(config)
        self.started_at = events.now
        self.up = True
        self.share = 1.0
        """Of the KV cache that is there."""
        self.next_reading_at = math.inf
        self._events = events
        self._ends: dict[Request, OnEnd] = {}
        self._busy = False
        self._ends_at = 0.0
        self._past = Work()
        self._taken: list[int] = []

    @property
    def work(self) -> Work:
        """Everything done so far."""
        self.catch_up()
        total = replace(self._past)
        total.add(self.engine)
        return total

    def catch_up(self) -> None:
        """Bring the engine to the present moment: before anything is read from it or done to it."""
        end = self.engine.catch_up(self._events.now)
        if end is not None and end != self._ends_at:
            self._expect(end)

    @property
    def generated_tokens(self) -> int:
        """As of the last ``catch_up``."""
        return self._past.generated_tokens + self.engine.stats.generation_tokens

    @property
    def usage(self) -> float:
        """Share of the blocks that are there which running requests hold, 0..1."""
        pool = self.engine.pool
        taken = len(self._taken)
        return (pool.used - taken) / max(1, pool.total - 1 - taken)

    def submit(self, request: Request, on_end: OnEnd) -> None:
        """Give the engine a request; it must be up. One that is full refuses it at once."""
        self.catch_up()
        if self.max_queued is not None and self.engine.waiting >= self.max_queued:
            self.engine.stats.rejections += 1
            self._events.after(0.0, partial(on_end, End.REFUSED))
            return
        self.engine.submit(request)
        self._ends[request] = on_end
        self._wake()

    def abort(self, request: Request) -> None:
        """The client has gone: nobody is told."""
        if self._ends.pop(request, None) is not None:
            self.catch_up()
            self.engine.abort(request)

    def lose(self) -> None:
        """The engine dies, and everything in it."""
        self.catch_up()
        ends, self._ends = self._ends, {}
        self._past.add(self.engine)
        self.engine = Engine(self.config)
        self.up = self._busy = False
        self._taken = []
        for on_end in ends.values():
            on_end(End.LOST)

    def restart(self) -> None:
        """It is back, empty, with new counters."""
        self.up = True
        self.started_at = self._events.now
        self._shrink()

    def flush(self) -> None:
        """All content that no request holds is gone."""
        self.catch_up()
        self.engine.pool.forget()

    def shrink(self, share: float) -> None:
        """Only this share of the cache is there from now on; blocks in use go when they are given back.

        A larger share brings back what a smaller one took.
        """
        self.catch_up()
        self.share = share
        self._shrink()

    def _shrink(self) -> None:
        pool = self.engine.pool
        missing = round((1.0 - self.share) * (pool.total - 1)) - len(self._taken)
        if missing > 0:
            self._taken += pool.take(min(missing, pool.free))
        elif missing < 0:
            pool.release(self._taken[missing:])
            del self._taken[missing:]

    def _wake(self) -> None:
        if not self._busy:
            self._busy = True
            self._events.at(self._events.now, partial(self._start, self.engine), last=True)

    def _start(self, engine: Engine) -> None:
        if engine is not self.engine:
            return
        end = engine.start_step(self._events.now, until=self.next_reading_at)
        if end is None:
            self._busy = False
        else:
            self._expect(end)

    def _expect(self, end: float) -> None:
        self._ends_at = end
        self._events.at(end, partial(self._end, self.engine, end))

    def _end(self, engine: Engine, end: float) -> None:
        if engine is not self.engine or end != self._ends_at:
            return
        result = engine.end_step()
        self._ends_at = -1.0
        if self.share < 1.0:
            self._shrink()
        self._events.at(self._events.now, partial(self._start, engine), last=True)
        for request in result.finished:
            self._ends.pop(request)(End.COMPLETE)
