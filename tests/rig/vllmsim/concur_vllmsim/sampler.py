"""Which tokens the simulated model says.

Free text is drawn from the model's safe words, so that it comes back to the very same ids when a client sends it in
the next turn. Under a grammar (tool calls, JSON schemas) it heads for the end: a model that draws at random never
closes a string.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

CLOSERS = ("}", "]", "{", " {", '"', ",", ":")
"""What comes first where JSON has its structure, if allowed: the end; an object where any value will do."""
INSIDE_STRING = 0.5
"""A grammar that allows this share of the vocabulary is inside a string."""
CLOSE_STRING = 0.25
"""Chance to close a string at each token: strings of three words or so."""


class Sampler:
    def __init__(
        self,
        *,
        words: Sequence[int],
        closers: Sequence[int],
        quote: int,
        end: int,
        end_probability: float,
        seed: int,
    ) -> None:
        self._words = list(words)
        self._closers = list(closers)
        self._quote = quote
        self._end = end
        self._end_probability = end_probability
        self._random = random.Random(seed)

    def free(self) -> int:
        if self._end_probability and self._random.random() < self._end_probability:
            return self._end
        return self._words[int(self._random.random() * len(self._words))]

    def guided(self, row: np.ndarray) -> int:
        """A token that the grammar allows; ``row`` has one bit per token id, lowest first."""
        allowed = np.unpackbits(row.view(np.uint8), bitorder="little")
        if allowed[self._end]:
            return self._end
        for token in self._wishes(inside_string=allowed.mean() >= INSIDE_STRING):
            if allowed[token]:
                return token
        choices = np.flatnonzero(allowed)
        return int(choices[int(self._random.random() * len(choices))])

    def _wishes(self, *, inside_string: bool) -> list[int]:
        if not inside_string:
            return self._closers
        close = self._random.random() < CLOSE_STRING
        return [self._quote if close else self._words[int(self._random.random() * len(self._words))]]
