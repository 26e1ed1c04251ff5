"""The time to a first token per prompt token that had to be prefilled, from turn records."""

from __future__ import annotations

import math

from concur_proxy.model import Outcome, TurnRecord

ENOUGH_TURNS = 8
MEMORY_S = 60.0
"""Turns count as long as none of them is this much older than the next."""

LEAST_S = 1e-6
"""Per token: no engine is faster, and a latency divides."""


class TokenLatency:
    """Sums since the last ``take`` with an answer. Only completed, streamed turns tell when their first token came."""

    __slots__ = (
        "_at",
        "_hit_rate",
        "_seconds",
        "_turns",
        "_uncached",
        "_untold_prompt",
        "_untold_seconds",
        "_untold_turns",
    )

    def __init__(self) -> None:
        self._hit_rate: float | None = None
        self._forget()

    def _forget(self) -> None:
        self._turns = self._uncached = 0
        self._seconds = 0.0
        self._untold_turns = self._untold_prompt = 0
        self._untold_seconds = 0.0
        self._at = -math.inf

    def add(self, record: TurnRecord, *, now: float) -> None:
        """Take in a turn, if it says something."""
        usage, first = record.usage, record.first_token_at
        if record.outcome is not Outcome.COMPLETED or usage is None or first is None or usage.prompt_tokens <= 0:
            return
        if now - self._at > MEMORY_S:
            self._forget()
        self._at = now
        seconds = max(0.0, first - record.admitted_at)
        if usage.cached_tokens is None:
            self._untold_turns += 1
            self._untold_prompt += usage.prompt_tokens
            self._untold_seconds += seconds
        else:
            self._turns += 1
            self._uncached += max(1, usage.prompt_tokens - usage.cached_tokens)
            self._seconds += seconds

    def note_hit_rate(self, hit_rate: float | None) -> None:
        """Take in the engine's hit rate, which stands for the cached tokens that answers do not tell."""
        if hit_rate is not None:
            self._hit_rate = hit_rate

    def take(self, *, now: float) -> float | None:
        """Return seconds per token and begin anew, or None where too few turns have told, or none lately."""
        turns, tokens, seconds = self._turns, float(self._uncached), self._seconds
        if self._hit_rate is not None:
            turns += self._untold_turns
            tokens += max(float(self._untold_turns), self._untold_prompt * (1.0 - self._hit_rate))
            seconds += self._untold_seconds
        if turns < ENOUGH_TURNS or now - self._at > MEMORY_S:
            return None
        self._forget()
        return max(seconds / tokens, LEAST_S)
