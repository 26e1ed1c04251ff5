"""What a step of the engine costs, learned from seconds in which it was busy.

Each stretch of busy time is one equation,

    busy seconds = A steps + B scheduled tokens + C decoded tokens + D decoded tokens x mean context,

and ridge regression solves them towards a prior. In a steady load the four columns rise and fall together and tell
little apart from their sum; so the prior is first scaled to fit the sum, which makes it a statement of proportions,
true of fast and of slow cards, and what the equations tell apart then moves it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from concur_proxy.windows.meanfield.model import Costs

PRIOR = (0.02, 1e-4, 3e-5, 6e-8)
"""A dense model of some 30 billion parameters on one or two cards; only the proportions count."""

RIDGE = 3.0
"""Equations that the prior is worth, for each of the four costs."""
MEMORY_S = 300.0
"""Busy seconds after which an equation counts for 1/e."""
LEAST = 0.05
"""Of a scaled prior: no cost is thought to be smaller."""

Row = tuple[float, float, float, float]


class StepCosts:
    """Sums of the normal equations, in units of the prior; the old is forgotten."""

    __slots__ = ("_estimate", "_products", "_results", "_weight", "busy_s")

    def __init__(self) -> None:
        self._products = [[0.0] * 4 for _ in range(4)]
        self._results = [0.0] * 4
        self._weight = 0.0
        self._estimate: Costs | None = None
        self.busy_s = 0.0
        """Seconds that it has learned from, old ones counted less."""

    def add(self, busy_s: float, *, steps: float, scheduled: float, decoded: float, context_tokens: float) -> None:
        """Take in a stretch of time; ``context_tokens``: those that its decoded tokens have read back."""
        row = [value * unit for value, unit in zip((steps, scheduled, decoded, context_tokens), PRIOR, strict=True)]
        if busy_s <= 0 or not all(map(math.isfinite, row)):
            return
        keep = math.exp(-busy_s / MEMORY_S)
        self._products = [
            [keep * old + one * other for old, other in zip(line, row, strict=True)]
            for line, one in zip(self._products, row, strict=True)
        ]
        self._results = [keep * old + one * busy_s for old, one in zip(self._results, row, strict=True)]
        self._weight = keep * self._weight + 1.0
        self._estimate = None
        self.busy_s = keep * self.busy_s + busy_s

    def estimate(self) -> Costs:
        """Return the costs as they seem now; the prior where nothing has been learned."""
        if self._estimate is None:
            self._estimate = self._fit()
        return self._estimate

    def _fit(self) -> Costs:
        total = sum(map(sum, self._products))
        if total <= 0:
            return Costs(*PRIOR)
        scale = sum(self._results) / total
        ridge = [RIDGE * self._products[index][index] / self._weight for index in range(4)]
        factors = self._solve(scale, ridge)
        return Costs(*(factor * unit for factor, unit in zip(factors, PRIOR, strict=True)))

    def _solve(self, scale: float, ridge: Sequence[float]) -> list[float]:
        """Solve for all factors; those that come out too small are put at the least, and the others solved anew."""
        least, fixed = LEAST * scale, set[int]()
        while True:
            free = [index for index in range(4) if index not in fixed]
            lines = [[self._products[i][j] + (ridge[i] if i == j else 0.0) for j in free] for i in free]
            right = [
                self._results[i] + ridge[i] * scale - sum(self._products[i][j] * least for j in fixed) for i in free
            ]
            found = dict(zip(free, solve(lines, right), strict=True))
            low = {index for index, factor in found.items() if factor < least}
            if not low:
                return [found.get(index, least) for index in range(4)]
            fixed |= low

    def dump(self) -> dict[str, object]:
        """Return what it knows, for ``load``."""
        return {
            "products": [value for line in self._products for value in line],
            "results": list(self._results),
            "weight": self._weight,
            "busy_s": self.busy_s,
        }

    def load(self, products: Sequence[float], results: Sequence[float], weight: float, busy_s: float) -> None:
        """Take over what ``dump`` gave."""
        self._products = [list(products[4 * index : 4 * index + 4]) for index in range(4)]
        self._results = list(results)
        self._weight, self.busy_s = weight, busy_s
        self._estimate = None


def solve(lines: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """Solve a system of linear equations by elimination; a singular one gives 0 for what it does not determine."""
    size = len(right)
    rows = [[*line, value] for line, value in zip(lines, right, strict=True)]
    for column in range(size):
        pivot = max(range(column, size), key=lambda index: abs(rows[index][column]))
        rows[column], rows[pivot] = rows[pivot], rows[column]
        if abs(rows[column][column]) <= 1e-300:
            continue
        for index in range(column + 1, size):
            factor = rows[index][column] / rows[column][column]
            rows[index] = [a - factor * b for a, b in zip(rows[index], rows[column], strict=True)]
    found = [0.0] * size
    for index in reversed(range(size)):
        rest = rows[index][size] - sum(rows[index][j] * found[j] for j in range(index + 1, size))
        found[index] = rest / rows[index][index] if abs(rows[index][index]) > 1e-300 else 0.0
    return found
