"""Random quantities of a scenario, as a scenario file writes them."""

from __future__ import annotations

import math
from random import Random
from typing import Any, Self

from pydantic import Field, model_validator

from concur_proxy.sim.part import Part

KINDS = ("constant", "median", "mean", "exponential", "pareto")


class Quantity(Part):
    """A plain number, or one of: ``{mean, sigma}`` and ``{median, sigma}`` (log-normal), ``{exponential: mean}``,
    ``{pareto: shape, least}`` (heavy tail). ``most`` cuts off what is larger.
    """

    constant: float | None = Field(None, ge=0)
    median: float | None = Field(None, ge=0)
    mean: float | None = Field(None, ge=0)
    sigma: float = Field(0.0, ge=0, le=5)
    """Of the logarithm."""
    exponential: float | None = Field(None, ge=0)
    pareto: float | None = Field(None, gt=0)
    least: float = Field(0.0, ge=0)
    most: float = Field(math.inf, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _a_number_is_enough(cls, value: Any) -> Any:
        return {"constant": value} if isinstance(value, int | float) and not isinstance(value, bool) else value

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        given = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            raise ValueError(f"needs exactly one of {', '.join(KINDS)}, or is a plain number")
        if self.pareto is not None and self.least <= 0:
            raise ValueError("pareto needs `least`, the smallest value, above 0")
        return self

    def draw(self, random: Random) -> float:
        return min(max(self._draw(random), self.least), self.most)

    def tokens(self, random: Random) -> int:
        return max(1, round(self.draw(random)))

    def _draw(self, random: Random) -> float:
        if self.constant is not None:
            return self.constant
        if self.exponential is not None:
            return random.expovariate(1.0 / self.exponential) if self.exponential else 0.0
        if self.pareto is not None:
            return self.least * random.paretovariate(self.pareto)
        if self.median is not None:
            return self.median * random.lognormvariate(0.0, self.sigma)
        assert self.mean is not None
        return self.mean * random.lognormvariate(-self.sigma * self.sigma / 2.0, self.sigma)


def quantity(value: float) -> Quantity:
    return Quantity(constant=value)
