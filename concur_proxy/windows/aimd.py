"""``aimd``: additive increase, multiplicative decrease on KV usage and hit rate (CONCUR, arXiv 2601.22705, Eq. 1)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from concur_proxy.model import Signals, TurnRecord
from concur_proxy.windows.base import Unit, Verdict, WindowView

FIRST_WINDOW = 16.0
"""Sessions, where neither capacity nor a typical footprint is known."""

SLACK = 0.9
"""Updates come a little before a full period has passed."""


class Aimd:
    """W += alpha if U < usage_low; W *= beta if U > usage_high and H < hit_rate_threshold; else W stays.

    U: KV usage (0..1, running requests only). H: hit rate of the interval (0..1). W: sessions.
    ``alpha`` sessions per period (> 0, default 2), ``beta`` (0..1, default 0.5), ``usage_low`` (0.2), ``usage_high``
    (0.5), ``hit_rate_threshold`` (0.2), ``period_s`` seconds (1).
    """

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
        self._changed_at = -math.inf
        self._hit_rate: float | None = None

    def start(self, *, capacity_tokens: float | None, typical_footprint_tokens: float | None) -> float:
        """Return capacity by typical footprint: what fits, before anything was seen."""
        if not capacity_tokens or not typical_footprint_tokens:
            return FIRST_WINDOW
        return max(1.0, capacity_tokens / typical_footprint_tokens)

    def observe(self, record: TurnRecord, *, now: float) -> None:
        pass

    def update(self, signals: Signals, view: WindowView, *, now: float) -> Verdict:
        if signals.hit_rate is not None:
            self._hit_rate = signals.hit_rate
        if now - self._changed_at < SLACK * self.period_s:
            return Verdict(view.window, "within its period")
        verdict = self._decide(signals.kv_usage, self._hit_rate, view.window)
        if verdict.window != view.window:
            self._changed_at = now
        return verdict

    def _decide(self, usage: float | None, hits: float | None, window: float) -> Verdict:
        if usage is None:
            return Verdict(window, "the engine tells no KV usage: the window stays")
        if usage < self.usage_low:
            return Verdict(window + self.alpha, f"KV usage {usage:.2f} is below {self.usage_low:g}: grow")
        if usage > self.usage_high and hits is not None and hits < self.hit_rate_threshold:
            reason = f"KV usage {usage:.2f} is above {self.usage_high:g} and the hit rate is only {hits:.2f}: cut"
            return Verdict(window * self.beta, reason)
        known = "unknown" if hits is None else f"{hits:.2f}"
        return Verdict(window, f"KV usage {usage:.2f}, hit rate {known}: the window stays")

    def snapshot(self) -> Mapping[str, object]:
        return {"hit_rate": self._hit_rate}
