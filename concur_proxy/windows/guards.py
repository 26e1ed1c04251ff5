"""What others paid for, as pieces that fit around any law.

A guard is a function of the law's verdict and of what is known; ``guarded`` puts them around a law.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace
from typing import Protocol

from concur_proxy.model import Signals
from concur_proxy.windows.base import Unit, Verdict, WindowView

SETTLE_S = 5.0
"""After the last of what a cut was to drive out has gone, until the signals show it."""

LONGEST_DRAIN_S = 30.0


class Guard(Protocol):
    """Changes a verdict, or lets it pass."""

    def guard(self, verdict: Verdict, signals: Signals, view: WindowView, *, now: float) -> Verdict: ...


class GrowWhileBound:
    """A window that holds nobody back does not grow: it would mean nothing once it does (invariant 5)."""

    def guard(self, verdict: Verdict, signals: Signals, view: WindowView, *, now: float) -> Verdict:  # noqa: ARG002
        if verdict.window <= view.window or view.bound or view.held:
            return verdict
        return replace(verdict, window=view.window, reason=f"{verdict.reason}; but it holds nobody back: it stays")


class StopAtPreemption:
    """An engine that throws out running requests has no room for more: no growth, and a hard limit, for this update.

    The size of a cut, if there is one, remains the law's business.
    """

    def guard(self, verdict: Verdict, signals: Signals, view: WindowView, *, now: float) -> Verdict:  # noqa: ARG002
        if not signals.preemptions:
            return verdict
        reason = f"{verdict.reason}; {signals.preemptions:.0f} preempted: no growth"
        return Verdict(min(verdict.window, view.window), reason, hard=True)


class Drain:
    """What was let in before a cut, until it is gone: what is seen meanwhile is an echo.

    It is gone ``SETTLE_S`` after the load has come down to the window; at the latest ``LONGEST_DRAIN_S`` after the
    cut, since with lazy pausing warm sessions may stay over the window for as long as they like.
    """

    __slots__ = ("_latest", "_quiet_until")

    def __init__(self) -> None:
        self._quiet_until = -math.inf
        self._latest = -math.inf

    def start(self, now: float) -> None:
        self._quiet_until, self._latest = now + SETTLE_S, now + LONGEST_DRAIN_S

    def goes_on(self, *, over: bool, now: float) -> bool:
        """Tell whether it is still under way; ``over``: the load exceeds the window in force."""
        if over:
            self._quiet_until = now + SETTLE_S
        return now < min(self._quiet_until, self._latest)


class OneCutPerDrain:
    """A law's second cut waits until what was active before the first has drained."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._drain = Drain()

    def guard(self, verdict: Verdict, signals: Signals, view: WindowView, *, now: float) -> Verdict:  # noqa: ARG002
        load = view.active if self._unit is Unit.SESSIONS else view.footprint_tokens
        draining = self._drain.goes_on(over=load > view.window, now=now)
        if verdict.window >= view.window:
            return verdict
        if draining:
            return replace(verdict, window=view.window, reason=f"{verdict.reason}; but the last cut has yet to drain")
        self._drain.start(now)
        return verdict


class WithinSlew:
    """Within any ``span_s`` seconds the window moves by no more than a factor, however often it is updated.

    An absurd sample moves it once, not to its end; a law's ordinary step, taken at once, is within it.
    """

    def __init__(self, *, factor: float = 4.0, span_s: float = 1.0) -> None:
        self._factor = factor
        self._span_s = span_s
        self._lately: deque[tuple[float, float]] = deque()
        """The updates within the span: when, and the window in force then."""

    def guard(self, verdict: Verdict, signals: Signals, view: WindowView, *, now: float) -> Verdict:  # noqa: ARG002
        while self._lately and now - self._lately[0][0] >= self._span_s:
            self._lately.popleft()
        if not math.isfinite(view.window):
            return verdict
        self._lately.append((now, view.window))
        if not math.isfinite(verdict.window):
            return verdict
        windows = [window for _, window in self._lately]
        # An operator's hand may have moved it further: a guard never moves a window by itself.
        lowest = min(max(windows) / self._factor, view.window)
        highest = max(min(windows) * self._factor, view.window)
        window = min(max(verdict.window, lowest), highest)
        return verdict if window == verdict.window else replace(verdict, window=window)
