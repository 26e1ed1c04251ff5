"""What laws are asked with, plain unless told otherwise, and a run of a law against a window that obeys it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from concur_proxy.model import BackendId, Outcome, SessionKey, Signals, TurnRecord, Usage
from concur_proxy.windows import CONSTANT, LAWS, build_law
from concur_proxy.windows.base import WindowView

ALL = sorted(LAWS)
ADAPTIVE = sorted(set(LAWS) - CONSTANT)
STALE_S, DECAY_S = 10.0, 60.0

lives = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""There are many laws, and each of them meets as many lives, on a busy machine as well."""


def make(name, params=None, *, minimum=1.0, maximum=math.inf):
    return build_law(name, params or {}, minimum=minimum, maximum=maximum, stale_after_s=STALE_S, decay_after_s=DECAY_S)


def signals(**fields):
    return Signals(**{"age_s": 0.1, "interval_s": 1.0, "rejections": 0.0} | fields)


ROOM = {"kv_usage": 0.1, "hit_rate": 0.9}
CONGESTION = {"kv_usage": 0.9, "hit_rate": 0.05}
SILENCE = {"age_s": math.inf, "interval_s": None}


def view(window=16.0, **fields):
    return WindowView(
        **{
            "window": window,
            "minimum": 1.0,
            "maximum": math.inf,
            "active": 8,
            "running": 4,
            "held": 3,
            "bound": True,
            "footprint_tokens": 8000.0,
            "typical_footprint_tokens": None,
            "records_age_s": 0.5,
        }
        | fields
    )


def record(*, outcome=Outcome.COMPLETED, prompt=1000, cached=900, expected=900, first_token_s=0.1):
    return TurnRecord(
        BackendId("a"),
        SessionKey("", "s"),
        outcome,
        arrived_at=0.0,
        admitted_at=0.0,
        finished_at=1.0 + (first_token_s or 0.0),
        first_token_at=first_token_s,
        usage=Usage(prompt, 10, cached),
        expected_cached_tokens=expected,
    )


@dataclass(frozen=True, slots=True)
class Case:
    """What an easy and a hard time are for a law, by all that laws go by, and what of its window a session is."""

    room: Mapping[str, Any] = field(default_factory=lambda: {**ROOM, "turns": [record()] * 8})
    congestion: Mapping[str, Any] = field(
        default_factory=lambda: {**CONGESTION, "turns": [record(cached=0, first_token_s=20.0)] * 8}
    )
    session: float = 1.0

    def run(self, name: str, sessions: float = 16.0, **seen: Any) -> "Run":
        """Return a run at so many sessions, after a while of an easy time in which nobody waited."""
        tokens = 1000.0 * seen.get("active", 8)
        run = Run(make(name), sessions * self.session, **{"footprint_tokens": tokens} | seen)
        run.steps(10, seen={"bound": False, "held": 0}, **self.room)
        run.verdicts.clear()
        return run


CASES = {
    "footprint": Case(
        room={**ROOM, "capacity_tokens": 1e6, "turns": [record()] * 8},
        congestion={**CONGESTION, "capacity_tokens": 4000.0, "turns": [record(cached=0)] * 8},
        session=1000.0,
    ),
    "meanfield": Case(session=1000.0),
}
"""Where a law goes by something else than KV usage, hit rate and latency, or does not count sessions."""


def case(name: str) -> Case:
    return CASES.get(name, Case())


class Run:
    """A window that does what its law says, second by second."""

    def __init__(self, law, window=16.0, *, now=1000.0, **fields):
        self.law, self.window, self.now, self.fields = law, window, now, fields
        self.verdicts = []

    def step(self, *, after=1.0, seen=None, turns=(), **told):
        self.now += after
        for turn in turns:
            self.law.observe(turn, now=self.now)
        verdict = self.law.update(signals(**told), view(self.window, **self.fields | (seen or {})), now=self.now)
        self.verdicts.append(verdict)
        self.window = verdict.window
        return verdict

    def steps(self, count, **kwargs):
        for _ in range(count):
            self.step(**kwargs)
        return self.window

    @property
    def windows(self):
        return [verdict.window for verdict in self.verdicts]


def maybe(strategy):
    return st.none() | strategy


shares = st.floats(0.0, 1.0)
counts = st.floats(0.0, 1e7)
ages = st.floats(0.0, 1e4) | st.just(math.inf)

some_signals = st.builds(
    Signals,
    age_s=ages,
    interval_s=maybe(st.floats(0.01, 100.0)),
    running=maybe(counts),
    waiting=maybe(counts),
    kv_usage=maybe(shares),
    hit_rate=maybe(shares),
    evictable_tokens=maybe(counts),
    preemptions=maybe(counts),
    requests=maybe(counts),
    rejections=maybe(counts),
    capacity_tokens=maybe(counts),
)

some_records = st.builds(
    record,
    outcome=st.sampled_from(Outcome),
    prompt=st.integers(0, 10**6),
    cached=maybe(st.integers(0, 10**6)),
    expected=maybe(st.integers(0, 10**6)),
    first_token_s=maybe(st.floats(0.0, 1000.0)),
)

some_seen = st.fixed_dictionaries(
    {
        "active": st.integers(0, 10_000),
        "running": st.integers(0, 10_000),
        "held": st.integers(0, 10_000),
        "bound": st.booleans(),
        "footprint_tokens": counts,
        "typical_footprint_tokens": maybe(st.floats(1.0, 1e6)),
        "records_age_s": ages,
    }
)

some_turns = st.builds(lambda one, times: [one] * times, some_records, st.integers(0, 10))
some_steps = st.lists(st.tuples(st.floats(0.0, 20.0), some_signals, some_seen, some_turns), max_size=12)
"""Seconds since the step before, what is told, what is seen, which turns have finished."""
