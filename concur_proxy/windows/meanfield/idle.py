"""How long a place lies idle for each turn: by Little's law, what connects running turns with active sessions.

It is the agents' think time where nothing else happens to places. They are also held by sessions that never come back,
until their leases end, and given up early, to sub-agents or because they were idle for too long; all of that is in it.
"""

from __future__ import annotations

import math

MEMORY_S = 120.0


class IdlePlaces:
    """Moving integrals of idle places and of finished turns."""

    __slots__ = ("_at", "_idle_s", "_turns")

    def __init__(self) -> None:
        self._at: float | None = None
        self._idle_s = 0.0
        self._turns = 0.0

    def turn(self) -> None:
        """A turn has finished."""
        self._turns += 1.0

    def update(self, idle: float, *, now: float) -> None:
        """So many places have been idle since the update before."""
        if self._at is not None and now > self._at:
            keep = math.exp((self._at - now) / MEMORY_S)
            self._idle_s = keep * self._idle_s + idle * (now - self._at)
            self._turns *= keep
        self._at = now

    def seconds_per_turn(self, least_turns: float = 10.0) -> float | None:
        """Return it; None where there were too few turns."""
        return self._idle_s / self._turns if self._turns >= least_turns else None
