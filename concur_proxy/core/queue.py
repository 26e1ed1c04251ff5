"""The turns that wait in one pool, in the order in which they may go: first come first served, paused before new.

Precedence is a head start in arrival time, not a class of its own: a new turn that has waited longer than the head
start goes first, and no wait is unbounded (ageing).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from concur_proxy.core.sessions import Session
from concur_proxy.model import BackendId, TurnFacts


@dataclass(slots=True, eq=False)
class HeldTurn:
    """A turn that waits, or waited: its ticket and its place in line stay with it when it is put back."""

    ticket: int
    turn: TurnFacts
    session: Session
    arrived_at: float
    first_arrived_at: float
    """Of the first try, where this is a retry."""
    deadline: float
    avoid: frozenset[BackendId]
    not_before: float = 0.0
    waiting: bool = False


class HeldQueue:
    """A heap with lazy deletion."""

    __slots__ = ("_heap", "_sequence", "head_start_s", "waiting")

    def __init__(self, head_start_s: float) -> None:
        self.head_start_s = head_start_s
        self.waiting = 0
        self._heap: list[tuple[float, int, HeldTurn]] = []
        self._sequence = 0

    def push(self, held: HeldTurn) -> None:
        held.waiting = True
        self.waiting += 1
        self._sequence += 1
        due = held.first_arrived_at - (self.head_start_s if held.session.paused else 0.0)
        heapq.heappush(self._heap, (due, self._sequence, held))

    def discard(self, held: HeldTurn) -> None:
        if held.waiting:
            held.waiting = False
            self.waiting -= 1

    def in_order(self, limit: int) -> Iterator[HeldTurn]:
        """Yield waiting turns, first to go first; those that the caller does not ``discard`` stay."""
        seen: list[tuple[float, int, HeldTurn]] = []
        try:
            while self._heap and len(seen) < limit:
                entry = heapq.heappop(self._heap)
                if entry[2].waiting:
                    seen.append(entry)
                    yield entry[2]
        finally:
            for entry in seen:
                if entry[2].waiting:
                    heapq.heappush(self._heap, entry)
