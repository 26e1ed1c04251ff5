"""How many sessions do what, for whoever looks: all of them are counted, but not more often than that is cheap."""

from __future__ import annotations

from collections.abc import Callable, Mapping

SHARE = 0.01
"""Of the time that counting may take where somebody asks all the time."""
FREE_S = 0.001
"""A count that takes no longer is made anew each time."""


class Census:
    """Counts when it is asked, and tells the same again for a while where counting took long."""

    __slots__ = ("_clock", "_count", "_counted", "_good_until")

    def __init__(self, count: Callable[[], Mapping[str, int]], *, clock: Callable[[], float]) -> None:
        self._count = count
        self._clock = clock
        self._counted: Mapping[str, int] = {}
        self._good_until: float | None = None

    def states(self) -> Mapping[str, int]:
        """Return the number of sessions in each state."""
        started = self._clock()
        if self._good_until is None or started >= self._good_until:
            self._counted = self._count()
            ended = self._clock()
            took_s = ended - started
            self._good_until = ended + took_s / SHARE if took_s > FREE_S else ended
        return self._counted
