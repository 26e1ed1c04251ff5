"""One backend's window: its law, what it goes by, and what has come of it. No I/O, no clock."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from concur_proxy.core.signals import SignalTracker
from concur_proxy.engines.base import EngineSample
from concur_proxy.model import BackendEvent, BackendId, Signals, TurnRecord
from concur_proxy.windows.base import Law, Learner, Unit, Verdict, WindowView

HISTORY_POINTS: Final = 3600
"""An hour at one update a second."""

Problem = Callable[[str, Exception | None], None]
"""Told what went wrong, in words, and the exception where there is one."""


class GatePort(Protocol):
    """The gate as its regulators see it: one that knows the time."""

    def view(self, backend: BackendId) -> WindowView: ...

    def resize(self, backend: BackendId, window: float, *, hard: bool = False) -> None: ...

    def set_unit(self, backend: BackendId, unit: Unit, window: float) -> None: ...

    def set_bounds(self, backend: BackendId, minimum: float, maximum: float) -> None: ...

    def set_capacity(self, backend: BackendId, tokens: float) -> None: ...

    def backend_event(self, backend: BackendId, event: BackendEvent) -> None: ...


class MakeLaw(Protocol):
    """Builds a fresh law between these bounds of its window."""

    def __call__(self, *, minimum: float, maximum: float) -> Law: ...


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of a window, in the law's unit."""

    minimum: float = 1.0
    maximum: float = math.inf


@dataclass(frozen=True, slots=True)
class Point:
    """One update of a window, for status pages and plots."""

    at: float
    window: float
    active: int
    running: int
    held: int
    kv_usage: float | None
    hit_rate: float | None
    reason: str


