"""What an engine says about itself at one moment, and the rules that hold for every engine's metrics.

Series of several data-parallel engines are summed; of tensor, pipeline and expert ranks, which all report the same,
one is taken; of SGLang's per-priority series the one for all priorities; NaN and infinity are unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from concur_proxy.engines.exposition import Labels, Page

_RANKS = ("tp_rank", "pp_rank", "moe_ep_rank")


@dataclass(frozen=True, slots=True)
class EngineSample:
    """One scrape. None is unknown, never zero. Counters run from the engine's start."""

    at: float
    """When the engine was asked."""
    running: float | None = None
    waiting: float | None = None
    kv_usage_max: float | None = None
    """0..1, of the fullest KV pool behind the target: what the brake goes by."""
    kv_usage_mean: float | None = None
    """0..1, weighted by capacity: for display."""
    prompt_tokens: float | None = None
    generation_tokens: float | None = None
    prefix_queries: float | None = None
    """Counter of prompt tokens that were looked up in the prefix cache."""
    prefix_hits: float | None = None
    """Counter of those that need no prefill."""
    preemptions: float | None = None
    requests_finished: float | None = None
    steps: float | None = None
    """Counter of forward passes."""
    scheduled_tokens: float | None = None
    """Counter of tokens that went through them: prefilled and decoded."""
    rejections: float | None = None
    """Counter of requests that the engine refused because it was full."""
    evictable_tokens: float | None = None
    capacity_tokens: float | None = None
    block_size: int | None = None
    asleep: bool | None = None
    """Weights or KV cache are put away: it must get no turns."""
    started_at: float | None = None
    """When its process started, by the engine's own clock: changes with every restart."""


COUNTERS = (
    "prompt_tokens",
    "generation_tokens",
    "prefix_queries",
    "prefix_hits",
    "preemptions",
    "requests_finished",
    "steps",
    "scheduled_tokens",
    "rejections",
)
"""The fields of a sample that never go back while the engine lives."""


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine kind: how its metrics are recognised, found and read."""

    kind: str
    prefixes: tuple[str, ...] = ()
    """Any series that starts with one of these gives the kind away."""
    metrics_path: str | None = "/metrics"
    read: Callable[[Page, float], EngineSample] | None = None
    """Page and time to sample; None for engines without metrics."""
    enable_hint: str = ""
    """What an operator does when the metrics are missing."""


@dataclass(frozen=True, slots=True)
class Reading:
    value: float
    labels: Labels

    @property
    def pool(self) -> str:
        """The data-parallel engine, which has a KV pool of its own; not every series of an engine names the model."""
        return self.labels.get("engine", self.labels.get("dp_rank", ""))


def readings(page: Page, *names: str) -> list[Reading]:
    """Return the series of the first of ``names`` that the page has, newest name first, one for all ranks."""
    for name in names:
        if found := [Reading(series.value, series.labels) for series in page.get(name)]:
            return _one_rank(_all_priorities(found))
    return []


def total(page: Page, *names: str) -> float | None:
    """Return the sum over all engines of a target, or None where any part of it is unknown."""
    values = [reading.value for reading in readings(page, *names)]
    return sum(values) if values and all(map(math.isfinite, values)) else None


def counter(page: Page, *names: str) -> float | None:
    """Return the sum of a counter; on the wire its name carries ``_total``, but not with every client library."""
    return total(page, *(variant for name in names for variant in (f"{name}_total", name)))


def add(*parts: float | None) -> float | None:
    """Return the sum of the parts that are known, None where none is."""
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


def usage(found: Iterable[Reading], capacity: Mapping[str, float]) -> tuple[float | None, float | None]:
    """Return the highest KV usage and the mean weighted by ``capacity``; pools of unknown size count alike."""
    known = [(min(max(reading.value, 0.0), 1.0), reading.pool) for reading in found if math.isfinite(reading.value)]
    if not known:
        return None, None
    sized = all(capacity.get(pool, 0.0) > 0 for _, pool in known)
    weights = [capacity[pool] if sized else 1.0 for _, pool in known]
    mean = sum((value * weight for (value, _), weight in zip(known, weights, strict=True)), 0.0) / sum(weights)
    return max(value for value, _ in known), mean


def _one_rank(found: list[Reading]) -> list[Reading]:
    lowest: dict[tuple[tuple[str, str], ...], Reading] = {}
    for reading in sorted(found, key=lambda reading: [reading.labels.get(rank, "").zfill(6) for rank in _RANKS]):
        rest = tuple(sorted(item for item in reading.labels.items() if item[0] not in _RANKS))
        lowest.setdefault(rest, reading)
    return list(lowest.values())


def _all_priorities(found: list[Reading]) -> list[Reading]:
    """Leave out per-priority series where one for all of them stands beside."""
    overall = [reading for reading in found if not reading.labels.get("priority")]
    return overall or found
