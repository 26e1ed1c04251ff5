"""``meanfield`` as a whole: from nothing known to a window, and what it keeps and says."""

import functools
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from concur_proxy.model import BackendId, Outcome, SessionKey, TurnRecord, Usage
from concur_proxy.windows.base import Learner
from concur_proxy.windows.meanfield import Meanfield
from tests.windows.cases import Run, make, signals, view

CAPACITY = 300_000.0
COSTS = (0.022, 1.25e-4, 3e-5, 8.7e-8)


class Load:
    """A closed house of agents on one engine, second by second: turns and counters as the law would be told them."""

    def __init__(
        self, *, context=12_000, new=600, output=250, think_s=5.0, running=12, capacity=CAPACITY, returns=True
    ):
        self.context, self.new, self.output, self.think_s = context, new, output, think_s
        self.running, self.capacity, self.returns = running, capacity, returns

    @property
    def rate(self):
        step = COSTS[0] + self.running * (COSTS[1] + COSTS[2] + COSTS[3] * self.context)
        prefill = COSTS[1] * self.new * self.running / self.output
        return self.running / (self.output * (step + prefill))

    def turns(self, second):
        history = self.context - self.new - self.output if self.returns else None
        count = int(self.rate * (second + 1)) - int(self.rate * second)
        for number in range(count):
            yield TurnRecord(
                BackendId("a"),
                SessionKey("", f"{second}-{number}"),
                Outcome.COMPLETED,
                arrived_at=0.0,
                admitted_at=0.0,
                finished_at=10.0,
                first_token_at=1.0,
                think_s=self.think_s * (0.5 + (second % 11) / 10) if self.returns else None,
                usage=Usage(self.context - self.output, self.output, history or 0),
                expected_cached_tokens=history,
            )

    def told(self):
        decoded = self.rate * self.output
        return {
            "steps": decoded / self.running,
            "scheduled_tokens": decoded + self.rate * self.new,
            "generation_tokens": decoded,
            "capacity_tokens": self.capacity,
            "kv_usage": 0.4,
            "hit_rate": 0.9,
        }

    def seen(self, second, active, held):
        return {
            "active": active,
            "running": self.running,
            "held": held,
            "bound": held > 0,
            "footprint_tokens": float(active * self.context),
            "running_tokens": float(self.running * (self.context + self.output / 2)),
            "busy_s": float(second),
            "cache_tokens": self.capacity,
            "typical_footprint_tokens": float(self.context),
        }

    def play(self, run, seconds, *, active=20, held=100):
        for second in range(seconds):
            run.step(turns=list(self.turns(second)), seen=self.seen(second, active, held), **self.told())
        return run


SECONDS = 90
SESSION = 12_000
START = 20.0 * SESSION


@functools.cache
def settled(**kwargs):
    """A run that has found its window; to be looked at only."""
    return fresh(**kwargs)


def fresh(**kwargs):
    return Load(**kwargs).play(Run(make("meanfield"), START), SECONDS)


def test_it_finds_the_window_that_fits():
    """Twelve thousand tokens a session, and what each will grow by: a good twenty fit, and no more are let in."""
    run = settled()
    assert 16 <= run.window / SESSION <= 25
    assert "running" in run.verdicts[-1].reason
    assert "tool calls" in run.verdicts[-1].reason


def test_twice_the_cache_is_about_twice_the_window():
    assert settled(capacity=2 * CAPACITY).window == pytest.approx(2 * settled().window, rel=0.25)


def test_agents_that_think_for_long_make_a_larger_window_at_a_lower_hit_rate():
    short, long = settled(), settled(think_s=60.0)
    assert long.window > short.window
    assert long.law.snapshot()["predicted_hit_rate"] < short.law.snapshot()["predicted_hit_rate"]


def test_before_anything_is_known_it_is_a_part_of_the_cache():
    run = Run(make("meanfield"), CAPACITY / 8)
    assert run.step(seen={"cache_tokens": CAPACITY}, capacity_tokens=CAPACITY).window == CAPACITY / 2
    assert "too little is known" in run.verdicts[-1].reason


def test_what_sessions_share_counts_once():
    run, load = fresh(), Load()
    seen = load.seen(SECONDS, 20, 100)
    shared = {"footprint_tokens": seen["footprint_tokens"] + 50_000, "shared_tokens": 50_000.0}
    run.law.update(signals(**load.told()), view(run.window, **seen | shared), now=run.now + 1)
    snapshot = run.law.snapshot()
    assert snapshot["cache_tokens"] == CAPACITY - 50_000
    assert snapshot["footprint_tokens"] == pytest.approx(settled().law.snapshot()["footprint_tokens"], rel=0.01)


@pytest.mark.parametrize("active", [12, 200])
def test_single_questions_are_never_held(active):
    """Whether they say that they are done, or keep idle places until their leases end."""
    run = Load(returns=False).play(Run(make("meanfield"), START), 120, active=active)
    assert run.window >= 2 * (active + 100) * SESSION
    assert "nobody is held" in run.verdicts[-1].reason


