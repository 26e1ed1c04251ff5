"""When everything is looked at for garbage: while nothing runs, as all turns stop meanwhile.

Sessions, turns and connections are freed without it, as they are in no cycles; but a collection of everything looks at
each: 10 ms with ten thousand sessions, 150 ms with a hundred thousand. Python would begin one in the middle of a turn.
Its collections of what is young take a millisecond or two, and go on.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable
from typing import Final

LOOK_S: Final = 1.0
SHORTEST_GAP_S: Final = 60.0
LONGEST_GAP_S: Final = 600.0
"""So long it is put off where something runs all the time."""
SHARE: Final = 0.001
"""Of the time that collections may take, where nothing runs."""
NEVER: Final = 1 << 30
"""Collections of what is young before one of everything."""


class Collector:
    """Takes over from Python, until ``run`` is cancelled. ``is_quiet``: no turn runs or waits."""

    def __init__(
        self,
        is_quiet: Callable[[], bool],
        *,
        clock: Callable[[], float] = time.monotonic,
        collect: Callable[[], object] = gc.collect,
    ) -> None:
        self._is_quiet = is_quiet
        self._clock = clock
        self._collect = collect
        self._last_at = clock()
        self._gap_s = SHORTEST_GAP_S

    def look(self) -> None:
        """Collect, if it is time."""
        waited_s = self._clock() - self._last_at
        if waited_s < self._gap_s or (waited_s < LONGEST_GAP_S and not self._is_quiet()):
            return
        began = self._clock()
        self._collect()
        self._last_at = self._clock()
        self._gap_s = min(max(SHORTEST_GAP_S, (self._last_at - began) / SHARE), LONGEST_GAP_S)

    async def run(self) -> None:
        """Look every second, for ever."""
        before = gc.get_threshold()
        gc.set_threshold(before[0], before[1], NEVER)
        try:
            while True:
                await asyncio.sleep(LOOK_S)
                self.look()
        finally:
            gc.set_threshold(*before)
