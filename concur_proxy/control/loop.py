"""Scrape, signals, law, gate: once in every period for each backend, as soon as its new sample is there.

A refusal by an engine does not wait for the period, and an operator's change for nothing at all; a sample that is late
is not waited for longer than half of it. ``step`` does what is due and says when to come back; ``run`` calls it then,
or when there is news. What goes wrong with one backend stays with it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from concur_proxy.control.ports import Clock
from concur_proxy.control.probe import Scrape
from concur_proxy.control.status import describe
from concur_proxy.control.target import EngineTarget
from concur_proxy.core.regulator import Bounds, GatePort, MakeLaw, Point, Regulator
from concur_proxy.model import BackendId, Signals, TurnRecord
from concur_proxy.windows.base import WindowView

SHORTEST_GAP_S = 0.1
"""Between two updates of one window: a storm of refusals is one piece of news."""

PATIENCE = 1.5
"""Periods after which a window is updated without a new sample."""

_log = logging.getLogger(__name__)


class _Entry:
    """A backend with its regulator, and when it is due."""

    __slots__ = ("due_at", "kind", "problem", "regulator", "updated_at")

    def __init__(self, target: EngineTarget, regulator: Regulator) -> None:
        self.regulator = regulator
        self.kind = target.kind
        self.problem: str | None = None
        self.updated_at = -math.inf
        self.due_at = -math.inf


class ControlLoop:
    """Owns one law per backend and moves the windows."""

    def __init__(
        self,
        gate: GatePort,
        make_law: MakeLaw,
        *,
        period_s: float,
        clock: Clock,
        bounds: Bounds,
        on_sleep: Callable[[BackendId, bool], None] = lambda _backend, _asleep: None,
        on_move: Callable[[BackendId, float, float], None] = lambda _backend, _before, _after: None,
    ) -> None:
        self._gate = gate
        self._make_law = make_law
        self._period_s = period_s
        self._clock = clock
        self._bounds = bounds
        self._on_sleep = on_sleep
        self._on_move = on_move
        self._entries: dict[BackendId, _Entry] = {}
        self._news = asyncio.Event()
        self.steers: Callable[[], bool] = lambda: True
        """Whether windows are moved from here: where replicas share them, one of these moves them."""

    # backends

    def add(self, target: EngineTarget) -> None:
        """Take over a backend's window, and give the gate its first one."""
        regulator = Regulator(
            target.backend,
            self._gate,
            self._make_law,
            self._bounds,
            capacity_hint=target.capacity_tokens,
            on_problem=_report,
        )
        self._entries[target.backend] = _Entry(target, regulator)
        self._news.set()

    def remove(self, backend: BackendId) -> None:
        """Leave a backend alone from now on."""
        self._entries.pop(backend, None)

    # news

    def scraped(self, scrape: Scrape) -> None:
        """Take in the outcome of a scrape."""
        if (entry := self._entries.get(scrape.backend)) is None:
            return
        entry.problem = scrape.problem
        entry.kind = scrape.kind or entry.kind
        if scrape.sample is not None:
            entry.regulator.sample(scrape.sample)
            if scrape.sample.asleep is not None:
                self._on_sleep(scrape.backend, scrape.sample.asleep)
            self._hurry(entry, self._period_s)

    def finished(self, record: TurnRecord) -> None:
        """Take in a finished turn."""
        if (entry := self._entries.get(record.backend)) is not None:
            entry.regulator.record(record, now=self._clock())

    def refused(self, backend: BackendId) -> None:
        """The engine has answered 429, 503 or 529: the window moves at once.

        For every such answer, also where the turn goes back among the held and leaves no record.
        """
        if (entry := self._entries.get(backend)) is not None:
            entry.regulator.tracker.refused()
            self._hurry(entry)

    # what an operator changes

    def set_law(self, make_law: MakeLaw) -> None:
        """Swap the law or its parameters on every backend; where ``make_law`` raises, nothing has changed."""
        make_law(minimum=self._bounds.minimum, maximum=self._bounds.maximum)
        self._make_law = make_law
        for entry in self._entries.values():
            entry.regulator.set_law(make_law)
        self._decide_anew(self._entries.values())

    def set_bounds(self, bounds: Bounds, *, of: Callable[[WindowView], Bounds] | None = None) -> None:
        """Change the bounds of windows: ``bounds`` for backends to come, ``of(view)`` for those that are there.

        Without ``of`` all get the same. Shares of the present window are what ``of`` is for.
        """
        self._bounds = bounds
        for backend, entry in self._entries.items():
            entry.regulator.set_bounds(of(self._gate.view(backend)) if of else bounds)
        self._decide_anew(self._entries.values())

    def set_window(self, window: float | None, *, backend: BackendId | None = None) -> None:
        """Set the window of one backend, or of all, by hand; None leaves it to the law again."""
        entries = [entry for name, entry in self._entries.items() if backend in (None, name)]
        for entry in entries:
            entry.regulator.set_window(window)
        self._decide_anew(entries)

    # across restarts

    def dump(self) -> dict[BackendId, Mapping[str, object]]:
        """Return what the laws have learned of each backend."""
        states = ((backend, entry.regulator.dump()) for backend, entry in self._entries.items())
        return {backend: state for backend, state in states if state is not None}

    def load(self, backend: BackendId, state: Mapping[str, Any]) -> None:
        """Let a backend's law take over what was learned before."""
        self._entries[backend].regulator.load(state)

    def take_over(self, learned: Mapping[str, Any]) -> None:
        """Steer from now on, with what another replica's laws have learned; what was seen before is no news."""
        now = self._clock()
        for backend, entry in self._entries.items():
            entry.regulator.tracker.take(now=now)
            if isinstance(state := learned.get(backend), Mapping):
                entry.regulator.load(state)
            self._hurry(entry)

    # time

    def step(self, now: float) -> float:
        """Update the windows that are due; return when the next one is."""
        if not self.steers():
            return now + self._period_s
        for backend, entry in self._entries.items():
            if entry.due_at <= now:
                entry.updated_at = now
                entry.due_at = now + PATIENCE * self._period_s
                try:
                    self._update(backend, entry.regulator, now)
                except Exception:  # noqa: BLE001
                    _log.exception("updating the window of %s failed", backend)
        return min((entry.due_at for entry in self._entries.values()), default=math.inf)

    def _update(self, backend: BackendId, regulator: Regulator, now: float) -> None:
        before = regulator.verdict.window
        regulator.update(now=now)
        if regulator.verdict.window != before:
            self._on_move(backend, before, regulator.verdict.window)

    async def run(self) -> None:
        """Step for ever."""
        while True:
            self._news.clear()
            pause = self.step(self._clock()) - self._clock()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(pause, 0.0) if math.isfinite(pause) else None):
                    await self._news.wait()

    def _decide_anew(self, entries: Iterable[_Entry]) -> None:
        """Whoever has changed something finds it in force: the next turn is let in by the new window."""
        now = self._clock()
        for entry in entries:
            entry.due_at = now
        self.step(now)
        self._news.set()

    def _hurry(self, entry: _Entry, gap_s: float = SHORTEST_GAP_S) -> None:
        entry.due_at = min(entry.due_at, max(self._clock(), entry.updated_at + gap_s))
        self._news.set()

    # for people

    def status(self, *, now: float) -> dict[BackendId, dict[str, object]]:
        """Return each backend as it is, ready for JSON."""
        return {
            backend: describe(entry.regulator, kind=entry.kind, problem=entry.problem, now=now)
            for backend, entry in self._entries.items()
        }

    def signals(self, backend: BackendId) -> Signals | None:
        """Return what the newest update of a window went by."""
        entry = self._entries.get(backend)
        return entry.regulator.signals if entry else None

    def regulator(self, backend: BackendId) -> Regulator | None:
        """Return what moves a backend's window, to look at."""
        entry = self._entries.get(backend)
        return entry.regulator if entry else None

    def history(self, backend: BackendId) -> tuple[Point, ...]:
        """Return the updates of a window, oldest first."""
        entry = self._entries.get(backend)
        return tuple(entry.regulator.history) if entry else ()


def _report(words: str, error: Exception | None) -> None:
    _log.log(logging.WARNING if error is None else logging.ERROR, words, exc_info=error)
