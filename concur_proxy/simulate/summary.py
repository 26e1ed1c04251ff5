"""Several seeds of one arm taken together, and arms compared with each other."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from concur_proxy.sim.result import Figures, Result


@dataclass(frozen=True, slots=True)
class Summary:
    """One arm of one scenario over all its seeds."""

    arm: str
    results: Sequence[Result]

    @property
    def window(self) -> float | None:
        return self.results[0].window

    @property
    def score(self) -> float:
        """Mean over the seeds."""
        return statistics.fmean(result.score for result in self.results)

    def mean(self, name: str) -> float:
        return statistics.fmean(getattr(result.figures, name) for result in self.results)

    def spread(self, value: Callable[[Result], float]) -> float:
        """Return the standard deviation over the seeds; 0 for one seed."""
        values = [value(result) for result in self.results]
        return statistics.stdev(values) if len(values) > 1 else 0.0

    def against(self, other: Summary) -> float:
        """Return the geometric mean over the seeds of this score by that of ``other``: below 1 is better."""
        pairs = zip(self.results, other.results, strict=True)
        ratios = [mine.score / theirs.score for mine, theirs in pairs if theirs.score > 0]
        return math.exp(statistics.fmean(math.log(ratio) for ratio in ratios)) if ratios else math.nan

    def to_json(self) -> dict[str, Any]:
        figures = {name: {"mean": self.mean(name)} for name in Figures.__slots__}
        return {
            "arm": self.arm,
            "window": self.window,
            "score": {"mean": self.score, "stdev": self.spread(lambda result: result.score)},
            "figures": figures,
            "runs": [result.to_json() for result in self.results],
        }


def best(summaries: Sequence[Summary]) -> Summary:
    """Return the one with the least score."""
    return min(summaries, key=lambda summary: summary.score)


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(math.log(value) for value in values))
