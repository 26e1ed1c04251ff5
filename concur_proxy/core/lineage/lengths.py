"""Where within a block of a plain prompt earlier prompts have ended."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

MAX_ENDS: Final = 16
"""Ends that are remembered within one block."""
ENTRY_BYTES: Final = 600
"""What the ends within one block take at most."""


class Lengths:
    """By the point that a block begins at, how far earlier prompts went. The least recently used are forgotten."""

    __slots__ = ("_ends", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._ends: OrderedDict[int, tuple[int, ...]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._ends)

    def after(self, point: int) -> tuple[int, ...]:
        """Return the ends, the last used last."""
        return self._ends.get(point, ())

    def add(self, point: int, length: int) -> None:
        ends = [end for end in self._ends.pop(point, ()) if end != length]
        self._ends[point] = (*ends[-MAX_ENDS + 1 :], length)
        if len(self._ends) > self.limit:
            self._ends.popitem(last=False)
