"""How a window is divided among replicas, by what each has active and held. Pure.

The sum of all shares never exceeds the window. Where the window has room for everybody, each gets what it asks for and
an equal part of the rest, so that whoever comes next finds room without asking. Where it has not, shares are max-min
fair (water-filling: nobody gets more than a smaller claim leaves), but the turn that has waited longest anywhere is
provided for first, so that no session is too large to get its turn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Demand:
    """What one replica asks of one window, in the window's unit."""

    load: float = 0.0
    """What is active."""
    wanted: float = 0.0
    """What its held turns would add."""
    first: float = 0.0
    """What the turn that has waited longest would add; part of ``wanted``."""
    waited_s: float | None = None
    """For how long that one has waited; None where none is held."""

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
    reserved = _reserved(window, demands)
    rest = window - sum(reserved.values())
    filled = water_fill(rest, {name: max(0.0, claim - reserved.get(name, 0.0)) for name, claim in claims.items()})
    shares = {name: filled[name] + reserved.get(name, 0.0) for name in demands}
    spare = max(0.0, window - sum(shares.values()))
    shares = {name: share + spare / len(shares) for name, share in shares.items()}
    return _rounded(window, shares, first=next(iter(reserved), None)) if indivisible else _within(window, shares)


def water_fill(amount: float, claims: Mapping[str, float]) -> dict[str, float]:
    """Divide ``amount`` max-min fairly: everybody gets the claim or the level, whichever is less."""
    granted: dict[str, float] = {}
    left = max(0.0, amount)
    for rank, (name, claim) in enumerate(sorted(claims.items(), key=lambda item: item[1])):
        granted[name] = min(claim, left / (len(claims) - rank))
        left -= granted[name]
    return granted


def _reserved(window: float, demands: Mapping[str, Demand]) -> dict[str, float]:
    """Provide for the turn that has waited longest, where not everybody fits: its replica's load, and its own need."""
    if sum(demand.whole for demand in demands.values()) <= window:
        return {}
    waiting = [(demand.waited_s, name) for name, demand in demands.items() if demand.waited_s is not None]
    if not waiting:
        return {}
    _, name = max(waiting)
    return {name: min(window, demands[name].load + demands[name].first)}


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
