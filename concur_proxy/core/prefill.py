"""How long an engine takes to compute a token of a prompt, learned from finished turns.

Each turn is one equation,

    seconds = a x computed tokens of its prompt + b x tokens decoded meanwhile,

and moves both estimates by a part of its relative error, each in proportion to its share of the time (normalised least
mean squares). So it does not matter how fast the engine is or how long the turns are, and one that has stood in the
engine's queue counts as somewhat slow only.
"""

from __future__ import annotations

from typing import Final

PREFILL_S: Final = 1e-4
DECODE_S: Final = 0.02
"""Where it begins: a dense model of some 30 billion parameters on one or two cards."""
STEP: Final = 0.1
FIRST_STEP: Final = 0.5
"""Of the error that is made good; the first turns teach more."""
MOST: Final = 2.0
"""Times what was expected that a turn counts for at most."""


class PrefillTime:
    """Two estimates: seconds per computed token of a prompt, and per decoded token."""

    __slots__ = ("_decode_s", "_turns", "token_s")

    def __init__(self) -> None:
        self.token_s = PREFILL_S
        """Seconds per token."""
        self._decode_s = DECODE_S
        self._turns = 0

    def add(self, seconds: float, *, prefilled: int, decoded: int) -> None:
        """Take in a turn, or its part until the first token."""
        prefill_s, decode_s = self.token_s * prefilled, self._decode_s * decoded
        expected_s = prefill_s + decode_s
        if seconds <= 0.0 or expected_s <= 0.0:
            return
        self._turns += 1
        error = min(max(seconds / expected_s, 1.0 / MOST), MOST) - 1.0
        step = error * max(STEP, FIRST_STEP / self._turns) / (prefill_s**2 + decode_s**2) * expected_s
        self.token_s *= 1.0 + step * prefill_s
        self._decode_s *= 1.0 + step * decode_s
