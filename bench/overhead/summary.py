"""Medians over rounds, and what is derived from them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.overhead import rounds
from bench.overhead.rounds import Figures
from bench.overhead.ways import NO_PROXY


@dataclass(frozen=True, slots=True)
class Spread:
    """The median over rounds, and the least and most."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))


@dataclass(slots=True)
class Results:
    """Figures by way, in the order of rounds."""

    by_way: dict[str, list[Figures]] = field(default_factory=dict)

    def add(self, way: str, figures: Figures) -> None:
        self.by_way.setdefault(way, []).append(figures)

    def spread(self, way: str, key: str) -> Spread | None:
        """Return the figure of a way; None where no round has one."""
        values = [figures.values[key] for figures in self.by_way[way] if key in figures.values]
        return Spread.of(values) if values else None

    def added(self, way: str, key: str) -> Spread | None:
        """Return what a way adds to the figure without a proxy, each round compared with itself."""
        pairs = zip(self.by_way[way], self.by_way[NO_PROXY], strict=True)
        values = [own.values[key] - bare.values[key] for own, bare in pairs if key in own.values and key in bare.values]
        return Spread.of(values) if values else None

    def ratio(self, way: str, other: str, key: str) -> float | None:
        """Return how many times as much a way uses as another, by their medians."""
        own, base = (self.spread(name, key) if name in self.by_way else None for name in (way, other))
        return own.median / base.median if own and base and base.median else None

    def problem(self, way: str, key: str) -> str | None:
        """Return why a way has no figure."""
        for figures in self.by_way[way]:
            if problem := figures.problems.get(key) or figures.problems.get("start"):
                return problem
        return None

    def as_json(self) -> dict[str, Any]:
        return {way: [asdict(figures) for figures in each] for way, each in self.by_way.items()}


def estimated(results: Results, way: str) -> bool:
    """Whether the rate of a way is what its CPU time allows: the load could not keep it busy all the time."""
    busy = results.spread(way, rounds.BUSY)
    return way != NO_PROXY and busy is not None and busy.median <= 0.9
