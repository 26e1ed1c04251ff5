"""At most one change in every period, however often a law is asked."""

from __future__ import annotations

import math

SLACK = 0.9
"""Updates come a little before a full period has passed."""


class Pace:
    """Watches what becomes of a law's verdicts: a change that a guard or a bound has stopped begins no period."""

    __slots__ = ("_asked_at", "_changed_at", "_period_s", "_window")

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._window: float | None = None
        self._asked_at = -math.inf
        self._changed_at = -math.inf

    def rests(self, window: float, *, now: float) -> bool:
        """Tell whether the last change is less than a period ago; asked with the window in force in every update."""
        if self._window is not None and window != self._window:
            self._changed_at = self._asked_at
        self._window, self._asked_at = window, now
        return now - self._changed_at < SLACK * self._period_s
