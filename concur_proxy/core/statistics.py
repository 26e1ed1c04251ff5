"""Small running estimates of the core."""

from __future__ import annotations

import math


class ThinkTime:
    """Moving mean and deviation of the seconds between a session's answer and its next turn."""

    __slots__ = ("count", "deviation", "mean")

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self.deviation = 0.0

    def add(self, seconds: float) -> None:
        self.count += 1
        weight = max(0.1, 1.0 / self.count)
        error = seconds - self.mean
        self.mean += weight * error
        self.deviation += weight * (abs(error) - self.deviation)

    def upper(self) -> float | None:
        """Return what few think times exceed (mean + 4 mean deviations, as TCP's RTO does); None before the first."""
        return None if self.count == 0 else self.mean + 4.0 * max(self.deviation, 0.25 * self.mean)


class Mean:
    """Exponentially weighted mean that starts as a plain mean."""

    __slots__ = ("count", "floor", "value")

    def __init__(self, value: float, *, floor: float = 0.02) -> None:
        self.value = value
        self.count = 0
        self.floor = floor

    def add(self, sample: float) -> None:
        self.count += 1
        self.value += max(self.floor, 1.0 / self.count) * (sample - self.value)


class Peak:
    """The largest recent value: falls by e every ``horizon_s`` where nothing renews it."""

    __slots__ = ("_at", "_horizon_s", "_value")

    def __init__(self, horizon_s: float) -> None:
        self._horizon_s = horizon_s
        self._value = 0.0
        self._at = -math.inf

    def see(self, value: float, *, now: float) -> float:
        """Take in a value and return the peak."""
        faded = self._value * math.exp(-max(0.0, now - self._at) / self._horizon_s) if self._value else 0.0
        self._value, self._at = max(value, faded), now
        return self._value
