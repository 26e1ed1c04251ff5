"""``eviction``: the congestion signal C of KV usage and evictions, as the practitioners' account of CONCUR gives it.

    C = U * (1 + E / N)                 with ``product``: C = U * E / N
    W += alpha                          if C < threshold
    W = max(int(W * beta), window_low)  else
    W <= window_high

U: KV usage (0..1). E and N: evictions and finished requests since the last change. W: sessions.

What an engine calls an eviction is a running request that it threw out of its KV cache: ``vllm:num_preemptions`` and
``sglang:num_retracted_requests``; N is ``vllm:request_success`` and ``sglang:num_requests``. Contexts of idle agents
that are dropped from the prefix cache are in none of these, and U leaves them out as well: the law sees the congestion
of running requests only. Where an engine does not count its preemptions, U alone is C; with ``product`` the window
stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from concur_proxy.model import Signals, TurnRecord
from concur_proxy.windows.base import Unit, Verdict, WindowView
from concur_proxy.windows.pace import Pace


class Eviction:
    """``alpha`` sessions per ``period_s`` seconds (> 0), ``beta`` a factor (0..1), ``threshold`` of C (> 0).

    ``window_low``, ``window_high`` and ``window_start`` in sessions, 1 or more.
    """

    name: ClassVar[str] = "eviction"
    unit: ClassVar[Unit] = Unit.SESSIONS

    def __init__(
        self,
        *,
        alpha: float = 2.0,
        beta: float = 0.8,
        threshold: float = 0.75,
        product: bool = False,
        window_low: float = 8.0,
        window_high: float = 256.0,
        window_start: float = 32.0,
        period_s: float = 1.0,
    ) -> None:
        self.alpha = alpha
        self.beta = beta
        self.threshold = threshold
        self.product = product
        self.window_low = window_low
        self.window_high = window_high
        self.window_start = window_start
        self._pace = Pace(period_s)
        self._congestion: float | None = None
        self._evictions: float | None = None
        self._requests = 0.0

    def start(self, *, capacity_tokens: float | None, typical_footprint_tokens: float | None) -> float:  # noqa: ARG002
        return self.window_start

    def observe(self, record: TurnRecord, *, now: float) -> None:
        pass

    def update(self, signals: Signals, view: WindowView, *, now: float) -> Verdict:
        self._count(signals)
        if self._pace.rests(view.window, now=now):
            return Verdict(view.window, "within its period")
        if signals.kv_usage is None:
            return Verdict(view.window, "KV usage is unknown: the window stays")
        if signals.interval_s is None:
            return Verdict(view.window, "no new sample")
        ratio = self._evictions_per_request()
        self._forget()
        return self._step(signals.kv_usage, ratio, view.window)

    def _step(self, usage: float, ratio: float | None, window: float) -> Verdict:
        if ratio is None and self.product:
            return Verdict(window, "the engine does not count its preemptions: the window stays")
        self._congestion = congestion = usage * ((ratio or 0.0) + (0.0 if self.product else 1.0))
        said = f"KV usage {usage:.2f}, {'unknown' if ratio is None else f'{ratio:.2f}'} evictions per request"
        if congestion < self.threshold:
            grown = min(window + self.alpha, self.window_high)
            return Verdict(grown, f"{said}: congestion {congestion:.2f} is below {self.threshold:g}: grow")
        # Refusals may have taken the window below its low end; congestion must not take it up there.
        cut = min(window, max(float(int(window * self.beta)), self.window_low), self.window_high)
        return Verdict(cut, f"{said}: congestion {congestion:.2f} is not below {self.threshold:g}: cut")

    # evictions per request

    def _count(self, signals: Signals) -> None:
        self._requests += signals.requests or 0.0
        if signals.preemptions is not None:
            self._evictions = (self._evictions or 0.0) + signals.preemptions

    def _evictions_per_request(self) -> float | None:
        return None if self._evictions is None else self._evictions / max(self._requests, 1.0)

    def _forget(self) -> None:
        self._evictions, self._requests = None, 0.0

    def snapshot(self) -> Mapping[str, object]:
        return {"congestion": self._congestion, "threshold": self.threshold}
