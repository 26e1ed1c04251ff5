"""What is due when. Entries are never taken out early: whoever is due decides whether it still matters."""

from __future__ import annotations

import heapq
from collections.abc import Iterator


class Timers:
    """A heap of (time, item)."""

    __slots__ = ("_heap", "_sequence")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, object]] = []
        self._sequence = 0

    def add(self, at: float, item: object) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (at, self._sequence, item))

    def due(self, now: float) -> Iterator[object]:
        """Take out and yield what is due."""
        last = self._sequence
        while self._heap and self._heap[0][0] <= now and self._heap[0][1] <= last:
            yield heapq.heappop(self._heap)[2]

    def next(self) -> float | None:
        return self._heap[0][0] if self._heap else None
