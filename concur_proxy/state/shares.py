"""How a window is divided among replicas, by what each has active and held. Pure.

The sum of all shares never exceeds the window. Where the window has room for everybody, each gets what it asks for and
an equal part of the rest, so that whoever comes next finds room without asking. Where it has not, everybody keeps what
is active there, since a place that is taken from one for another costs a context; but the turn that goes first
of all is provided for first, so that no session is too large to get its turn. What is left then is divided max-min
fairly (water-filling: nobody gets more than a smaller claim leaves).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

HALVINGS = 64
"""Of an interval, until it is as small as numbers can tell."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What one replica asks of one window, in the window's unit."""

    load: float = 0.0
    """What is active."""
    wanted: float = 0.0
    """What its held turns would add."""
    first: float = 0.0
    """What the turn that goes first would add; part of ``wanted``."""
    waited_s: float | None = None
    """For how long that one has waited, with the head start that the order gives it; None where none is held."""
    rank: int = 0
    """Of that one: whoever has a smaller one goes before."""

    @property
    def whole(self) -> float:
        return self.load + self.wanted


def divide(window: float, demands: Mapping[str, Demand], *, indivisible: bool) -> dict[str, float]:
    """Return each replica's share of ``window``; ``indivisible``: places cannot be divided, so shares are whole."""
    if not demands:
        return {}
    if math.isinf(window):
        return dict.fromkeys(demands, math.inf)
    claims = {name: demand.whole for name, demand in demands.items()}
    first = _first(window, demands)
    shares = _raise_level(window, _floors(window, demands, first), claims)
    spare = max(0.0, window - sum(shares.values()))
    shares = {name: share + spare / len(shares) for name, share in shares.items()}
    return _rounded(window, shares, first=first) if indivisible else _within(window, shares)


def water_fill(amount: float, claims: Mapping[str, float]) -> dict[str, float]:
    """Divide ``amount`` max-min fairly: everybody gets the claim or the level, whichever is less."""
    granted: dict[str, float] = {}
    left = max(0.0, amount)
    for rank, (name, claim) in enumerate(sorted(claims.items(), key=lambda item: item[1])):
        granted[name] = min(claim, left / (len(claims) - rank))
        left -= granted[name]
    return granted


def _raise_level(amount: float, floors: Mapping[str, float], claims: Mapping[str, float]) -> dict[str, float]:
    """Give everybody the claim or one level, whichever is less, but never less than the floor; at most ``amount``."""

    def at(level: float) -> dict[str, float]:
        return {name: max(floors[name], min(claim, level)) for name, claim in claims.items()}

    low, high = 0.0, max(claims.values())
    if sum(at(high).values()) <= amount:
        return at(high)
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if sum(at(middle).values()) <= amount else (low, middle)
    return at(low)


def _first(window: float, demands: Mapping[str, Demand]) -> str | None:
    """Return where the turn is that goes first, if not everybody fits."""
    if sum(demand.whole for demand in demands.values()) <= window:
        return None
    waiting = [(-demand.rank, demand.waited_s, name) for name, demand in demands.items() if demand.waited_s is not None]
    return max(waiting)[2] if waiting else None


def _floors(window: float, demands: Mapping[str, Demand], first: str | None) -> dict[str, float]:
    """Return what everybody keeps: what is active there; the turn that has waited longest needs its room, too."""
    floors = {name: demand.load for name, demand in demands.items()}
    reserved = 0.0
    if first is not None:
        reserved = min(window, demands[first].load + demands[first].first)
        del floors[first]
    if sum(floors.values()) > window - reserved:
        floors = water_fill(window - reserved, floors)
    return floors if first is None else {**floors, first: reserved}


def _within(window: float, shares: dict[str, float]) -> dict[str, float]:
    """Take back what rounding has given too much."""
    excess = sum(shares.values()) - window
    if excess > 0:
        largest = max(shares, key=lambda name: shares[name])
        shares[largest] = max(0.0, shares[largest] - 2 * excess)
    return shares


def _rounded(window: float, shares: Mapping[str, float], *, first: str | None) -> dict[str, float]:
    """Return whole places: those left over by rounding down go to the largest remainders, ``first`` before all."""
    whole = {name: float(math.floor(share + 1e-9)) for name, share in shares.items()}
    left = math.floor(window + 1e-9) - sum(whole.values())
    by_remainder: Sequence[str] = sorted(
        shares, key=lambda name: (name != first or shares[name] <= whole[name], whole[name] - shares[name], name)
    )
    for name in by_remainder[: max(0, int(left))]:
        whole[name] += 1.0
    return whole
