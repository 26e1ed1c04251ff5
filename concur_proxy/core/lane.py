"""One lane of a line: turns that may run on the same backends."""

from __future__ import annotations

import heapq
from collections.abc import Collection
from typing import NamedTuple

from concur_proxy.core.sessions import Turn
from concur_proxy.model import BackendId

FEW = 64
"""Dead entries that are not worth a clean-up."""

LaneName = tuple[BackendId | None, frozenset[BackendId], bool]
"""The only backend that its turns may run on, or None; those that they avoid; whether they are cold."""


class Entry(NamedTuple):
    """A turn that waits; smaller goes first. Each is an object of its own: which one counts is told by identity."""

    rank: int
    key: float
    ticket: int
    turn: Turn


class Lane:
    """A heap with lazy deletion: an entry counts while it is its turn's entry."""

    __slots__ = ("_dead", "_heap", "avoid", "cold", "origin")

    def __init__(self, name: LaneName) -> None:
        self.origin, self.avoid, self.cold = name
        self._heap: list[Entry] = []
        self._dead = 0

    def __len__(self) -> int:
        """Return the number of entries, dead ones included."""
        return len(self._heap)

    def leads_to(self, able: Collection[BackendId], hot_only: Collection[BackendId] = ()) -> bool:
        """Tell whether its turns may run on one of ``able``, some of which take no cold ones."""
        if self.cold and hot_only:
            able = [backend for backend in able if backend not in hot_only]
            if not able:
                return False
        if self.origin is not None:
            return self.origin in able
        return not self.avoid or any(backend not in self.avoid for backend in able)

    def push(self, entry: Entry) -> None:
        heapq.heappush(self._heap, entry)

    def head(self) -> Entry | None:
        while self._heap and self._heap[0].turn.entry is not self._heap[0]:
            heapq.heappop(self._heap)
            self._dead -= 1
        return self._heap[0] if self._heap else None

    def pop(self) -> None:
        """Take out what ``head`` has returned."""
        heapq.heappop(self._heap)

    def bury(self, entry: Entry) -> None:  # noqa: ARG002 - lanes that part their turns need it
        """Take note of an entry that does not count any more."""
        self._dead += 1
        if self._dead > FEW and self._dead > len(self._heap) // 2:
            self._heap = [each for each in self._heap if each.turn.entry is each]
            heapq.heapify(self._heap)
            self._dead = 0

    def turns(self) -> list[Turn]:
        """Return all that stand in it, in no order."""
        return [entry.turn for entry in self._heap if entry.turn.entry is entry]