def test_agents_at_their_first_tool_call_are_not_taken_for_single_questions():
    run = Load(returns=False).play(Run(make("meanfield"), START), 40, active=20)
    assert run.window <= CAPACITY


def test_where_all_fit_nobody_is_held():
    run = Load(capacity=10 * CAPACITY).play(Run(make("meanfield"), START), SECONDS, active=20, held=5)
    assert run.window > 25 * SESSION


def test_it_says_what_it_goes_by():
    snapshot = settled().law.snapshot()
    assert snapshot["think_s"] == pytest.approx(5.0, rel=0.1)
    assert snapshot["output_tokens"] == pytest.approx(250)
    assert snapshot["new_tokens"] == pytest.approx(600, rel=0.02)
    assert snapshot["history_tokens"] == pytest.approx(11_150, rel=0.02)
    load = Load()
    predicted = sum(
        snapshot[name] * value
        for name, value in (
            ("step_s", load.told()["steps"]),
            ("token_s", load.told()["scheduled_tokens"]),
            ("decode_s", load.told()["generation_tokens"]),
            ("context_token_s", load.told()["generation_tokens"] * load.context),
        )
    )
    assert predicted == pytest.approx(1.0, rel=0.02)
    for name in ("predicted", "observed"):
        assert 0 < snapshot[f"{name}_hit_rate"] <= 1
        assert snapshot[f"{name}_turns_per_s"] > 0


def test_it_does_not_depend_on_how_often_it_is_asked():
    often, once = Run(make("meanfield"), START), settled()
    load = Load()
    for second in range(SECONDS):
        told = load.told()
        seen = load.seen(second, 20, 100)
        often.step(turns=list(load.turns(second)), seen=seen, **told)
        for _ in range(3):
            often.step(after=0.0, seen=seen, **dict.fromkeys(told) | {"capacity_tokens": CAPACITY, "interval_s": None})
    assert often.window == pytest.approx(once.window, rel=0.02)


@settings(max_examples=20, deadline=None)
@given(ages=st.lists(st.floats(0.0, 500.0), max_size=20), held=st.integers(0, 50))
def test_stale_samples_never_stop_it_from_answering(ages, held):
    run = Run(make("meanfield"), START)
    run.law.load(settled().law.dump())
    for age in ages:
        verdict = run.step(age_s=age, interval_s=None, kv_usage=None, seen={"held": held})
        assert math.isfinite(verdict.window)
        assert verdict.window >= 1


class TestKeeping:
    def test_what_was_learned_is_there_at_once_after_a_restart(self):
        before = settled()
        kept = json.loads(json.dumps(before.law.dump()))
        law = make("meanfield")
        law.load(kept)
        load, run = Load(), Run(law, START)
        run.step(seen=load.seen(0, 20, 100), **load.told())
        assert run.window == pytest.approx(before.window, rel=0.15)
        assert law.snapshot()["step_s"] == before.law.snapshot()["step_s"]

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda kept: kept.clear(),
            lambda kept: kept.update(version=0),
            lambda kept: kept.pop("costs"),
            lambda kept: kept.update(think=[]),
            lambda kept: kept["think"].update(weights=[1.0]),
            lambda kept: kept["think"].update(weights=7),
            lambda kept: kept["turns"].pop("output"),
            lambda kept: kept["turns"].update(output=-1.0),
            lambda kept: kept["turns"].update(output=True),
            lambda kept: kept["turns"].update(output="many"),
            lambda kept: kept["costs"].update(busy_s=math.nan),
            lambda kept: kept["costs"]["products"].append(1.0),
        ],
    )
    def test_what_is_spoilt_is_refused_as_a_whole(self, spoil):
        kept = json.loads(json.dumps(settled().law.dump()))
        spoil(kept)
        law = make("meanfield")
        before = law.snapshot()
        with pytest.raises(ValueError, match=r"version|not"):
            law.load(kept)
        assert law.snapshot() == before

    def test_laws_that_do_not_learn_keep_nothing(self):
        law = make("fixed")
        assert law.dump() == {}
        law.load({"version": 2})

    def test_it_is_a_learner(self):
        assert isinstance(Meanfield(), Learner)
        assert isinstance(make("meanfield"), Learner)


def test_the_time_of_an_update_is_bounded_by_its_period():
    """Asked again within a second it answers what it has answered, whatever it has learned since."""
    run, load = fresh(), Load(context=2000)
    first = run.step(seen=load.seen(SECONDS, 20, 100), **load.told())
    again = run.law.update(signals(interval_s=None), view(first.window, cache_tokens=CAPACITY), now=run.now + 0.1)
    assert (again.window, again.reason.split(";")[0]) == (first.window, first.reason.split(";")[0])