class Regulator:
    """Moves the window of one backend. ``update`` hands the law what is new since the update before."""

    __slots__ = (
        "_capacity_told",
        "_gate",
        "_law",
        "_on_problem",
        "_operator_window",
        "backend",
        "bounds",
        "capacity_hint",
        "history",
        "signals",
        "tracker",
        "verdict",
    )

    def __init__(
        self,
        backend: BackendId,
        gate: GatePort,
        make_law: MakeLaw,
        bounds: Bounds,
        *,
        capacity_hint: float | None,
        on_problem: Problem,
    ) -> None:
        self.backend = backend
        self.bounds = bounds
        self.capacity_hint = capacity_hint
        self.tracker = SignalTracker()
        self.history: deque[Point] = deque(maxlen=HISTORY_POINTS)
        self.signals = Signals(age_s=math.inf)
        """What the newest update went by."""
        self._gate = gate
        self._on_problem = on_problem
        self._capacity_told: float | None = None
        self._operator_window: float | None = None
        self._law = make_law(minimum=bounds.minimum, maximum=bounds.maximum)
        self.verdict = Verdict(self._first_window(), "first window")
        self._tell_capacity()
        gate.set_bounds(backend, bounds.minimum, bounds.maximum)
        gate.set_unit(backend, self._law.unit, self.verdict.window)

    @property
    def capacity(self) -> float | None:
        """KV tokens as the engine tells them, else as the operator does."""
        return self.tracker.capacity_tokens or self.capacity_hint

    @property
    def law(self) -> Law:
        return self._law

    @property
    def operator_window(self) -> float | None:
        """The window that an operator has set; None where the law decides."""
        return self._operator_window

    def sample(self, sample: EngineSample) -> None:
        """Take in a scrape, and tell the gate of a restart and of the capacity."""
        if self.tracker.sample(sample):
            self._on_problem(f"backend {self.backend} has restarted: its KV cache is empty", None)
            self._gate.backend_event(self.backend, BackendEvent.FLUSHED)
        if self._tell_capacity():
            self._start_anew()

    def record(self, record: TurnRecord, *, now: float) -> None:
        """Take in a finished turn."""
        self.tracker.record(record)
        try:
            self._law.observe(record, now=now)
        except Exception as error:  # noqa: BLE001
            self._on_problem(f"law {self._law.name} could not take in a turn", error)

    def update(self, *, now: float) -> None:
        """Let the law decide, and resize the gate's window by it."""
        view = self._gate.view(self.backend)
        self.signals = replace(self.tracker.take(now=now), capacity_tokens=self.capacity)
        self.verdict = self._bounded(self._decide(view, now))
        self._gate.resize(self.backend, self.verdict.window, hard=self.verdict.hard)
        self.history.append(
            Point(
                at=now,
                window=self.verdict.window,
                active=view.active,
                running=view.running,
                held=view.held,
                kv_usage=self.signals.kv_usage,
                hit_rate=self.signals.hit_rate,
                reason=self.verdict.reason,
            )
        )

    def set_law(self, make_law: MakeLaw) -> None:
        """Put another law, or this one with other parameters, in its place; sessions stay where they are."""
        learned = self.dump()
        old, self._law = self._law, make_law(minimum=self.bounds.minimum, maximum=self.bounds.maximum)
        if learned is not None:
            self.load(learned)
        view = self._gate.view(self.backend)
        keep = old.unit is self._law.unit and math.isfinite(view.window)
        window = view.window if keep else self._first_window(view.typical_footprint_tokens)
        if old.unit is not self._law.unit:
            self.verdict = Verdict(window, f"first window in {self._law.unit.value}")
        self._gate.set_unit(self.backend, self._law.unit, window)

    def dump(self) -> Mapping[str, object] | None:
        """Return what the law has learned here, for ``load`` after a restart; None where it learns nothing."""
        learned = self._law.dump() if isinstance(self._law, Learner) else None
        return {"law": self._law.name, "learned": learned} if learned else None

    def load(self, state: Mapping[str, Any]) -> None:
        """Let the law take over what ``dump`` gave, if it is the same law; what is wrong with it is a problem told."""
        if state.get("law") != self._law.name or not isinstance(self._law, Learner):
            return
        try:
            self._law.load(state.get("learned") or {})
        except ValueError as error:
            self._on_problem(f"what {self._law.name} had learned of {self.backend} is ignored: {error}", None)

    def set_bounds(self, bounds: Bounds) -> None:
        """Change the bounds; the next update brings the window between them."""
        self.bounds = bounds
        self._gate.set_bounds(self.backend, bounds.minimum, bounds.maximum)

    def set_window(self, window: float | None) -> None:
        """Set the window by hand, None to leave it to the law again; the law goes on learning meanwhile."""
        self._operator_window = window

    def law_snapshot(self) -> Mapping[str, object]:
        return {"name": self._law.name, "unit": self._law.unit.value, **self._law.snapshot()}

    def _first_window(self, typical_footprint_tokens: float | None = None) -> float:
        window = self._law.start(capacity_tokens=self.capacity, typical_footprint_tokens=typical_footprint_tokens)
        return min(max(window, self.bounds.minimum), self.bounds.maximum)

    def _start_anew(self) -> None:
        """Choose the first window again, now with the capacity, unless there is something to go by already."""
        view = self._gate.view(self.backend)
        if view.active == 0:
            self._gate.set_unit(self.backend, self._law.unit, self._first_window(view.typical_footprint_tokens))

    def _tell_capacity(self) -> bool:
        """Tell the gate a capacity that is new; return whether it was."""
        capacity = self.capacity
        if capacity is None or capacity == self._capacity_told:
            return False
        self._capacity_told = capacity
        self._gate.set_capacity(self.backend, capacity)
        return True

    def _decide(self, view: WindowView, now: float) -> Verdict:
        try:
            verdict = self._law.update(self.signals, view, now=now)
        except Exception as error:  # noqa: BLE001
            # A law that fails must not stop the dispatch; its window stays.
            self._on_problem(f"law {self._law.name} failed", error)
            verdict = Verdict(view.window, f"the law {self._law.name} failed: the window stays")
        if self._operator_window is not None:
            return Verdict(self._operator_window, "set by the operator", hard=True)
        return verdict

    def _bounded(self, verdict: Verdict) -> Verdict:
        """Keep the window between the bounds; where the operator's cap is what limits, it is a hard limit."""
        window = min(max(verdict.window, self.bounds.minimum), self.bounds.maximum)
        if math.isfinite(self.bounds.maximum) and window >= self.bounds.maximum:
            return Verdict(window, f"{verdict.reason}; at the upper bound", hard=True)
        return replace(verdict, window=window)
