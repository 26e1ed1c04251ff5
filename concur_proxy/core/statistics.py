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
        if self.count == 1:
            self.mean, self.deviation = seconds, 0.5 * seconds
            return
        weight = 0.1 if self.count > 10 else 1.0 / self.count
        error = seconds - self.mean
        self.mean += weight * error
        self.deviation += weight * (abs(error) - self.deviation)

    def upper(self) -> float | None:
        """Return what few think times exceed: mean + 4 mean deviations (RFC 6298's form). None before the first."""
        return None if self.count == 0 else self.mean + 4.0 * max(self.deviation, 0.25 * self.mean)


class Mean:
    """Exponentially weighted mean; the samples of the beginning weigh alike, and replace ``value`` where it started."""

    __slots__ = ("_first", "_floor", "count", "value")

    def __init__(self, value: float, *, floor: float = 0.02) -> None:
        self.value = value
        self.count = 0
        self._floor = floor
        self._first = 1.0 / floor

    def add(self, sample: float) -> None:
        self.count += 1
        self.value += (sample - self.value) * (self._floor if self.count > self._first else 1.0 / self.count)


class Peak:
    """The largest recent value: falls by a factor of e in ``horizon_s`` where nothing renews it."""

    __slots__ = ("_at", "_horizon_s", "_value")

    def __init__(self, horizon_s: float) -> None:
        self._horizon_s = horizon_s
        self._value = 0.0
        self._at = -math.inf

    def see(self, value: float, *, now: float) -> None:
        """Take in a value."""
        if value >= self._value or value >= self.at(now):
            self._value, self._at = value, now

    def at(self, now: float) -> float:
        """Return what is left of the peak."""
        return self._value * math.exp(-max(0.0, now - self._at) / self._horizon_s) if self._value else 0.0


class Level:
    """A quantity over time: moving mean and mean deviation, where each value weighs as long as it lasted."""

    __slots__ = ("_at", "_horizon_s", "_seen_s", "deviation", "mean")

    def __init__(self, horizon_s: float) -> None:
        self._horizon_s = horizon_s
        self._at: float | None = None
        self._seen_s = 0.0
        self.mean = 0.0
        self.deviation = 0.0

    def see(self, value: float, *, now: float) -> None:
        """Take in a value; it stands for the time since the call before."""
        lasted = 0.0 if self._at is None else max(0.0, now - self._at)
        self._at = now
        if not lasted:
            return
        self._seen_s = min(self._seen_s + lasted, self._horizon_s)
        weight = min(1.0, lasted / self._seen_s)
        error = value - self.mean
        self.mean += weight * error
        self.deviation += weight * (abs(error) - self.deviation)

    def upper(self, deviations: float) -> float:
        """Return what it seldom exceeds; 0 before anything was seen."""
        return self.mean + deviations * self.deviation
