"""Holds batch work back while interactive answers are too slow, and lets it on again when they have recovered.

    open ──3 slow windows──▶ held ──still slow after a while──▶ refused
      ▲                        │                                   │
      └──3 windows of quick answers ◀───────────────────────────────┘

Time is cut into windows. One is slow when the p99 of the latencies seen in it, from a turn's arrival to its first
token, is over the objective; turns that wait in line for longer than that count as well. It is quick when the p99 is
well below (``RECOVERED``), or when nobody asked for anything. What is in between changes nothing: without that distance
batch work would be let on and held back in turns. Nor does one count in which hot turns ran and none came to an end:
the slower an engine is, the fewer of its answers end in a window.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from concur_proxy.core.policy import GatePolicy
from concur_proxy.model import ColdLane

WINDOWS: Final = 3
"""Slow ones in a row that hold batch work back; quick ones in a row that let it on again."""

RECOVERED: Final = 0.8
"""Share of the objective below which answers are quick again."""

MOST_SEEN: Final = 4096
"""Latencies of one window that are kept: the newest (invariant 9)."""


class Breaker:
    """That of one pool. ``state`` is what becomes of its cold turns."""

    __slots__ = ("_held_since", "_next", "_policy", "_quick", "_seen", "_slow", "ends_at", "p99_s", "state")

    def __init__(self, policy: GatePolicy) -> None:
        self._policy = policy
        self.state = ColdLane.OPEN
        self.p99_s: float | None = None
        """Of the last window; None where nobody asked for anything in it."""
        self.ends_at = -math.inf
        """When this window ends, and ``close_window`` is to be called; the first one is over at once."""
        self._seen: list[float] = []
        self._next = 0
        self._slow = 0
        self._quick = 0
        self._held_since = -math.inf

    @property
    def retry_after_s(self) -> float:
        """The least time until batch work may go on."""
        return WINDOWS * self._policy.hot_window_s

    def saw(self, latency_s: float) -> None:
        """Take in how long a hot turn took to its first token."""
        if len(self._seen) < MOST_SEEN:
            self._seen.append(latency_s)
        else:
            self._seen[self._next] = latency_s
            self._next = (self._next + 1) % MOST_SEEN

    def saw_at_least(self, latency_s: float) -> None:
        """Take in a turn that came to no first token: it tells something where that took too long already."""
        if latency_s > self._policy.hot_objective_s:
            self.saw(latency_s)

    def close_window(self, waiting_s: Iterable[float], *, runs: bool = False, now: float) -> bool:
        """End a window; True where that changes the state.

        ``waiting_s``: how long the hot turns have waited that are held now. ``runs``: some run.
        """
        for waited_s in waiting_s:
            self.saw_at_least(waited_s)
        self.p99_s = _p99(sorted(self._seen)) if self._seen else None
        self._seen.clear()
        self._next = 0
        self.ends_at = now + self._policy.hot_window_s
        if self.p99_s is not None or not runs:
            self._count()
        before, self.state = self.state, self._state(now)
        return self.state is not before

    def _count(self) -> None:
        objective_s = self._policy.hot_objective_s
        slow = self.p99_s is not None and self.p99_s > objective_s
        quick = self.p99_s is None or self.p99_s <= RECOVERED * objective_s
        self._slow = self._slow + 1 if slow else 0
        self._quick = self._quick + 1 if quick else 0

    def _state(self, now: float) -> ColdLane:
        if self.state is ColdLane.OPEN:
            if self._slow < WINDOWS:
                return ColdLane.OPEN
            self._held_since = now
            return ColdLane.HELD
        if self._quick >= WINDOWS:
            return ColdLane.OPEN
        return ColdLane.REFUSED if now - self._held_since >= self._policy.cold_refuse_after_s else self.state


def _p99(ordered: list[float]) -> float:
    """Return the smallest of the values that 99 % do not exceed."""
    return ordered[-(-99 * len(ordered) // 100) - 1]
