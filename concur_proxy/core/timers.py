"""What is due when: one alarm per item, kept in a heap with lazy deletion."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Final, Generic, Protocol, TypeVar

FEW: Final = 64
"""Dead entries that are not worth a clean-up."""


class Sleeper(Protocol):
    """Whatever has an alarm keeps its time, None for none; only ``Timers`` sets it."""

    wakes_at: float | None


SleeperT = TypeVar("SleeperT", bound=Sleeper)


class Timers(Generic[SleeperT]):
    """An entry of the heap counts while its item still wants to be woken at that time."""

    __slots__ = ("_dead", "_heap", "_sequence", "_soon")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, SleeperT]] = []
        self._sequence = 0
        self._dead = 0
        self._soon: float | None = None

    def __len__(self) -> int:
        """Return the size of the heap, dead entries included: at most twice the alarms, and a few."""
        return len(self._heap)

    def set(self, item: SleeperT, at: float) -> None:
        """Wake ``item`` at ``at`` and no more at the time it had before."""
        if item.wakes_at == at:
            return
        self.clear(item)
        item.wakes_at = at
        self._sequence += 1
        heapq.heappush(self._heap, (at, self._sequence, item))

    def clear(self, item: SleeperT) -> None:
        if item.wakes_at is not None:
            item.wakes_at = None
            self._dead += 1
            if self._dead > FEW and self._dead > len(self._heap) // 2:
                self._clean_up()

    def wake(self, now: float) -> None:
        """Ask for a call of ``due`` at once, for no item in particular."""
        self._soon = now

    def due(self, now: float) -> Iterator[SleeperT]:
        """Take out and yield what is due; alarms set meanwhile, even for ``now``, are left to the next call."""
        self._soon = None
        last = self._sequence
        while (at := self._first()) is not None and at <= now and self._heap[0][1] <= last:
            item = heapq.heappop(self._heap)[2]
            item.wakes_at = None
            yield item

    def next(self) -> float | None:
        """Return when ``due`` should be called."""
        first = self._first()
        return first if self._soon is None or (first is not None and first < self._soon) else self._soon

    def _first(self) -> float | None:
        while self._heap and self._heap[0][2].wakes_at != self._heap[0][0]:
            heapq.heappop(self._heap)
            self._dead -= 1
        return self._heap[0][0] if self._heap else None

    def _clean_up(self) -> None:
        # An item set away from a time and back to it has two entries alike: the newest is kept.
        newest: dict[int, tuple[float, int, SleeperT]] = {}
        for entry in self._heap:
            item = entry[2]
            if item.wakes_at == entry[0] and (id(item) not in newest or newest[id(item)][1] < entry[1]):
                newest[id(item)] = entry
        self._heap = list(newest.values())
        heapq.heapify(self._heap)
        self._dead = 0
