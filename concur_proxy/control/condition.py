"""Whether a backend can take turns: a state machine over probes, turns and sleep. Pure.

Rules:
- Up after one good probe at the start, after ``RISE`` in a row once it was lost.
- Lost after ``FALL`` bad probes in a row, at once at the start. Probes without any answer do not count while turns get
  theirs: an engine that is too busy for its health page is not dead.
- ``STREAK`` failed turns in a row, with nothing that worked between, take the backend out of use for a while, even
  where its health page is green; each time again for twice as long. What runs there may end.
- A client error (4xx), a refusal (429, 503) and any other answer of the engine are proof of life.
- Asleep, it gets no turns. Awake again or back from the dead, its KV cache is presumed empty.
- Before it takes turns (``rising``) the caller may prepare it: a trial after a rest, a warm-up where its cache is
  presumed empty. A trial that fails is one more rest. Whatever else comes between, a drain for example, nothing but a
  good probe lets turns go to an empty cache: the caller has warmed it by then.
- Drained by an operator it takes no turns, whatever else is true of it.
"""

from __future__ import annotations

import enum
from typing import Final

from concur_proxy.model import BackendEvent, Outcome

RISE = 2
FALL = 3
STREAK = 5
REST_S = 5.0
LONGEST_REST_S = 60.0
ALIVE_S = 7.0
"""So long an answered turn vouches for the engine."""

_FAILED: Final = frozenset({Outcome.ENGINE_ERROR, Outcome.BACKEND_LOST, Outcome.TIMED_OUT})
_SAYS_NOTHING: Final = frozenset({Outcome.CANCELLED, Outcome.SHUTDOWN})


class State(enum.Enum):
    UNKNOWN = "unknown"
    UP = "up"
    RESTING = "resting"
    """Its health page is good, but turns fail there."""
    DRAINING = "draining"
    """An operator wants no more turns to go there."""
    ASLEEP = "asleep"
    WARMING = "warming"
    """Nothing else stands in its way; the next good probe lets it take turns."""
    LOST = "lost"


_EVENTS = {
    State.UP: BackendEvent.UP,
    State.RESTING: BackendEvent.DRAINING,
    State.DRAINING: BackendEvent.DRAINING,
    State.ASLEEP: BackendEvent.DRAINING,
    State.WARMING: BackendEvent.DRAINING,
    State.LOST: BackendEvent.LOST,
}


class Rise(enum.Enum):
    """How a backend is about to come up."""

    TRIAL = "trial"
    """Turns have failed there, and it has rested."""
    EMPTY = "empty"
    """It is new, was lost or slept: nothing is in its cache."""


class Condition:
    """One backend. Each method returns what the gate must be told, in order."""

    __slots__ = (
        "_alive_at",
        "_asleep",
        "_bad",
        "_drained",
        "_empty",
        "_good",
        "_reachable",
        "_rest_s",
        "_rest_until",
        "_streak",
        "_why",
    )

    def __init__(self) -> None:
        self._why = "not probed yet"
        self._reachable: bool | None = None
        self._good = 0
        self._bad = 0
        self._asleep = False
        self._drained = False
        self._empty = True
        """It is new, or was lost or slept since it last took turns: its cache is presumed empty."""
        self._alive_at: float | None = None
        self._streak = 0
        self._rest_s = 0.0
        self._rest_until: float | None = None

    @property
    def state(self) -> State:
        if self._reachable is None:
            return State.UNKNOWN
        if not self._reachable:
            return State.LOST
        if self._drained:
            return State.DRAINING
        if self._asleep:
            return State.ASLEEP
        if self._rest_until is not None:
            return State.RESTING
        return State.WARMING if self._empty else State.UP

    @property
    def problem(self) -> str | None:
        """Why it is not up, in words; None where it is."""
        if self.state is State.DRAINING:
            return "it was drained by an operator"
        if self.state is State.WARMING:
            return "its cache is empty: what many sessions share goes there first"
        return None if self.state is State.UP else self._why

    @property
    def suspect(self) -> bool:
        """Something failed lately, or it is about to come up: look more often."""
        if self._bad > 0 or self._streak > 0:
            return True
        return self._empty and (self.state is State.WARMING or (self._reachable is False and self._good > 0))

    def rising(self, *, now: float) -> Rise | None:
        """Return how it comes up if the probe that has just been good is told of; None where it stays as it is."""
        is_back = self._reachable is not False or self._good + 1 >= RISE
        if not is_back or self._drained or self._asleep:
            return None
        if self._rest_until is not None:
            return Rise.TRIAL if now >= self._rest_until else None
        return Rise.EMPTY if self._empty else None

    def probed(self, problem: str | None, *, silent: bool = False, now: float) -> list[BackendEvent]:
        """Take in a probe; ``problem`` is None where it was good, ``silent`` says that no answer came in time."""
        before = self.state
        if problem is None:
            is_warm = self.rising(now=now) is Rise.EMPTY
            self._good, self._bad = self._good + 1, 0
            if self._reachable is None or self._good >= RISE:
                self._reachable = True
            self._wake_from_rest(now)
            if is_warm:
                self._empty = False
                return [BackendEvent.UP] if before is State.UNKNOWN else [BackendEvent.FLUSHED, BackendEvent.UP]
        else:
            self._good, self._bad = 0, self._bad + 1
            self._why = problem
            vouched = silent and self._alive_at is not None and now - self._alive_at < ALIVE_S
            if self._reachable is None or (self._bad >= FALL and not vouched):
                self._reachable = False
        return self._events(before)

    def turn_ended(self, outcome: Outcome, *, now: float) -> list[BackendEvent]:
        """Take in how a turn ended there."""
        if not self._streak and not self._rest_s and outcome not in _FAILED:  # as nearly always
            if outcome not in _SAYS_NOTHING:
                self._alive_at = now
            return []
        before = self.state
        if outcome in _FAILED:
            self._streak += 1
            # After a rest the first failure is enough: the rest was the trial.
            if self._streak >= STREAK or (self._rest_s > 0 and self._rest_until is None):
                self._rest(now)
        elif outcome not in _SAYS_NOTHING:
            self._streak, self._rest_s, self._rest_until = 0, 0.0, None
            self._alive_at = now
        return self._events(before)

    def sleeping(self, *, asleep: bool) -> list[BackendEvent]:
        """Take in what the engine says of itself."""
        before = self.state
        self._asleep = asleep
        if asleep:
            self._why = "the engine sleeps"
        return self._events(before)

    def trial_failed(self, problem: str, *, now: float) -> None:
        """Let it rest again, for longer: what was to show that it works did not."""
        self._rest_until = None
        self._rest(now)
        self._why = f"a trial failed there: {problem}"

    def drain(self, *, drained: bool) -> list[BackendEvent]:
        """Take in whether an operator wants turns to go there."""
        before = self.state
        self._drained = drained
        return self._events(before)

    def _rest(self, now: float) -> None:
        if self._rest_until is None:
            self._rest_s = min(max(REST_S, 2 * self._rest_s), LONGEST_REST_S)
            self._rest_until = now + self._rest_s
            self._why = f"{self._streak} turns in a row failed there"

    def _wake_from_rest(self, now: float) -> None:
        if self._rest_until is not None and now >= self._rest_until:
            self._rest_until = None
            self._streak = 0

    def _events(self, before: State) -> list[BackendEvent]:
        if not self._reachable or self._asleep:
            self._empty = True
        after = self.state
        # One reason may follow another: the gate knows already.
        if after is before or after is State.UNKNOWN or _EVENTS.get(before) is _EVENTS[after]:
            return []
        return [_EVENTS[after]]
