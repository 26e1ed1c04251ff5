"""``meanfield``: the window at which a model of the engine says that most turns per second are done; the default.

Once a second, of what has been measured so far, ``model`` is solved for the number of running turns R that maximises
the turn rate, and

    W = (R + rate x Z) x mean context + what sessions share,

R running sessions and those whose agents are in a tool call meanwhile, counted in tokens: where sessions are of many
sizes, a huge one then takes the room of many small ones. Nothing is to be set: what turns are like (``turns``), how
long agents think (``think``), what a step of the engine costs (``costs``) and how much of the cache is there for our
sessions (the gate's shadow) are all learned as traffic passes.

- Before enough is known the window is a part of the cache; on engines whose capacity nobody knows it moves by
  ``aimd``'s rules. A hit rate that ``aimd`` would cut for cuts it in both cases.
- Where a full house would do as well, within ``WORTH``, nobody is held, nor where nobody comes back for a second turn.
- Sessions grow after they are let in, so each counts for what it will occupy ``GROWTH_TURNS`` turns later.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from concur_proxy.model import Outcome, Signals, TurnRecord
from concur_proxy.windows.aimd import Aimd
from concur_proxy.windows.base import Unit, Verdict, WindowView
from concur_proxy.windows.meanfield import state, words
from concur_proxy.windows.meanfield.costs import StepCosts
from concur_proxy.windows.meanfield.idle import IdlePlaces
from concur_proxy.windows.meanfield.model import Costs, Model, Point, Traffic, rate_of
from concur_proxy.windows.meanfield.stretch import Stretches
from concur_proxy.windows.meanfield.think import ThinkTimes
from concur_proxy.windows.meanfield.turns import Turns, continues
from concur_proxy.windows.pace import SLACK

PERIOD_S = 1.0
FIRST_SHARE = 0.8
"""Of the cache, before enough is known: sessions are young then, and will grow. Less makes short runs start slowly."""
FIRST_SESSIONS = 16.0
TYPICAL_TOKENS = 8000.0
"""Of a session, where none has been seen."""

GROWTH_TURNS = 2.0
WORTH = 0.02
"""The least gain in the turn rate for which anybody is held."""

ENOUGH_TURNS = 20.0
ENOUGH_THINKING = 10.0
ENOUGH_BUSY_S = 4.0

SMOOTHING_S = 2.0
AMPLE = 2.0


class Meanfield:
    """Nothing to set."""

    name: ClassVar[str] = "meanfield"
    unit: ClassVar[Unit] = Unit.TOKENS

    def __init__(self) -> None:
        self._cold = Aimd()
        self._turns = Turns()
        self._think = ThinkTimes()
        self._costs = StepCosts()
        self._stretches = Stretches()
        self._idle = IdlePlaces()
        self._due_at = -math.inf
        self._reason = "nothing is known yet"
        self._window: float | None = None
        self._window_at = -math.inf
        self._model: Model | None = None
        self._best: Point | None = None
        self._now = -math.inf
        self._departed = 0

    def start(self, *, capacity_tokens: float | None, typical_footprint_tokens: float | None) -> float:
        """Return a part of the capacity, or room for some sessions where nobody knows it."""
        if capacity_tokens:
            return max(1.0, FIRST_SHARE * capacity_tokens)
        return max(1.0, FIRST_SESSIONS * (typical_footprint_tokens or TYPICAL_TOKENS))

    def observe(self, record: TurnRecord, *, now: float) -> None:
        self._cold.observe(record, now=now)
        self._turns.add(record, now=now)
        self._stretches.turn(record)
        if record.outcome is Outcome.COMPLETED:
            self._idle.turn(came_back=continues(record))
        if record.think_s is not None:
            self._think.add(record.think_s)

    def update(self, signals: Signals, view: WindowView, *, now: float) -> Verdict:
        self._now = now
        self._turns.depart(max(0, view.departed - self._departed))
        self._departed = view.departed
        # The gate counts what sessions share once, and a turn's output from the beginning.
        beside = self._turns.prefix - self._turns.output / 2
        self._stretches.update(signals, view, self._costs, beside=beside, now=now)
        self._idle.update(max(0, view.active - view.running), now=now)
        capacity = view.cache_tokens or signals.capacity_tokens
        if self._idle.nobody_comes_back():
            return self._hold_nobody(view, words.NOTHING_RETURNS)
        if capacity is None or not self._knows_enough:
            return self._find_out(signals, view, capacity, now)
        if now < self._due_at:
            return Verdict(view.window, self._reason)
        self._due_at = now + SLACK * PERIOD_S
        self._model = self._modelled(view, capacity)
        points = self._model.points()
        self._best = self._model.best(points)
        return self._decide(points, self._best, view, now)

    # before enough is known

    @property
    def _knows_enough(self) -> bool:
        turns, think, busy = self._turns.count, self._think.weight, self._costs.busy_s
        return turns >= ENOUGH_TURNS and think >= ENOUGH_THINKING and busy >= ENOUGH_BUSY_S

    def _find_out(self, signals: Signals, view: WindowView, capacity: float | None, now: float) -> Verdict:
        """Go by ``aimd``, which counts sessions, and by what fits."""
        typical = max(view.footprint_tokens / view.active if view.active else TYPICAL_TOKENS, 1.0)
        sessions = view.window / typical
        verdict = self._cold.update(signals, replace(view, window=sessions), now=now)
        if capacity is not None and verdict.window >= sessions:
            start = self.start(capacity_tokens=capacity, typical_footprint_tokens=None)
            return Verdict(start, words.warm_start(start, capacity))
        window = view.window if verdict.window == sessions else verdict.window * typical
        return Verdict(window, words.cold(verdict.reason))

    # by the model

    def _modelled(self, view: WindowView, capacity: float) -> Model:
        turns = self._turns
        traffic = Traffic(
            new=turns.new,
            history=turns.history,
            output=max(turns.output, 1.0),
            context=turns.context,
            footprint=self._mean_context(view) + GROWTH_TURNS * turns.growth * turns.returns,
            returns=turns.returns,
        )
        return Model(
            self._costs.estimate(),
            traffic,
            self._think.curve(traffic.returns),
            self._idle_s,
            max(capacity - view.shared_tokens, 1.0),
            self._stretches.share,
        )

    def _mean_context(self, view: WindowView) -> float:
        """Tokens of an active session, beside what sessions share."""
        turns = self._turns
        whole = (view.footprint_tokens - view.shared_tokens) / view.active if view.active else turns.left - turns.prefix
        return max(whole, 1.0)

    @property
    def _idle_s(self) -> float:
        """Seconds that a place is idle for each turn; think time where places have not been seen for long enough."""
        measured = self._idle.seconds_per_turn()
        return (self._think.mean_s or 0.0) if measured is None else measured

    def _decide(self, points: Sequence[Point], best: Point, view: WindowView, now: float) -> Verdict:
        demand = view.active + view.held
        context = self._mean_context(view)
        window = self._smooth(max(1.0, best.window) * context + view.shared_tokens, now)
        if best.window < demand and best.rate < (1.0 + WORTH) * rate_of(demand, points):
            return self._hold_nobody(view, words.not_worth(demand))
        return self._say(window, words.window(best, context, demand))

    def _hold_nobody(self, view: WindowView, reason: str) -> Verdict:
        """Let all in who are here, and as many again: what comes until the next update will hardly be more."""
        sessions = AMPLE * max(view.active + view.held, FIRST_SESSIONS)
        return self._say(sessions * self._mean_context(view) + view.shared_tokens, reason)

    def _say(self, window: float, reason: str) -> Verdict:
        self._reason = reason
        return Verdict(window, reason)

    def _smooth(self, window: float, now: float) -> float:
        """A moving mean of some seconds: single samples move the window little."""
        if self._window is not None and now > self._window_at:
            weight = 1.0 - math.exp((self._window_at - now) / SMOOTHING_S)
            window = self._window + weight * (window - self._window)
        self._window, self._window_at = window, now
        return window

    # across restarts

    def dump(self) -> Mapping[str, object]:
        """Return what has been learned of turns, agents and engine."""
        return state.dump(self._turns, self._think, self._costs)

    def load(self, kept: Mapping[str, Any]) -> None:
        """Take over what ``dump`` gave; ValueError where it is not that, and nothing has changed."""
        state.load(kept, self._turns, self._think, self._costs)

    # for people

    def snapshot(self) -> Mapping[str, object]:
        turns, model, best = self._turns, self._model, self._best
        costs: Costs = self._costs.estimate()
        return {
            "turns": round(turns.count, 1),
            "new_tokens": turns.new,
            "output_tokens": turns.output,
            "history_tokens": turns.history,
            "shared_prefix_tokens": turns.prefix,
            "context_tokens": turns.context,
            "growth_tokens": turns.growth,
            "returning_share": turns.returns,
            "think_s": self._think.mean_s,
            "idle_s": self._idle_s,
            "step_s": costs.step_s,
            "token_s": costs.token_s,
            "decode_s": costs.decode_s,
            "context_token_s": costs.context_s,
            "learned_busy_s": self._costs.busy_s,
            "share": self._stretches.share,
            "footprint_tokens": model.traffic.footprint if model else None,
            "cache_tokens": model.capacity if model else None,
            "running": best.running if best else None,
            "sessions": best.window if best else None,
            "predicted_hit_rate": best.hit_rate if best else None,
            "observed_hit_rate": turns.hit_rate,
            "predicted_turns_per_s": best.rate if best else None,
            "observed_turns_per_s": turns.rate(now=self._now),
        }
