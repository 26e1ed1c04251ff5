"""Virtual time: what happens next, in an order that never depends on anything but the calls made."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

Happening = Callable[[], None]


class Events:
    """A queue of things to happen. Those of one moment happen in the order of their entry, the ``last`` ones after all
    others.
    """

    __slots__ = ("_count", "_heap", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, bool, int, Happening]] = []
        self._count = 0

    def at(self, time: float, happening: Happening, *, last: bool = False) -> None:
        """Let something happen at ``time``, or now where that has passed."""
        self._count += 1
        heapq.heappush(self._heap, (max(time, self.now), last, self._count, happening))

    def after(self, seconds: float, happening: Happening) -> None:
        self.at(self.now + seconds, happening)

    @property
    def next_at(self) -> float:
        """When something will happen; infinite where nothing will."""
        return self._heap[0][0] if self._heap else math.inf

    def step(self) -> bool:
        """Let the next thing happen; False where there is none."""
        if not self._heap:
            return False
        self.now, _, _, happening = heapq.heappop(self._heap)
        happening()
        return True
