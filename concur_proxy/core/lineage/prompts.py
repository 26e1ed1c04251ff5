"""A plain prompt as a talk: text, or token numbers, that goes on where an earlier prompt and its answer ended.

An end falls anywhere, so that it cannot be found by hashing at fixed places alone. Whole blocks are chained, and per
block it is known how far into the next one earlier prompts went: only there it is looked whether this one began so.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from concur_proxy.core.lineage.lengths import Lengths
from concur_proxy.core.lineage.talk import Answer

BLOCK = 2048
"""Characters or tokens of a block."""


class Prompt:
    __slots__ = ("_last", "_prompt", "has_tools", "key")

    def __init__(self, prompt: str | list[int], *, key: str = "") -> None:
        self._prompt = prompt
        self._last = (0, 0)
        """Length of the last block, which is not whole, and the point that it begins at."""
        self.has_tools = False
        self.key = key

    def points(self, seed: int, lengths: Lengths) -> list[int]:
        prompt, size = self._prompt, len(self._prompt)
        found: list[int] = []
        start, point = 0, seed
        while True:
            ends = (start + rest for rest in sorted(lengths.after(point)))
            found += [_end(point, prompt[start:end]) for end in ends if end < size]
            if start + BLOCK > size:
                break
            point = hash((point, _hash(prompt[start : start + BLOCK])))
            start += BLOCK
        self._last = (size - start, point)
        found.append(_end(point, prompt[start:]))
        return found

    def remember(self, lengths: Lengths) -> None:
        rest, point = self._last
        lengths.add(point, rest)

    def role(self, index: int) -> str:  # noqa: ARG002 - a prompt does not tell who speaks
        return ""

    def answer(self, index: int) -> Answer | None:  # noqa: ARG002
        return None

    def tail(self, seed: int, index: int) -> int:  # noqa: ARG002
        return 0


def _end(block: int, rest: Sequence[Hashable]) -> int:
    return hash((block, len(rest), _hash(rest)))


def _hash(piece: Sequence[Hashable]) -> int:
    return hash(piece) if isinstance(piece, str) else hash(tuple(piece))
