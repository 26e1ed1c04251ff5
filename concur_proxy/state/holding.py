"""One window as one replica has it: its share, and what it knows of the whole. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from concur_proxy.windows.base import Unit

LEAST = 0.5
"""Of an equal part of the cache: what a replica with nothing active counts on for sessions that come to it."""


def text(amount: float) -> str:
    """Return an amount as Redis keeps it."""
    return "inf" if math.isinf(amount) else repr(float(amount))


@dataclass(frozen=True, slots=True)
class Whole:
    """A window, as the one that leads has decided."""

    window: float
    unit: Unit
    hard: bool = False

    def dump(self) -> dict[str, object]:
        return {"whole": text(self.window), "hard": self.hard, "unit": self.unit.value}


@dataclass(slots=True)
class Holding:
    """``in_force``: what the gate here may have active. It falls the moment we hear of it, and Redis is told then."""

    unit: Unit
    in_force: float = 0.0
    target: float = 0.0
    """What the one that leads would give us; less is in force until others have given it back."""
    whole: Whole | None = None
    elsewhere: float = 0.0
    """What is active at other replicas."""
    running_elsewhere: int = 0
    waiting_elsewhere: int = 0
    cached_elsewhere: float = 0.0
    """Tokens that sessions of other replicas have in the cache."""
    oldest_elsewhere_s: float = 0.0
    """For how long the one of their contexts has not been used that goes next."""
    bound: bool = False
    """The share has kept a turn waiting since that was last told."""
    minimum: float = 1.0
    maximum: float = math.inf
    """Bounds of the whole window."""
    capacity_tokens: float | None = None
    told_capacity: float | None = None
    """The part of it that the gate was told of."""

    @property
    def is_short(self) -> bool:
        return self.target > self.in_force + 1e-6

    def our_cache_tokens(self, oldest_s: float, replicas: int, trust: float) -> float | None:
        """Return the part of the engine's cache that our sessions may count on: all that others have not filled.

        Where together we have more than there is, the engine evicts what was used longest ago: that is ours, or it is
        somebody else's, who will say so. ``trust``: share of the cache that seems to be there.
        """
        if self.capacity_tokens is None or replicas == 1:
            return self.capacity_tokens
        if oldest_s < self.oldest_elsewhere_s:
            return self.capacity_tokens
        part = self.capacity_tokens - self.cached_elsewhere / trust
        return max(part, self.capacity_tokens * LEAST / replicas)

    def whole_cache_tokens(self, ours: float | None) -> float | None:
        """Return the cache that seems to be there for everybody's sessions, by what seems to be there for ours."""
        if ours is None or self.capacity_tokens is None or not self.told_capacity:
            return ours
        return ours * self.capacity_tokens / self.told_capacity
