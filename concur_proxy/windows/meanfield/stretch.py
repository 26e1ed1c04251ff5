"""Stretches of time, long enough that it does not matter when exactly the engine was asked within them."""

from __future__ import annotations

import math

from concur_proxy.model import Outcome, Signals, TurnRecord
from concur_proxy.windows.base import WindowView
from concur_proxy.windows.meanfield.costs import StepCosts

STRETCH_S = 5.0
SHARE_MEMORY_S = 300.0
NEARLY_ALL = 0.85
"""Turns count when they end, and answers that were cut off never do."""
LEAST_SHARE = 0.05
BUSY = 0.5
"""Share of a stretch in which something must have run: clients and network are a part of what is left."""


class Stretches:
    """Gathers what an engine has done, and gives it to ``StepCosts`` in stretches.

    Engines that count neither steps nor tokens are followed through the answers: their tokens, and how long a token
    took in a stream.
    """

    __slots__ = (
        "_began_at",
        "_busy_from",
        "_context",
        "_contexts",
        "_decoded",
        "_ours",
        "_scheduled",
        "_steps",
        "_streamed",
        "_streaming_s",
        "_theirs",
        "_told",
        "_turn_computed",
        "_turn_output",
    )

    def __init__(self) -> None:
        self._began_at: float | None = None
        self._busy_from = 0.0
        self._streaming_s = self._streamed = 0.0
        self._ours = self._theirs = 0.0
        self._forget()

    def _forget(self) -> None:
        self._told = False
        self._steps = self._scheduled = self._decoded = 0.0
        self._context = self._contexts = 0.0
        self._turn_computed = self._turn_output = 0.0

    @property
    def share(self) -> float:
        """Part of what the engine has computed that was for our turns; 1 where nearly all was, or it does not tell."""
        if self._theirs <= 0 or self._ours >= NEARLY_ALL * self._theirs:
            return 1.0
        return max(self._ours / self._theirs, LEAST_SHARE)

    def turn(self, record: TurnRecord) -> None:
        """Take in a finished turn."""
        usage = record.usage
        if record.outcome is not Outcome.COMPLETED or usage is None:
            return
        self._turn_computed += usage.prompt_tokens - (usage.cached_tokens or 0) + usage.completion_tokens
        self._turn_output += usage.completion_tokens
        if record.first_token_at is not None and usage.completion_tokens > 1:
            self._streaming_s = 0.95 * self._streaming_s + record.finished_at - record.first_token_at
            self._streamed = 0.95 * self._streamed + usage.completion_tokens - 1

    def update(self, signals: Signals, view: WindowView, costs: StepCosts, *, now: float, beside: float = 0.0) -> None:
        """Take in the time since the update before; where a stretch is full, let ``costs`` learn from it.

        ``beside``: tokens that a running turn reads beside those that the gate counts for it.
        """
        if view.running:
            self._context += max(view.running_tokens / view.running + beside, 0.0)
            self._contexts += 1
        if signals.interval_s is not None and None not in (signals.steps, signals.scheduled_tokens):
            self._told = True
            self._steps += signals.steps or 0.0
            self._scheduled += signals.scheduled_tokens or 0.0
            self._decoded += signals.generation_tokens or 0.0
        if self._began_at is None:
            self._begin(view, now)
        elif now - self._began_at >= STRETCH_S and (signals.interval_s is not None or not self._told):
            self._end(view, costs, now - self._began_at)
            self._begin(view, now)

    def _begin(self, view: WindowView, now: float) -> None:
        self._began_at, self._busy_from = now, view.busy_s
        self._forget()

    def _compare(self, span_s: float) -> None:
        """Take note of what the engine has computed in a stretch, and how much of it was ours."""
        keep = math.exp(-span_s / SHARE_MEMORY_S)
        self._ours = keep * self._ours + self._turn_computed
        self._theirs = keep * self._theirs + self._scheduled

    def _end(self, view: WindowView, costs: StepCosts, span_s: float) -> None:
        if self._told:
            self._compare(span_s)
        busy_s = min(view.busy_s - self._busy_from, span_s)
        if busy_s < BUSY * span_s or not self._contexts:
            return
        context = self._context / self._contexts
        if self._told:
            costs.add(
                busy_s,
                steps=self._steps,
                scheduled=self._scheduled,
                decoded=self._decoded,
                context_tokens=self._decoded * context,
            )
        elif self._streaming_s > 0 and math.isfinite(self._streaming_s):
            costs.add(
                busy_s,
                steps=busy_s * self._streamed / self._streaming_s,
                scheduled=self._turn_computed,
                decoded=self._turn_output,
                context_tokens=self._turn_output * context,
            )
