"""What turns are like: moving means over those that finished."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from concur_proxy.model import Outcome, TurnRecord

MEMORY_TURNS = 300.0
"""A turn counts for 1/e after so many more."""
TYPICAL_TURNS = 20.0
"""Of a session, where none has ended yet; this belief is worth as many turns."""
RATE_MEMORY_S = 60.0
SHORTEST_S = 1.0
"""Time over which a rate means anything."""


@dataclass(slots=True)
class Sums:
    """Over turns, old ones counted less. Tokens; ``again``: turns that continue a session."""

    turns: float = 0.0
    new: float = 0.0
    """Computed whatever the cache holds: prompts without the history that could be found."""
    output: float = 0.0
    history: float = 0.0
    """What an undisturbed cache would have given."""
    left: float = 0.0
    """Prompt and output."""
    read: float = 0.0
    """Context that decoding has read back."""
    again: float = 0.0
    again_new: float = 0.0
    first: float = 0.0
    first_cached: float = 0.0
    """Of first turns, and of those that tell: what sessions share."""
    found: float = 0.0
    sought: float = 0.0
    """Of turns that did not wait: history found, and history."""
    ended: float = 0.0
    """Sessions that have ended meanwhile, or have not come back for long."""


_NAMES = tuple(field.name for field in fields(Sums))


def continues(record: TurnRecord) -> bool:
    """Tell whether a turn was not its session's first."""
    return record.think_s is not None or bool(record.expected_cached_tokens)


class Turns:
    """Means of ``Sums``; ``rate`` is turns per second over about a minute."""

    __slots__ = ("_rate", "_rated_at", "_rated_from", "_sums")

    def __init__(self) -> None:
        self._sums = Sums()
        self._rate = 0.0
        self._rated_from: float | None = None
        self._rated_at = 0.0

    def add(self, record: TurnRecord, *, now: float) -> None:
        """Take in a turn, if it has been computed."""
        usage = record.usage
        if record.outcome is not Outcome.COMPLETED or usage is None:
            return
        self._fade()
        sums, history = self._sums, min(record.expected_cached_tokens or 0, usage.prompt_tokens)
        new = usage.prompt_tokens - history
        sums.turns += 1
        sums.new += new
        sums.output += usage.completion_tokens
        sums.history += history
        sums.left += usage.prompt_tokens + usage.completion_tokens
        sums.read += usage.completion_tokens * (usage.prompt_tokens + usage.completion_tokens / 2)
        if continues(record):
            sums.again += 1
            sums.again_new += new
        elif usage.cached_tokens is not None:
            sums.first += 1
            sums.first_cached += min(usage.cached_tokens, new)
        if history and usage.cached_tokens is not None and record.admitted_at <= record.arrived_at:
            sums.sought += history
            sums.found += min(usage.cached_tokens, history)
        if self._rated_from is None:
            self._rated_from = self._rated_at = now
        self._rate = self._rate * _faded(now - self._rated_at) + 1.0 / RATE_MEMORY_S
        self._rated_at = now

    def depart(self, sessions: float) -> None:
        """So many sessions have had their last turn."""
        self._sums.ended += sessions

    def rate(self, *, now: float) -> float:
        """Return turns per second over the last minute, or since the first one."""
        if self._rated_from is None:
            return 0.0
        seen = 1.0 - _faded(max(now - self._rated_from, SHORTEST_S))
        return self._rate * _faded(now - self._rated_at) / seen

    @property
    def count(self) -> float:
        """Turns that it stands for."""
        return self._sums.turns

    @property
    def new(self) -> float:
        """Of a mean turn to come, without what sessions share.

        Not of those that have passed: when many sessions begin at once, nearly all of these were first turns.
        """
        sums, returns = self._sums, self.returns
        first = (sums.new - sums.again_new) / max(sums.turns - sums.again, 1.0)
        return returns * sums.again_new / max(sums.again, 1.0) + (1.0 - returns) * max(first - self.prefix, 0.0)

    @property
    def output(self) -> float:
        return self._sums.output / max(self._sums.turns, 1.0)

    @property
    def history(self) -> float:
        """Of a mean turn to come, without what sessions share."""
        return self.returns * max(self._sums.history / max(self._sums.again, 1.0) - self.prefix, 0.0)

    @property
    def context(self) -> float:
        """What a decoded token reads back, mean over decoded tokens."""
        return self._sums.read / max(self._sums.output, 1.0)

    @property
    def left(self) -> float:
        return self._sums.left / max(self._sums.turns, 1.0)

    @property
    def prefix(self) -> float:
        """Tokens that a first turn finds: sessions share them."""
        return self._sums.first_cached / self._sums.first if self._sums.first else 0.0

    @property
    def returns(self) -> float:
        """Share of turns after which there is another."""
        again = self._sums.again + TYPICAL_TURNS - 1.0
        return again / (again + self._sums.ended + 1.0)

    @property
    def growth(self) -> float:
        """Tokens by which a turn makes a session larger."""
        return self._sums.again_new / max(self._sums.again, 1.0) + self.output

    @property
    def hit_rate(self) -> float | None:
        """Share of their history that turns found which did not wait; None where answers do not tell."""
        return self._sums.found / self._sums.sought if self._sums.sought else None

    def dump(self) -> dict[str, object]:
        """Return what it knows, for ``load``."""
        return {name: getattr(self._sums, name) for name in _NAMES}

    def load(self, sums: dict[str, float]) -> None:
        """Take over what ``dump`` gave; the rate is measured anew."""
        self._sums = Sums(**sums)

    def _fade(self) -> None:
        keep = 1.0 - 1.0 / MEMORY_TURNS
        sums = self._sums
        for name in _NAMES:
            setattr(sums, name, getattr(sums, name) * keep)


def _faded(seconds: float) -> float:
    """Return what is left of a rate's memory after so long."""
    return math.exp(-max(0.0, seconds) / RATE_MEMORY_S)
