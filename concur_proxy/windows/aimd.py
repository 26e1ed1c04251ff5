"""``aimd``: additive increase, multiplicative decrease on KV usage and hit rate (CONCUR, arXiv 2601.22705, Eq. 1).

    W += alpha   if U < usage_low
    W *= beta    if U > usage_high and H < hit_rate_threshold
    W stays      else

U: KV usage (0..1, running requests only). H: hit rate of the interval (0..1). W: sessions. A sample is acted on once.

Where U is unknown (an engine without metrics, or none fresh), H of turns that continue a session (``reuse``) says what
there is to say:

    W *= beta    if H < hit_rate_threshold
    W += alpha   if H >= GOOD_HIT_RATE
    W stays      else, and where answers do not tell their cached tokens
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from concur_proxy.model import Signals, TurnRecord
from concur_proxy.windows.base import Unit, Verdict, WindowView
from concur_proxy.windows.pace import Pace
from concur_proxy.windows.reuse import Reuse
from concur_proxy.windows.warm import what_fits

GOOD_HIT_RATE = 0.5

MEMORY_PERIODS = 10.0
"""How long a hit rate counts when no prompt is processed any more."""


class Aimd:
    """``alpha`` sessions per period (> 0), ``beta`` (0..1), ``period_s`` seconds; the others are shares (0..1)."""

    name: ClassVar[str] = "aimd"
    unit: ClassVar[Unit] = Unit.SESSIONS

    def __init__(
        self,
        *,
        alpha: float = 2.0,
        beta: float = 0.5,
        usage_low: float = 0.2,
        usage_high: float = 0.5,
        hit_rate_threshold: float = 0.2,
        period_s: float = 1.0,
    ) -> None:
        self.alpha = alpha
        self.beta = beta
        self.usage_low = usage_low
        self.usage_high = usage_high
        self.hit_rate_threshold = hit_rate_threshold
        self.period_s = period_s
        self._pace = Pace(period_s)
        self._hit_rate: float | None = None
        self._hit_rate_at = -math.inf
        self._reuse = Reuse()

    def start(self, *, capacity_tokens: float | None, typical_footprint_tokens: float | None) -> float:
        return what_fits(capacity_tokens, typical_footprint_tokens)

    def observe(self, record: TurnRecord, *, now: float) -> None:
        self._reuse.add(record, now=now)

    def update(self, signals: Signals, view: WindowView, *, now: float) -> Verdict:
        self._note_hit_rate(signals.hit_rate, now)
        if self._pace.rests(view.window, now=now):
            return Verdict(view.window, "within its period")
        if signals.kv_usage is None:
            return self._by_reuse(view.window, now)
        self._reuse.forget()
        if signals.interval_s is None:
            return Verdict(view.window, "no new sample")
        return self._by_usage(signals.kv_usage, view.window)

    def _note_hit_rate(self, hit_rate: float | None, now: float) -> None:
        if hit_rate is not None:
            self._hit_rate, self._hit_rate_at = hit_rate, now
        elif now - self._hit_rate_at > MEMORY_PERIODS * self.period_s:
            self._hit_rate = None

    def _by_usage(self, usage: float, window: float) -> Verdict:
        hits = self._hit_rate
        if usage < self.usage_low:
            return Verdict(window + self.alpha, f"KV usage {usage:.2f} is below {self.usage_low:g}: grow")
        if usage > self.usage_high and hits is not None and hits < self.hit_rate_threshold:
            reason = f"KV usage {usage:.2f} is above {self.usage_high:g} and the hit rate is only {hits:.2f}: cut"
            return Verdict(window * self.beta, reason)
        known = "unknown" if hits is None else f"{hits:.2f}"
        return Verdict(window, f"KV usage {usage:.2f}, hit rate {known}: the window stays")

    def _by_reuse(self, window: float, now: float) -> Verdict:
        hits = self._reuse.hit_rate(now=now)
        if hits is None:
            return Verdict(window, "neither KV usage nor hit rate is known: the window stays")
        self._reuse.forget()
        if hits < self.hit_rate_threshold:
            return Verdict(window * self.beta, f"KV usage unknown, agents find only {hits:.2f} cached: cut")
        if hits >= GOOD_HIT_RATE:
            return Verdict(window + self.alpha, f"KV usage unknown, agents find {hits:.2f} cached: grow")
        return Verdict(window, f"KV usage unknown, agents find {hits:.2f} cached: the window stays")

    def snapshot(self) -> Mapping[str, object]:
        return {"hit_rate": self._hit_rate}
