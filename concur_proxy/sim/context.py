"""The tokens of one conversation as block hashes, without any tokens: what a workload hands to the engine."""

from __future__ import annotations

Mark = tuple[int, int, tuple[tuple[int, int, int], ...]]
"""An end of a context: tokens, hash of the full blocks, stretches of the last one."""


class Context:
    """A token sequence that grows at its end, made of stretches of named sources.

    Equal stretches in equal order give equal hashes, so two contexts share exactly the blocks before their first
    difference. ``hashes`` has one entry per full block and may be given to requests while the context grows on.
    Appending costs time in proportion to the blocks it fills.
    """

    __slots__ = ("_parent", "_tail", "block_size", "hashes", "tokens")

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.tokens = 0
        self.hashes: list[int] = []
        self._parent = 0
        self._tail: list[tuple[int, int, int]] = []
        """Stretches (source, start, end) of the last block, which is not full."""

    def append(self, source: int, count: int, start: int = 0) -> None:
        """Add tokens ``start`` to ``start + count`` of ``source``."""
        end = start + count
        while start < end:
            room = self.block_size - self.tokens % self.block_size
            stop = min(start + room, end)
            self._add(source, start, stop)
            self.tokens += stop - start
            if stop - start == room:
                self._parent = hash((self._parent, *self._tail))
                self.hashes.append(self._parent)
                self._tail.clear()
            start = stop

    def mark(self) -> Mark:
        """Return where it ends now."""
        return self.tokens, self._parent, tuple(self._tail)

    def rewind(self, mark: Mark) -> None:
        """Drop what came after ``mark``."""
        self.tokens, self._parent, tail = mark
        self._tail = list(tail)
        del self.hashes[self.tokens // self.block_size :]

    def _add(self, source: int, start: int, stop: int) -> None:
        if self._tail and self._tail[-1][0] == source and self._tail[-1][2] == start:
            start = self._tail.pop()[1]
        self._tail.append((source, start, stop))
