"""The engine as a few equations: what a number of running turns means for hit rate and turn rate.

Of R running turns, K tokens of cache, and sessions that leave contexts of f tokens behind (their growth while they
are active included):

    room for idle contexts   room = K - R f
    hit probability          h = F(T) with T from  rate f * integral 0..T of (1 - p F(t)) dt = room
    turn rate                1/rate = B (n + (1 - h) m) + o (B + C + D c) + o A / R, of which share is ours
    window                   W = R + rate Z at the R that maximises the rate

The second line is Che's approximation of an LRU cache (Che, Tung and Wang, 2002) with the measured distribution F of
think times; p is the share of turns after which another comes. h and the rate depend on each other: both are functions
of T, and the room that T needs grows with T, so the T that uses up the room is found by bisection.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from concur_proxy.windows.meanfield.think import Curve

MOST_RUNNING = 4096.0
GRID = 24
FINE = 1.01


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds that one step of the engine takes: A + B x tokens + C x decoding turns + D x their context tokens."""

    step_s: float
    token_s: float
    decode_s: float
    context_s: float


@dataclass(frozen=True, slots=True)
class Traffic:
    """A mean turn, in tokens."""

    new: float
    """n: computed whatever the cache holds."""
    history: float
    """m: computed anew where the session's context is gone; what sessions share is never gone."""
    output: float
    """o"""
    context: float
    """c: what a decoding turn reads back at each step."""
    footprint: float
    """f: what a session occupies of the cache, with the growth that is to come."""
    returns: float
    """p"""


@dataclass(frozen=True, slots=True)
class Point:
    """What comes of a number of running turns."""

    running: float
    rate: float
    """Turns per second."""
    hit_rate: float
    """Share of returning turns that find their context."""


@dataclass(frozen=True, slots=True)
class Model:
    costs: Costs
    traffic: Traffic
    curve: Curve
    capacity: float
    """Tokens of cache for sessions, what they share taken off."""
    share: float = 1.0
    """Part of the engine's time that is ours."""

    def rate(self, running: float, hit_rate: float) -> float:
        """Return turns per second with so many running."""
        costs, turn = self.costs, self.traffic
        prefill = costs.token_s * (turn.new + (1.0 - hit_rate) * turn.history)
        decode = turn.output * (costs.token_s + costs.decode_s + costs.context_s * turn.context)
        return self.share / (prefill + decode + turn.output * costs.step_s / running)

    def at(self, running: float) -> Point:
        """Return what comes of ``running`` turns at a time; those that do not fit wait in the engine."""
        running = min(running, self.fit)
        room = self.capacity - running * self.traffic.footprint
        hit_rate = self._hit_rate(running, room) if room > 0 else 0.0
        return Point(running, self.rate(running, hit_rate), hit_rate)

    def best(self, most: float = MOST_RUNNING) -> Point:
        """Return the point with the highest turn rate; not more running than ``most``."""
        return _highest(self.at, 1.0, min(self.fit, most))

    @property
    def fit(self) -> float:
        """How many can run at a time; one can always."""
        return max(1.0, self.capacity / max(self.traffic.footprint, 1.0))

    def _hit_rate(self, running: float, room: float) -> float:
        reached, away = self.curve.reached, self.curve.away

        def needed(index: int) -> float:
            return self.rate(running, reached[index]) * self.traffic.footprint * away[index]

        low, high = -1, len(reached) - 1
        if needed(high) <= room:
            return reached[high]
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if needed(middle) <= room else (low, middle)
        before = (reached[low], needed(low)) if low >= 0 else (0.0, 0.0)
        part = (room - before[1]) / (needed(high) - before[1])
        return before[0] + part * (reached[high] - before[0])


def _highest(at: Callable[[float], Point], low: float, high: float) -> Point:
    """Search a grid, then between the neighbours of its best point, until steps are a hundredth."""
    while True:
        factor = (high / low) ** (1.0 / GRID)
        points = [at(low * factor**index) for index in range(GRID + 1)]
        best = max(range(GRID + 1), key=lambda index: points[index].rate)
        if factor <= FINE or not math.isfinite(factor):
            return points[best]
        low, high = points[max(0, best - 1)].running, points[min(GRID, best + 1)].running
