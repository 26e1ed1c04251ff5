"""Ratios of paired runs, and how sure they are. Pairs cancel what changes slowly: the machine, its neighbours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev

STUDENT_95 = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753)
"""One-sided 95 % quantiles of Student's t for 1, 2, ... degrees of freedom."""
NORMAL_95 = 1.645


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times more than the baseline."""

    each: tuple[float, ...]
    mean: float
    """Geometric mean of the pairs."""
    least: float
    lower_95: float | None
    """Lower bound of a one-sided 95 % confidence interval, from the logarithms of the pairs; None of one pair."""
    upper_95: float | None
    """Upper bound of the other one-sided interval. Between both lie 90 %."""


def ratio(values: Sequence[float], baseline: Sequence[float]) -> Ratio | None:
    """Compare pair by pair; None where there is no pair or a value is not above 0."""
    if not values or len(values) != len(baseline) or min(*values, *baseline) <= 0:
        return None
    logs = [math.log(value / base) for value, base in zip(values, baseline, strict=True)]
    lower = upper = None
    if len(logs) > 1:
        reach = student_95(len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
        lower, upper = math.exp(mean(logs) - reach), math.exp(mean(logs) + reach)
    return Ratio(tuple(math.exp(log) for log in logs), math.exp(mean(logs)), math.exp(min(logs)), lower, upper)


def student_95(freedom: int) -> float:
    return STUDENT_95[freedom - 1] if freedom <= len(STUDENT_95) else NORMAL_95 + 1.6 / freedom
