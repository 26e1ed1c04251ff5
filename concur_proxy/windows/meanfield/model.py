"""The engine as a few equations: what a number of running turns means for hit rate and turn rate.

Of R running turns, K tokens of cache, and sessions that leave contexts of f tokens behind (their growth while they
are active included):

    room for idle contexts   room = K - R f
    hit probability          h = F(T) with T from  rate f * integral 0..T of (1 - p F(t)) dt = room
    turn rate                1/rate = B (n + (1 - h) m) + o (B + C + D c) + o A / R, of which share is ours
    window                   W = R + rate Z at the R that maximises the rate

The second line is Che's approximation of an LRU cache (Che, Tung and Wang, 2002) with the measured distribution F of
think times; p is the share of turns after which another comes. h and the rate depend on each other. For a given T,
though, h is known, and what is left is a quadratic equation for R: so all operating points lie on one curve, from
T = 0, where what runs fills the cache, to the T at which everybody finds his context.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from concur_proxy.windows.meanfield.think import Curve

PARTS = 8
"""Into which the two stretches beside the best knot are divided."""


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


class Point(NamedTuple):
    """An operating point of the engine."""

    running: float
    rate: float
    """Turns per second."""
    hit_rate: float
    """Share of returning turns that find their context."""
    thinking: float
    """Sessions whose agents are in a tool call meanwhile."""

    @property
    def window(self) -> float:
        return self.running + self.thinking


@dataclass(frozen=True, slots=True)
class Model:
    costs: Costs
    traffic: Traffic
    curve: Curve
    idle_s: float
    """Z: seconds that a place is idle for each turn."""
    capacity: float
    """Tokens of cache for sessions, what they share taken off."""
    share: float = 1.0
    """Part of the engine's time that is ours."""

    def rate(self, running: float, hit_rate: float) -> float:
        """Return turns per second with so many running."""
        return self.share * running / (running * self.turn_s(hit_rate) + self.steps_s)

    def turn_s(self, hit_rate: float) -> float:
        """Seconds of the engine that a turn takes, beside its part of the steps themselves."""
        costs, turn = self.costs, self.traffic
        prefill = costs.token_s * (turn.new + (1.0 - hit_rate) * turn.history)
        return prefill + turn.output * (costs.token_s + costs.decode_s + costs.context_s * turn.context)

    @property
    def steps_s(self) -> float:
        """Seconds of the engine that a turn which runs alone takes for its steps themselves."""
        return self.traffic.output * self.costs.step_s

    def points(self) -> list[Point]:
        """Return the curve, from a cache that is full of what runs to one that has room for everybody."""
        return self.points_at(zip(self.curve.reached, self.curve.away, strict=True))

    def points_at(self, knots: Iterable[tuple[float, float]]) -> list[Point]:
        """Return the points at which contexts stay so long that ``hit_rate`` are found and ``away_s`` go unused.

        Each solves rate x footprint x away_s = capacity - running x footprint.
        """
        share, idle_s, steps_s = self.share, self.idle_s, self.steps_s
        most = self.capacity / self.traffic.footprint
        found: list[Point] = []
        for hit_rate, away_s in knots:
            turn_s = self.turn_s(hit_rate)
            half = (share * away_s + steps_s - most * turn_s) / (2.0 * turn_s)
            running = math.sqrt(half * half + most * steps_s / turn_s) - half
            rate = self.rate(running, hit_rate)
            found.append(Point(running, rate, hit_rate, rate * idle_s))
        return found

    def best(self, points: Sequence[Point]) -> Point:
        """Return the point with the highest rate, on the curve's ``points`` or between them."""
        top = max(range(len(points)), key=lambda index: points[index].rate)
        near = [
            self._between(index, part / PARTS)
            for index in range(max(0, top - 1), min(len(points) - 1, top + 1))
            for part in range(1, PARTS)
        ]
        return max([points[top], *self.points_at(near)], key=lambda point: point.rate)

    def _between(self, index: int, part: float) -> tuple[float, float]:
        """Return what lies after the curve's knot ``index`` by this part of the way to the next."""
        reached, away = self.curve.reached, self.curve.away
        low, since = reached[index], away[index]
        return low + part * (reached[index + 1] - low), since + part * (away[index + 1] - since)


def rate_of(sessions: float, points: Sequence[Point]) -> float:
    """Return the turn rate with so many sessions active: what does not fit waits in the engine."""
    after = points[0]
    if sessions >= after.window:
        return after.rate
    for point in points[1:]:
        if sessions >= point.window:
            part = (sessions - point.window) / max(after.window - point.window, 1e-9)
            return point.rate + part * (after.rate - point.rate)
        after = point
    return after.rate
