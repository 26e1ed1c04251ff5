"""What becomes of a window when nobody tells how the engine does (invariants 5 and 6)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from concur_proxy.model import Signals
from concur_proxy.windows.base import Verdict, WindowView

StartValue = Callable[[Signals, WindowView], float]
"""The warm start of a law, as things are now."""

DECAY_RATE = 0.05
"""Share of the way back to the warm start, per second."""


class FreshOnly:
    """A stale signal never stops dispatch: the window freezes, then goes back to its warm start.

    News is an engine sample, or an answer that told its cached tokens. Fresh turn records alone permit growth (cold
    start, engines without metrics), also on the way back; where they are old, too, the window only comes down.
    """

    def __init__(self, start: StartValue, *, stale_after_s: float, decay_after_s: float) -> None:
        self._start = start
        self._stale_after_s = stale_after_s
        self._decay_after_s = decay_after_s
        self._told_at = -math.inf
        self._asked_at = math.inf

    def guard(self, verdict: Verdict, signals: Signals, view: WindowView, *, now: float) -> Verdict:
        elapsed, self._asked_at = max(0.0, now - self._asked_at), now
        if signals.hit_rate is not None:
            self._told_at = now
        age = min(signals.age_s, now - self._told_at)
        if age <= self._stale_after_s:
            return verdict
        may_grow = view.records_age_s <= self._stale_after_s
        if may_grow and verdict.window > view.window:
            return verdict
        start = self._start(signals, view)
        decays_for = min(elapsed, age - self._decay_after_s)
        if decays_for < 0 or not (math.isfinite(view.window) and math.isfinite(start)):
            return Verdict(view.window, f"{_words(age)}: the window is frozen")
        window = view.window - (start - view.window) * math.expm1(-DECAY_RATE * decays_for)
        reason = f"{_words(age)}: the window goes back to {start:.0f}"
        return Verdict(window if may_grow else min(window, view.window), reason)


def _words(age_s: float) -> str:
    return f"no fresh signals for {age_s:.0f} s" if math.isfinite(age_s) else "no signals yet"


def without_gauges(signals: Signals) -> Signals:
    """Return signals whose engine sample is too old to act on: what it said of the moment is unknown."""
    return replace(signals, running=None, waiting=None, kv_usage=None, evictable_tokens=None)
