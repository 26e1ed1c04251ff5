"""Guards for an engine that says itself that it is full: 429, 503 or 529 (invariant 7)."""

from __future__ import annotations

import math
from dataclasses import replace

from concur_proxy.model import Signals
from concur_proxy.windows.base import Unit, Verdict, WindowView
from concur_proxy.windows.guards import Drain


class CutOnRejection:
    """The engine's own 429, 503 or 529 says that it is full: the window goes below what it runs (invariant 7).

    The limit is hard, and does not grow, for ``hard_s`` seconds from the newest refusal on. A burst of refusals is one
    piece of news: the next cut comes when the turns over the window have ended and there are refusals still.
    """

    def __init__(self, unit: Unit, *, factor: float = 0.9, hard_s: float = 5.0) -> None:
        self._unit = unit
        self._factor = factor
        self._hard_s = hard_s
        self._refused_at = -math.inf
        self._drain = Drain()

    def guard(self, verdict: Verdict, signals: Signals, view: WindowView, *, now: float) -> Verdict:
        in_use = max(view.running, 1) if self._unit is Unit.SESSIONS else view.footprint_tokens
        draining = self._drain.goes_on(over=in_use > view.window, now=now)
        if signals.rejections:
            self._refused_at = now
            if not draining:
                self._drain.start(now)
                window = min(verdict.window, view.window, in_use) * self._factor
                return Verdict(window, f"the engine refused {signals.rejections:.0f}: cut", hard=True)
        if now - self._refused_at >= self._hard_s:
            return verdict
        reason = f"{verdict.reason}; the engine has refused turns {now - self._refused_at:.0f} s ago: no growth"
        return Verdict(min(verdict.window, view.window), reason, hard=True)


class TaperAfterRefusal:
    """A window that a refusal has cut comes back the more slowly the nearer it is to where the engine refused.

    For ``memory_s`` seconds after the newest refusal it goes, in a second, at most ``share`` of the way that is left.
    """

    def __init__(self, *, share: float = 0.05, memory_s: float = 60.0) -> None:
        self._share = share
        self._memory_s = memory_s
        self._ceiling = math.inf
        self._refused_at = -math.inf
        self._asked_at = math.inf

    def guard(self, verdict: Verdict, signals: Signals, view: WindowView, *, now: float) -> Verdict:
        elapsed, self._asked_at = max(0.0, now - self._asked_at), now
        if signals.rejections:
            self._refused_at = now
            if verdict.window < view.window:
                self._ceiling = view.window
        if now - self._refused_at >= self._memory_s or not math.isfinite(self._ceiling):
            return verdict
        left = max(0.0, self._ceiling - view.window)
        highest = view.window - left * math.expm1(-self._share * elapsed)
        if verdict.window <= highest:
            return verdict
        reason = f"{verdict.reason}; but the engine has refused at {self._ceiling:.0f}: slowly"
        return replace(verdict, window=highest, reason=reason)
