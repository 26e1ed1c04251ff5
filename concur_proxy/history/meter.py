"""Makes rates of counters that are read now and then."""

from __future__ import annotations

from typing import NamedTuple

from concur_proxy.history.moment import UNKNOWN


class Counters(NamedTuple):
    """Counters of one backend, tokens since some start. None is unknown."""

    queried_tokens: float | None = None
    hit_tokens: float | None = None
    prompt_tokens: float | None = None
    generated_tokens: float | None = None
    recomputed_tokens: float | None = None


class Rates(NamedTuple):
    """Tokens per second; NaN is unknown."""

    queried: float = UNKNOWN
    hit: float = UNKNOWN
    prompt: float = UNKNOWN
    generated: float = UNKNOWN
    recomputed: float = UNKNOWN


class Meter:
    """One backend's counters. What went back has started anew: nothing is known of that time."""

    __slots__ = ("_at", "_before")

    def __init__(self) -> None:
        self._at = 0.0
        self._before: Counters | None = None

    def read(self, counters: Counters, *, now: float) -> Rates:
        """Return the rates since the reading before; unknown for the first one."""
        before, self._before = self._before, counters
        passed, self._at = now - self._at, now
        if before is None or passed <= 0:
            return Rates()
        return Rates(*(_rate(a, b, passed) for a, b in zip(before, counters, strict=True)))


def _rate(before: float | None, after: float | None, passed_s: float) -> float:
    return UNKNOWN if before is None or after is None or after < before else (after - before) / passed_s
