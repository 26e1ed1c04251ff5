"""A law in its guards, between bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from concur_proxy.model import Signals, TurnRecord
from concur_proxy.windows.base import Law, Learner, Verdict, WindowView
from concur_proxy.windows.freshness import without_gauges
from concur_proxy.windows.guards import Guard


class Guarded:
    """Itself a law: the inner law's verdict passed through its guards in order, then kept between the bounds.

    The inner law does not see the gauges of a sample older than ``stale_after_s``.
    """

    def __init__(self, law: Law, guards: Sequence[Guard] = (), *, stale_after_s: float = math.inf) -> None:
        self._law = law
        self._guards = tuple(guards)
        self._stale_after_s = stale_after_s
        self.name = law.name
        self.unit = law.unit

    def start(self, *, capacity_tokens: float | None, typical_footprint_tokens: float | None) -> float:
        return self._law.start(capacity_tokens=capacity_tokens, typical_footprint_tokens=typical_footprint_tokens)

    def observe(self, record: TurnRecord, *, now: float) -> None:
        self._law.observe(record, now=now)

    def update(self, signals: Signals, view: WindowView, *, now: float) -> Verdict:
        stale = signals.age_s > self._stale_after_s
        verdict = self._law.update(without_gauges(signals) if stale else signals, view, now=now)
        for guard in self._guards:
            verdict = guard.guard(verdict, signals, view, now=now)
        return replace(verdict, window=min(max(verdict.window, view.minimum), view.maximum))

    def dump(self) -> Mapping[str, object]:
        """Return what the inner law has learned; nothing where it does not learn."""
        return self._law.dump() if isinstance(self._law, Learner) else {}

    def load(self, state: Mapping[str, object]) -> None:
        """Let the inner law take over what ``dump`` gave; ValueError where it cannot."""
        if isinstance(self._law, Learner):
            self._law.load(state)

    def snapshot(self) -> Mapping[str, object]:
        return self._law.snapshot()
