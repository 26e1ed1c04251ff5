"""The moments of one backend: columns of numbers, which grow up to a limit and then overwrite the oldest."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterator

from concur_proxy.history.moment import Moment, mean


class Ring:
    """At most ``limit`` moments, in order of time: eight bytes for the time and four for each number."""

    __slots__ = ("_at", "_columns", "_first", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._at = array("d")
        self._columns = tuple(array("f") for _ in Moment._fields)
        self._first = 0
        """Where the oldest moment is."""

    def __len__(self) -> int:
        return len(self._at)

    @property
    def newest_at(self) -> float:
        """When the newest moment was; minus infinity where there is none."""
        return self._at[self._first - 1] if self._at else -math.inf

    def add(self, at: float, moment: Moment) -> None:
        """Keep a moment; one that is not later than the newest raises ``ValueError``."""
        if at <= self.newest_at:
            raise ValueError(f"a moment at {at} cannot follow one at {self.newest_at}")
        if len(self._at) < self.limit:
            self._at.append(at)
            for column, value in zip(self._columns, moment, strict=True):
                column.append(value)
            return
        self._at[self._first] = at
        for column, value in zip(self._columns, moment, strict=True):
            column[self._first] = value
        self._first = (self._first + 1) % self.limit

    def between(self, after: float, until: float = math.inf) -> Iterator[tuple[float, Moment]]:
        """Yield what is kept of the time after ``after`` and up to ``until``, oldest first."""
        for index in range(self._position(after), self._position(until)):
            slot = (self._first + index) % len(self._at)
            yield self._at[slot], Moment(*(column[slot] for column in self._columns))

    def thinned(self, after: float, until: float, points: int) -> list[tuple[float, Moment]]:
        """Return at most ``points`` moments of that time: each the mean of its part, at the newest time in there."""
        step = (until - after) / points
        parts: dict[int, list[tuple[float, Moment]]] = {}
        for at, moment in self.between(after, until):
            part = math.ceil((at - after) / step) - 1
            parts.setdefault(min(max(part, 0), points - 1), []).append((at, moment))
        return [
            found[0] if len(found) == 1 else (found[-1][0], mean([moment for _, moment in found]))
            for found in parts.values()
        ]

    def _position(self, time: float) -> int:
        """Return how many moments are not later than ``time``. Both ends of the ring are in order by themselves."""
        newer = bisect_right(self._at, time, 0, self._first)
        older = bisect_right(self._at, time, self._first)
        return older - self._first if newer == 0 else len(self._at) - self._first + newer
