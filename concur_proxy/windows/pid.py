"""``pid``: a proportional, integral and derivative controller of latency (an account of LLM serving throughput).

    e = (target - latency) / target                      no unit; negative where turns take too long
    W += kp * e + ki * integral of e + kd * de/dt        once per period

W: sessions, so ``kp`` is in sessions per period, ``ki`` per period and second, ``kd`` in sessions times seconds per
period. Latency: mean over the turns that were completed since the last step of the seconds from a turn's admission to
its first token, as the proxy sees them: what ``vllm:time_to_first_token_seconds`` and
``sglang:time_to_first_token_seconds`` count for all clients, plus the way there. A turn that is not streamed tells no
first token and counts with its whole duration. The wait in the gate is no part of it: the law makes that itself.

The integral stays within ``integral_limit_s``, does not grow in a direction in which the window could not follow (a
guard or a bound), and begins anew after a minute without a turn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from concur_proxy.model import Outcome, Signals, TurnRecord
from concur_proxy.windows.base import Unit, Verdict, WindowView
from concur_proxy.windows.pace import SLACK
from concur_proxy.windows.warm import what_fits

MEMORY_S = 60.0
"""Without a turn for this long, what was measured before says nothing of now."""

LONGEST_STEP_PERIODS = 5.0
"""What was measured counts for this long at most, however late it came."""


class Pid:
    """``target_s`` in seconds (> 0); ``kp`` .5 to 1.5, ``ki`` .1 to .3, ``kd`` .01 to .05 are the source's ranges.

    ``integral_limit_s``: bound of the integral, in seconds (an error of 1 for so long). ``period_s`` in seconds (> 0).
    """

    name: ClassVar[str] = "pid"
    unit: ClassVar[Unit] = Unit.SESSIONS

    def __init__(
        self,
        *,
        target_s: float = 2.0,
        kp: float = 1.0,
        ki: float = 0.2,
        kd: float = 0.03,
        integral_limit_s: float = 10.0,
        period_s: float = 1.0,
    ) -> None:
        self.target_s = target_s
        self.kp, self.ki, self.kd = kp, ki, kd
        self.integral_limit_s = integral_limit_s
        self.period_s = period_s
        self._turns = 0
        self._seconds = 0.0
        self._latency: float | None = None
        self._asked: float | None = None
        self._stepped_at = -math.inf
        self._error: float | None = None
        self._integral = 0.0
        self._last_step = 0.0

    def start(self, *, capacity_tokens: float | None, typical_footprint_tokens: float | None) -> float:
        return what_fits(capacity_tokens, typical_footprint_tokens)

    def observe(self, record: TurnRecord, *, now: float) -> None:  # noqa: ARG002
        if record.outcome is Outcome.COMPLETED:
            told_at = record.finished_at if record.first_token_at is None else record.first_token_at
            self._turns += 1
            self._seconds += max(0.0, told_at - record.admitted_at)

    def update(self, signals: Signals, view: WindowView, *, now: float) -> Verdict:  # noqa: ARG002
        elapsed = now - self._stepped_at
        if elapsed < SLACK * self.period_s:
            return Verdict(view.window, "within its period")
        if elapsed > MEMORY_S:
            self._begin_anew()
        if not self._turns:
            return Verdict(view.window, "no turn has ended since the last step: the window stays")
        self._latency = self._seconds / self._turns
        self._turns, self._seconds = 0, 0.0
        step = self._step((self.target_s - self._latency) / self.target_s, elapsed, view.window)
        self._stepped_at, self._asked = now, max(1.0, view.window + step)
        reason = f"latency {self._latency:.2f} s, target {self.target_s:g} s: {step:+.2f} sessions"
        return Verdict(self._asked, reason)

    def _step(self, error: float, elapsed: float, window: float) -> float:
        """Return how far the window moves, and remember the error."""
        elapsed = min(elapsed, LONGEST_STEP_PERIODS * self.period_s) if self._error is not None else self.period_s
        stopped = self._asked is not None and window != self._asked
        if not (stopped and error * self._last_step > 0):
            limit = self.integral_limit_s
            self._integral = min(max(self._integral + error * elapsed, -limit), limit)
        slope = 0.0 if self._error is None else (error - self._error) / elapsed
        self._error = error
        self._last_step = self.kp * error + self.ki * self._integral + self.kd * slope
        return self._last_step

    def _begin_anew(self) -> None:
        self._error, self._integral, self._last_step = None, 0.0, 0.0

    def snapshot(self) -> Mapping[str, object]:
        return {"latency_s": self._latency, "error": self._error, "integral_s": self._integral}
