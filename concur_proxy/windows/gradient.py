"""``gradient``: the window follows the ratio of long-term to present latency (Gradient2, Netflix concurrency-limits).

    g = clamp(tolerance * long / short, 0.5, 1)
    W = W * g + headroom                           once per period

W: sessions. ``short``: seconds to the first token per prompt token that was not cached, over the turns since the last
step (sums divided, so that large prompts weigh most); ``long``: its exponential mean over ``long_s``. Per uncached
token, since the time to a first token says how long the prompt was before it says anything of the load. Where long is
more than twice short, it falls by a tenth in each step: the load is gone (as in Gradient2).

Goes by the records of streamed turns, from admission on. Where answers do not tell their cached tokens (vLLM without
``--enable-prompt-tokens-details``) the engine's hit rate stands for them; where that is unknown, too, the window stays.
Gradient2 smooths the window by 0.2 on top, since it steps with every sample; here one cut per drain does that work.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from concur_proxy.model import Signals, TurnRecord
from concur_proxy.windows.base import Unit, Verdict, WindowView
from concur_proxy.windows.latency import TokenLatency
from concur_proxy.windows.pace import SLACK
from concur_proxy.windows.warm import what_fits

LEAST_GRADIENT = 0.5
SURPLUS = 2.0
"""Times short: a long-term latency above it is one of a load that is gone."""

FALL = 0.9
FIRST_STEPS = 10
"""Samples of the beginning weigh alike in the long-term latency."""


class Gradient:
    """``tolerance`` a factor (1 or more); ``headroom`` sessions per period (> 0); ``long_s``, ``period_s`` seconds."""

    name: ClassVar[str] = "gradient"
    unit: ClassVar[Unit] = Unit.SESSIONS

    def __init__(
        self, *, tolerance: float = 1.5, headroom: float = 4.0, long_s: float = 600.0, period_s: float = 1.0
    ) -> None:
        self.tolerance = tolerance
        self.headroom = headroom
        self.long_s = long_s
        self.period_s = period_s
        self._latency = TokenLatency()
        self._short: float | None = None
        self._long: float | None = None
        self._steps = 0
        self._stepped_at = -math.inf

    def start(self, *, capacity_tokens: float | None, typical_footprint_tokens: float | None) -> float:
        return what_fits(capacity_tokens, typical_footprint_tokens)

    def observe(self, record: TurnRecord, *, now: float) -> None:
        self._latency.add(record, now=now)

    def update(self, signals: Signals, view: WindowView, *, now: float) -> Verdict:
        self._latency.note_hit_rate(signals.hit_rate)
        if now - self._stepped_at < SLACK * self.period_s:
            return Verdict(view.window, "within its period")
        short = self._latency.take(now=now)
        if short is None:
            return Verdict(view.window, "too few turns have told their first token and cached tokens: it stays")
        return self._step(short, view.window, now)

    def _step(self, short: float, window: float, now: float) -> Verdict:
        long = self._learn(short, now)
        gradient = min(max(self.tolerance * long / short, LEAST_GRADIENT), 1.0)
        times = f"{1000 * short:.3g} ms per uncached token now, {1000 * long:.3g} in the long term"
        return Verdict(window * gradient + self.headroom, f"{times}: gradient {gradient:.2f}")

    def _learn(self, short: float, now: float) -> float:
        """Take a sample into the long-term latency and return that."""
        self._steps += 1
        weight = 1.0 / self._steps
        if self._steps > FIRST_STEPS:
            weight = 1.0 - math.exp(-(now - self._stepped_at) / self.long_s)
        long = short if self._long is None else self._long + weight * (short - self._long)
        self._short, self._stepped_at = short, now
        self._long = long * FALL if long > SURPLUS * short else long
        return long

    def snapshot(self) -> Mapping[str, object]:
        return {"short_s_per_token": self._short, "long_s_per_token": self._long}
