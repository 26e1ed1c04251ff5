"""How long a place lies idle for each turn: by Little's law, what connects running turns with active sessions.

It is the agents' think time where nothing else happens to places. They are also held by sessions that never come back,
until their leases end, and given up early, to sub-agents or because they were idle for too long; all of that is in it.
"""

from __future__ import annotations

import math

MEMORY_S = 120.0
NO_TIME_S = 0.05
FOR_EVER_S = 300.0
"""Nobody's context stays this long in a cache that is worth a thought."""


class IdlePlaces:
    """Moving integrals of idle places, of finished turns and of those that had come back to a place."""

    __slots__ = ("_at", "_back", "_idle", "_idle_s", "_turns")

    def __init__(self) -> None:
        self._at: float | None = None
        self._idle_s = 0.0
        self._turns = 0.0
        self._back = 0.0
        self._idle = 0.0

    def turn(self, *, came_back: bool) -> None:
        """A turn has finished; ``came_back``: it was not its session's first."""
        self._turns += 1.0
        self._back += came_back

    def update(self, idle: float, *, now: float) -> None:
        """So many places have been idle since the update before."""
        if self._at is not None and now > self._at:
            keep = math.exp((self._at - now) / MEMORY_S)
            self._idle_s = keep * self._idle_s + idle * (now - self._at)
            self._turns *= keep
            self._back *= keep
        self._at, self._idle = now, idle

    def nobody_comes_back(self, least_turns: float = 30.0, most_returns: float = 0.05) -> bool:
        """Tell whether sessions end with their first turn: no place is idle, or places are and nobody takes them up.

        Agents that are only just at their first tool call are told apart by the time that places have been idle.
        """
        if self._turns < least_turns or self._back > most_returns * self._turns:
            return False
        at_once = self._idle < 1.0 and self._idle_s < NO_TIME_S * self._turns
        return at_once or self._idle_s > FOR_EVER_S * (self._back + 1.0)

    def seconds_per_turn(self, least_turns: float = 10.0) -> float | None:
        """Return it; None where there were too few turns."""
        return self._idle_s / self._turns if self._turns >= least_turns else None
