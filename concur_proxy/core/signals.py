"""Turns engine samples and finished turns into ``Signals``: what one backend looks like now.

Rules:
- Deltas are handed out once. ``take`` covers everything since the ``take`` before, however many samples lie between,
  so a law never sees the same preemption twice and none is lost; without a new sample they are unknown.
- A counter that went back, or another start time, is a restart of the engine: nothing is known about that interval.
- A counter that was never on the page before has been born since, at zero: client libraries print labelled counters
  only after their first increment. That needs other counters on the earlier page; without them nothing is known.
- Refusals are counted as the proxy saw them, at once; those that only the engine's counter knows of (other clients)
  come on top.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from concur_proxy.engines.base import COUNTERS, EngineSample
from concur_proxy.model import Signals, TurnRecord


class SignalTracker:
    """Keeps what is needed to tell one backend's ``Signals``."""

    __slots__ = (
        "_cached_tokens",
        "_capacity",
        "_counters",
        "_deltas",
        "_engine_refusals",
        "_foreign_refusals",
        "_latest",
        "_own_refusals",
        "_prompt_tokens",
        "_refusals_told",
        "_span_s",
    )

    def __init__(self) -> None:
        self._latest: EngineSample | None = None
        self._capacity: float | None = None
        self._counters: dict[str, float] = {}
        self._own_refusals = 0.0
        self._engine_refusals = 0.0
        self._foreign_refusals = 0.0
        self._refusals_told = 0.0
        self._forget_interval()

    @property
    def latest(self) -> EngineSample | None:
        """The newest sample, as the engine gave it."""
        return self._latest

    @property
    def capacity_tokens(self) -> float | None:
        """KV cache capacity, as some sample has told it."""
        return self._capacity

    def sample(self, sample: EngineSample) -> bool:
        """Take in a scrape, in order of time; return True where the engine has restarted since the one before."""
        previous = self._latest
        if previous is not None and sample.at <= previous.at:
            return False
        self._latest = sample
        if sample.capacity_tokens is not None:
            self._capacity = sample.capacity_tokens
        known, self._counters = self._counters, {**self._counters, **_counters(sample)}
        if previous is None:
            return False
        if _restarted(previous, sample, known):
            self._counters = _counters(sample)
            self._forget_interval()
            return True
        self._span_s += sample.at - previous.at
        if known:
            self._grow(_counters(sample), known)
        return False

    def _grow(self, counters: Mapping[str, float], known: Mapping[str, float]) -> None:
        for name, value in counters.items():
            delta = value - known.get(name, 0.0)
            self._deltas[name] = self._deltas.get(name, 0.0) + delta
            if name == "rejections":
                self._engine_refusals += delta
                self._foreign_refusals = max(self._foreign_refusals, self._engine_refusals - self._own_refusals)

    def record(self, record: TurnRecord) -> None:
        """Take in a finished turn: its cached tokens stand in for hit counters that the engine does not have."""
        usage = record.usage
        if usage is not None and usage.cached_tokens is not None:
            self._prompt_tokens += usage.prompt_tokens
            self._cached_tokens += min(usage.cached_tokens, usage.prompt_tokens)

    def refused(self) -> None:
        """The engine has refused a turn of ours (429, 503 or 529)."""
        self._own_refusals += 1

    def take(self, *, now: float) -> Signals:
        """Return the signals with everything since the last ``take``, and start the next interval."""
        signals = self.peek(now=now)
        self._refusals_told = self._own_refusals + self._foreign_refusals
        self._forget_interval()
        return signals

    def peek(self, *, now: float) -> Signals:
        """Return what ``take`` would, and leave the interval as it is."""
        latest = self._latest or EngineSample(at=-math.inf)
        deltas = self._deltas
        return Signals(
            age_s=now - latest.at,
            interval_s=self._span_s or None,
            running=latest.running,
            waiting=latest.waiting,
            kv_usage=latest.kv_usage_max,
            hit_rate=self._hit_rate(),
            evictable_tokens=latest.evictable_tokens,
            preemptions=deltas.get("preemptions"),
            requests=deltas.get("requests_finished"),
            rejections=self._own_refusals + self._foreign_refusals - self._refusals_told,
            prompt_tokens=deltas.get("prompt_tokens"),
            generation_tokens=deltas.get("generation_tokens"),
            steps=deltas.get("steps"),
            scheduled_tokens=deltas.get("scheduled_tokens"),
            capacity_tokens=self._capacity,
        )

    def _hit_rate(self) -> float | None:
        queries, hits = self._deltas.get("prefix_queries"), self._deltas.get("prefix_hits")
        if queries is None or hits is None:
            queries, hits = self._prompt_tokens, self._cached_tokens
        return min(hits / queries, 1.0) if queries > 0 else None

    def _forget_interval(self) -> None:
        self._deltas: dict[str, float] = {}
        self._span_s = 0.0
        self._prompt_tokens = 0.0
        self._cached_tokens = 0.0


def _counters(sample: EngineSample) -> dict[str, float]:
    values = ((name, getattr(sample, name)) for name in COUNTERS)
    return {name: value for name, value in values if value is not None}


def _restarted(previous: EngineSample, sample: EngineSample, known: Mapping[str, float]) -> bool:
    if None not in (previous.started_at, sample.started_at) and previous.started_at != sample.started_at:
        return True
    return any(value < known.get(name, 0.0) for name, value in _counters(sample).items())
