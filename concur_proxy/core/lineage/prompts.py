"""A plain prompt as a talk: text, or token numbers, that goes on where an earlier prompt and its answer ended.

An end falls anywhere, so that it cannot be found by hashing at fixed places alone. Whole blocks are chained, and per
block it is known how far into the next one earlier prompts went: only there it is looked whether this one began so.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

from concur_proxy.core.lineage.lengths import Lengths
from concur_proxy.core.lineage.talk import HEAD_WINDOW, Answer, head

SMALL_BLOCK, LARGE_BLOCK = 256, 4096
"""Characters or tokens of a block."""
FINE: Final = 8192
"""Where blocks become large: prompts that begin alike part within the small ones, so that few share a block's ends."""


class Prompt:
    __slots__ = ("_ends", "_last", "_prompt", "has_tools", "key")

    def __init__(self, prompt: str | list[int], *, key: str = "") -> None:
        self._prompt = prompt
        self._ends: list[int] = []
        """Where each point is, as an index of the prompt."""
        self._last = (0, 0)
        """Length of the last block, which is not whole, and the point that it begins at."""
        self.has_tools = False
        self.key = key

    def points(self, seed: int, lengths: Lengths) -> list[int]:
        prompt, size = self._prompt, len(self._prompt)
        found: list[int] = []
        self._ends = []
        start, point = 0, seed
        while True:
            ends = [end for rest in sorted(lengths.after(point)) if (end := start + rest) < size]
            found += [_end(point, prompt[start:end]) for end in ends]
            self._ends += ends
            block = SMALL_BLOCK if start < FINE else LARGE_BLOCK
            if start + block > size:
                break
            point = hash((point, _hash(prompt[start : start + block])))
            start += block
        self._last = (size - start, point)
        found.append(_end(point, prompt[start:]))
        return found

    def remember(self, lengths: Lengths) -> None:
        rest, point = self._last
        lengths.add(point, rest)

    def role(self, index: int) -> str:  # noqa: ARG002 - a prompt does not tell who speaks
        return ""

    def answer(self, index: int) -> Answer | None:
        """Return how the text begins that follows the earlier prompt; where it ends the prompt does not tell."""
        if not isinstance(self._prompt, str) or not 0 < index <= len(self._ends):
            return None
        end = self._ends[index - 1]
        return Answer(head=head(self._prompt[end : end + HEAD_WINDOW]))

    def skips_answer(self, index: int) -> bool:  # noqa: ARG002
        return False

    def tail(self, seed: int, index: int) -> int:  # noqa: ARG002
        return 0


def _end(block: int, rest: Sequence[Hashable]) -> int:
    return hash((block, len(rest), _hash(rest)))


def _hash(piece: Sequence[Hashable]) -> int:
    return hash(piece) if isinstance(piece, str) else hash(tuple(piece))
