"""How long agents think between two turns: the measured distribution, with the old forgotten."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass

SHORTEST_S = 0.01
BINS_PER_DOUBLING = 4
EDGES = tuple(SHORTEST_S * 2 ** (index / BINS_PER_DOUBLING) for index in range(93))
"""Seconds, upper ends of the bins: 10 ms to a day; the first bin begins at 0, a longer time counts in the last."""

MEMORY_TURNS = 300.0
"""A think time counts for 1/e after so many more."""
FADE_EVERY = 10


@dataclass(frozen=True, slots=True)
class Curve:
    """The distribution function F at its knots, between which it is linear, and an area over it.

    ``reached`` goes from 0 to 1. ``away[i]`` is the integral of 1 - returns x F up to the time of ``reached[i]``: the
    seconds that a context which is left behind stays unused until then, where only the share ``returns`` of the
    sessions comes back at all.
    """

    reached: tuple[float, ...]
    away: tuple[float, ...]


class ThinkTimes:
    """A histogram with bins that grow by a fifth, so that a second and an hour are told equally well."""

    __slots__ = ("_added", "_sums", "_weights")

    def __init__(self) -> None:
        self._weights = [0.0] * len(EDGES)
        self._sums = [0.0] * len(EDGES)
        self._added = 0

    def add(self, seconds: float) -> None:
        """Take in the time between an answer and the session's next turn."""
        self._added += 1
        if self._added % FADE_EVERY == 0:
            self._fade(math.exp(-FADE_EVERY / MEMORY_TURNS))
        seconds = max(0.0, seconds)
        bin_ = min(bisect_left(EDGES, seconds), len(EDGES) - 1)
        self._weights[bin_] += 1.0
        self._sums[bin_] += seconds

    @property
    def weight(self) -> float:
        """How many think times it stands for, old ones counted less."""
        return sum(self._weights)

    @property
    def mean_s(self) -> float | None:
        """Z; None before the first."""
        weight = self.weight
        return sum(self._sums) / weight if weight > 0 else None

    def curve(self, returns: float) -> Curve:
        """Return F and its areas; ``returns``: the share of turns after which there is another."""
        total = self.weight
        reached, away = [0.0], [0.0]
        since = area = before = 0.0
        for edge, weight in zip(EDGES, self._weights, strict=True):
            share = min(before + weight / total, 1.0) if weight else before
            if weight and area > away[-1]:  # nobody came back between the knot before and this bin
                reached.append(before)
                away.append(area)
            area += (edge - since) * (1.0 - returns * 0.5 * (before + share))
            if weight:
                reached.append(share)
                away.append(area)
            before, since = share, edge
        return Curve(tuple(reached), tuple(away))

    def dump(self) -> dict[str, object]:
        """Return what it knows, for ``load``."""
        return {"weights": list(self._weights), "sums": list(self._sums)}

    def load(self, weights: list[float], sums: list[float]) -> None:
        """Take over what ``dump`` gave."""
        self._weights, self._sums = list(weights), list(sums)

    def _fade(self, keep: float) -> None:
        self._weights = [weight * keep for weight in self._weights]
        self._sums = [total * keep for total in self._sums]
