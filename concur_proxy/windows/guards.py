"""What others paid for, as pieces that fit around any law.

A guard is a function of the law's verdict and of what is known; ``Guarded`` is a law itself: the inner law's verdict
passed through its guards in order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from concur_proxy.model import Signals, TurnRecord
from concur_proxy.windows.base import Law, Verdict, WindowView

StartValue = Callable[[Signals, WindowView], float]
"""The warm start of a law, as things are now."""


class Guard(Protocol):
    """Changes a verdict, or lets it pass."""

    def guard(self, verdict: Verdict, signals: Signals, view: WindowView, *, now: float) -> Verdict: ...


class GrowWhileBound:
    """A window that holds nobody back does not grow: it would mean nothing once it does (invariant 5)."""

    def guard(self, verdict: Verdict, signals: Signals, view: WindowView, *, now: float) -> Verdict:  # noqa: ARG002
        if verdict.window <= view.window or view.bound or view.held:
            return verdict
        return replace(verdict, window=view.window, reason=f"{verdict.reason}; but it holds nobody back: it stays")


class OneCutPerDrain:
    """After a cut, congestion is the echo of what was admitted before it, until that has drained.

    It has drained ``settle_s`` after no more is active than the cut allows; at the latest ``longest_s`` after the cut,
    since with lazy pausing warm sessions may stay over the window for as long as they like.
    """

    def __init__(self, *, settle_s: float = 5.0, longest_s: float = 30.0) -> None:
        self._settle_s = settle_s
        self._longest_s = longest_s
        self._quiet_until = -math.inf
        self._latest = -math.inf

    def guard(self, verdict: Verdict, signals: Signals, view: WindowView, *, now: float) -> Verdict:  # noqa: ARG002
        if view.active > view.window and now < self._latest:
            self._quiet_until = now + self._settle_s
        if verdict.window >= view.window:
            return verdict
        if now < min(self._quiet_until, self._latest):
            return replace(verdict, window=view.window, reason=f"{verdict.reason}; but the last cut has yet to drain")
        self._quiet_until, self._latest = now + self._settle_s, now + self._longest_s
        return verdict


class WithinSlew:
    """No step larger than a factor: an absurd sample moves the window once, not to its end."""

    def __init__(self, *, factor: float = 4.0) -> None:
        self._factor = factor

    def guard(self, verdict: Verdict, signals: Signals, view: WindowView, *, now: float) -> Verdict:  # noqa: ARG002
        if not (math.isfinite(verdict.window) and math.isfinite(view.window)):
            return verdict
        window = min(max(verdict.window, view.window / self._factor), view.window * self._factor)
        return verdict if window == verdict.window else replace(verdict, window=window)


class FreshOnly:
    """A stale signal never stops dispatch: the window freezes, then decays to its warm start (invariant 6).

    Fresh turn records alone permit growth: cold start, engines without metrics.
    """

    def __init__(self, start: StartValue, *, stale_after_s: float, decay_after_s: float, rate: float = 0.05) -> None:
        self._start = start
        self._stale_after_s = stale_after_s
        self._decay_after_s = decay_after_s
        self._rate = rate

    def guard(self, verdict: Verdict, signals: Signals, view: WindowView, *, now: float) -> Verdict:  # noqa: ARG002
        if signals.age_s <= self._stale_after_s:
            return verdict
        if view.records_age_s <= self._stale_after_s and verdict.window > view.window:
            return verdict
        start = self._start(signals, view)
        if signals.age_s <= self._decay_after_s or not math.isfinite(view.window) or not math.isfinite(start):
            return Verdict(view.window, f"no fresh metrics for {signals.age_s:.0f} s: the window is frozen")
        window = view.window + self._rate * (start - view.window)
        return Verdict(window, f"no fresh metrics for {signals.age_s:.0f} s: the window goes back to {start:.0f}")


class Guarded:
    """A law in its guards, between bounds; itself a law."""

    def __init__(self, law: Law, guards: Sequence[Guard]) -> None:
        self._law = law
        self._guards = tuple(guards)
        self.name = law.name
        self.unit = law.unit

    def start(self, *, capacity_tokens: float | None, typical_footprint_tokens: float | None) -> float:
        return self._law.start(capacity_tokens=capacity_tokens, typical_footprint_tokens=typical_footprint_tokens)

    def observe(self, record: TurnRecord, *, now: float) -> None:
        self._law.observe(record, now=now)

    def update(self, signals: Signals, view: WindowView, *, now: float) -> Verdict:
        verdict = self._law.update(signals, view, now=now)
        for guard in self._guards:
            verdict = guard.guard(verdict, signals, view, now=now)
        return replace(verdict, window=min(max(verdict.window, view.minimum), view.maximum))

    def snapshot(self) -> Mapping[str, object]:
        return self._law.snapshot()
