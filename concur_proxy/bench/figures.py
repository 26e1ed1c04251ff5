"""Statistics of a run, pure: quantiles, and how evenly something is shared out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean


@dataclass(frozen=True, slots=True)
class Spread:
    """What many times amount to, in seconds."""

    mean_s: float
    p50_s: float
    p95_s: float
    p99_s: float
    longest_s: float


def spread(values: Sequence[float]) -> Spread | None:
    """Summarise times; None where there are none."""
    if not values:
        return None
    ordered = sorted(values)
    p50, p95, p99 = (_at(ordered, share) for share in (0.5, 0.95, 0.99))
    return Spread(fmean(ordered), p50, p95, p99, ordered[-1])


def quantile(values: Sequence[float], share: float) -> float | None:
    """Return the smallest value that at least ``share`` of them do not exceed; None of none."""
    return _at(sorted(values), share) if values else None


def jain(values: Sequence[float]) -> float | None:
    """Return Jain's fairness index: 1 where all are alike, 1/n where one of n has everything; None of none.

    Jain, Chiu and Hawe, "A quantitative measure of fairness and discrimination", DEC TR-301 (1984), equation 1.
    """
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares > 0 else None


def _at(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, max(0, math.ceil(share * len(ordered)) - 1))]
