"""How many sessions do what, for whoever looks: counting many lets turns pass, and takes a small share of the time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

FEW = 2000
"""So many sessions are counted at once, each time."""
SHARE = 0.01
"""Of the time that counting may take where somebody asks all the time."""

ResultT = TypeVar("ResultT")


async def unhurried(work: Iterator[ResultT | None]) -> ResultT:
    """Do work that comes in parts, with time for others between them; return what it yields at last."""
    for result in work:
        if result is not None:
            return result
        await asyncio.sleep(0)
    raise ValueError("the work has yielded no result")


def at_once(work: Iterator[ResultT | None]) -> ResultT:
    """Do the same without a pause."""
    return next(result for result in work if result is not None)


class Census:
    """Tells what was counted last. Many sessions are counted anew in the background, not all the time."""

    __slots__ = ("_clock", "_count", "_counted", "_next_at", "_size", "_task")

    def __init__(
        self,
        count: Callable[[], Iterator[Mapping[str, int] | None]],
        *,
        size: Callable[[], int],
        clock: Callable[[], float],
    ) -> None:
        self._count = count
        self._size = size
        self._clock = clock
        self._counted: Mapping[str, int] | None = None
        self._next_at = 0.0
        self._task: asyncio.Task[None] | None = None

    def states(self) -> Mapping[str, int]:
        """Return the number of sessions in each state; the first count of all is made at once."""
        if self._counted is None or self._size() <= FEW:
            self._counted = at_once(self._count())
        elif self._task is None and self._clock() >= self._next_at:
            self._task = asyncio.get_running_loop().create_task(self._recount(), name="census")
        return self._counted

    async def _recount(self) -> None:
        started = self._clock()
        try:
            self._counted = await unhurried(self._count())
        finally:
            ended = self._clock()
            self._next_at = ended + (ended - started) / SHARE
            self._task = None
