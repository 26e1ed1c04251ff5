"""A queue by key for what comes nearly in the order of its keys, as arrivals do: no heap to sift through."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable

from concur_proxy.core.sessions import Turn

Item = tuple[float, int, Turn]
"""Key, ticket and turn; smaller goes first."""


class Arrivals:
    """Two runs that are in order, and a heap for whatever fits behind neither.

    Turns come in the order of their arrival, those of paused sessions too, only with a head start: one run for each.
    """

    __slots__ = ("_first", "_late", "_second")

    def __init__(self, items: Iterable[Item] = ()) -> None:
        self._first: deque[Item] = deque(sorted(items))
        self._second: deque[Item] = deque()
        self._late: list[Item] = []

    def __len__(self) -> int:
        return len(self._first) + len(self._second) + len(self._late)

    def push(self, item: Item) -> None:
        first, second = self._first, self._second
        if not first or first[-1] < item:
            first.append(item)
        elif not second or second[-1] < item:
            second.append(item)
        else:
            heapq.heappush(self._late, item)

    def pop(self) -> Item | None:
        """Take out the smallest item; None where there is none."""
        first, second, late = self._first, self._second, self._late
        if late and not (first and first[0] < late[0]) and not (second and second[0] < late[0]):
            return heapq.heappop(late)
        if second and not (first and first[0] < second[0]):
            return second.popleft()
        return first.popleft() if first else None

    def only(self, counts: Callable[[Item], bool]) -> Arrivals:
        """Return a queue of those items that still count."""
        return Arrivals(item for run in (self._first, self._second, self._late) for item in run if counts(item))
