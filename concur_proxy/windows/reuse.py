"""The hit rate of turns that continue a session: what answers tell of the cache where the engine tells nothing."""

from __future__ import annotations

import math

from concur_proxy.model import Outcome, TurnRecord

ENOUGH_TURNS = 8
MEMORY_S = 60.0
"""Turns count as long as none of them is this much older than the next."""


class Reuse:
    """Sums since the last ``forget``. First turns are left out: they find nothing, however empty the cache is."""

    __slots__ = ("_at", "_cached", "_prompt", "_turns")

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self._turns = self._prompt = self._cached = 0
        self._at = -math.inf

    def add(self, record: TurnRecord, *, now: float) -> None:
        """Take in a turn, if it says something about the cache."""
        usage = record.usage
        if record.outcome is not Outcome.COMPLETED or usage is None or usage.cached_tokens is None:
            return
        if not record.expected_cached_tokens or usage.prompt_tokens <= 0:
            return
        if now - self._at > MEMORY_S:
            self.forget()
        self._turns += 1
        self._prompt += usage.prompt_tokens
        self._cached += min(usage.cached_tokens, usage.prompt_tokens)
        self._at = now

    def hit_rate(self, *, now: float) -> float | None:
        """Return it (0..1), or None where there are too few turns, or none lately."""
        if self._turns < ENOUGH_TURNS or now - self._at > MEMORY_S:
            return None
        return self._cached / self._prompt
