import math
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.core.regulator import HISTORY_POINTS, Bounds, Regulator
from concur_proxy.engines.base import EngineSample
from concur_proxy.model import BackendEvent, BackendId, Outcome, SessionKey, TurnRecord, Usage
from concur_proxy.windows.base import Unit
from tests.control.gates import FakeGate, StepLaw, TokenLaw

A = BackendId("a")


def turn(outcome=Outcome.COMPLETED):
    return TurnRecord(A, SessionKey("", "s"), outcome, 0.0, 0.0, 1.0, usage=Usage(100, 10, 60))


def regulator(gate, bounds=None, make_law=StepLaw, **fields):
    told = {"capacity_hint": None, "on_problem": lambda words, error: None}
    return Regulator(A, gate, make_law, bounds or Bounds(), **told | fields)


def test_the_gate_gets_a_first_window_within_the_bounds():
    gate = FakeGate()
    regulator(gate, Bounds(2, 8))
    assert (gate.window[A], gate.unit[A], gate.bounds[A]) == (8, Unit.SESSIONS, (2, 8))


def test_an_update_hands_over_what_is_new_and_resizes():
    gate = FakeGate()
    one = regulator(gate)
    one.sample(EngineSample(at=0.0, preemptions=5, kv_usage_max=0.5))
    one.sample(EngineSample(at=1.0, preemptions=7, kv_usage_max=0.75))
    one.update(now=1.5)
    one.update(now=2.5)
    first, second = (signals for signals, _, _ in one.law.seen)
    assert (first.preemptions, first.kv_usage, first.age_s) == (2, 0.75, 0.5)
    assert (second.preemptions, second.kv_usage, second.age_s) == (None, 0.75, 1.5)
    assert gate.resized == [(A, 11, False), (A, 12, False)]
    assert one.verdict.reason == "plus 1"


def test_turns_reach_the_law_and_the_hit_rate():
    one = regulator(FakeGate())
    one.record(turn(), now=3.0)
    one.update(now=4.0)
    assert one.law.records == [(turn(), 3.0)]
    assert one.signals.hit_rate == 0.6
    assert one.signals.rejections == 0


def test_a_refusal_is_told_by_the_data_path_and_not_again_by_the_record():
    one = regulator(FakeGate())
    one.tracker.refused()
    one.record(turn(Outcome.OVERLOADED), now=3.0)
    one.update(now=3.0)
    assert one.signals.rejections == 1
    one.update(now=4.0)
    assert one.signals.rejections == 0


def test_a_restart_flushes_and_is_told_once():
    gate = FakeGate()
    one = regulator(gate)
    one.sample(EngineSample(at=0.0, prompt_tokens=500))
    one.sample(EngineSample(at=1.0, prompt_tokens=20))
    one.sample(EngineSample(at=2.0, prompt_tokens=30))
    assert gate.events == [(A, BackendEvent.FLUSHED)]


def test_the_engines_capacity_goes_before_the_operators():
    gate = FakeGate()
    one = regulator(gate, capacity_hint=1000)
    assert gate.capacity == {A: 1000}
    one.update(now=0.0)
    assert one.signals.capacity_tokens == 1000
    one.sample(EngineSample(at=0.0, capacity_tokens=5000))
    assert gate.capacity == {A: 5000}
    one.update(now=1.0)
    assert one.signals.capacity_tokens == 5000


@pytest.mark.parametrize(("active", "window"), [(0, 50), (3, 11)])
def test_a_window_chosen_without_the_capacity_is_chosen_again_while_nobody_is_active(active, window):
    gate = FakeGate()
    gate.active = active
    one = regulator(gate)
    one.update(now=0.0)
    one.law.first = 50.0
    one.sample(EngineSample(at=0.0, capacity_tokens=5000))
    assert gate.window[A] == window
    assert one.law.starts == ([None] if active else [None, 5000])
    gate.active = 0
    one.law.first = 70.0
    one.sample(EngineSample(at=1.0, capacity_tokens=5000))
    assert gate.window[A] == window


def test_where_the_operators_cap_limits_it_is_a_hard_limit():
    gate = FakeGate()
    one = regulator(gate, Bounds(1, 11.5))
    one.update(now=0.0)
    one.update(now=1.0)
    assert gate.resized == [(A, 11, False), (A, 11.5, True)]
    assert one.verdict.reason == "plus 1; at the upper bound"


def test_an_unlimited_window_is_no_hard_limit():
    gate = FakeGate()
    regulator(gate, make_law=partial(StepLaw, start=math.inf)).update(now=0.0)
    assert gate.resized == [(A, math.inf, False)]


def test_bounds_that_change_move_the_window_at_the_next_update():
    gate = FakeGate()
    one = regulator(gate)
    one.set_bounds(Bounds(1, 5))
    assert gate.bounds[A] == (1, 5)
    one.update(now=0.0)
    assert gate.resized == [(A, 5, True)]
    one.set_bounds(Bounds(20, 50))
    one.update(now=1.0)
    assert gate.resized[-1] == (A, 20, False)


def test_an_operators_window_stands_until_it_is_taken_back_and_the_law_goes_on():
    gate = FakeGate()
    one = regulator(gate, Bounds(1, 100))
    one.set_window(3.0)
    one.update(now=0.0)
    assert gate.resized == [(A, 3, True)]
    assert one.verdict.reason == "set by the operator"
    assert len(one.law.seen) == 1
    one.set_window(None)
    one.update(now=1.0)
    assert gate.resized[-1] == (A, 4, False)


def test_an_operators_window_keeps_to_the_bounds():
    gate = FakeGate()
    one = regulator(gate, Bounds(2, 8))
    one.set_window(100.0)
    one.update(now=0.0)
    assert gate.window[A] == 8


def test_another_law_of_the_same_unit_goes_on_from_the_window_in_force():
    gate = FakeGate()
    one = regulator(gate)
    one.update(now=0.0)
    one.set_law(partial(StepLaw, step=5.0))
    assert gate.window[A] == 11
    one.update(now=1.0)
    assert gate.window[A] == 16


@pytest.mark.parametrize(
    ("old", "new"), [(StepLaw, TokenLaw), (partial(StepLaw, start=math.inf), StepLaw)], ids=["unit", "unlimited"]
)
def test_another_unit_or_an_endless_window_starts_anew(old, new):
    gate = FakeGate()
    one = regulator(gate, make_law=old)
    one.set_law(partial(new, start=40.0))
    assert (gate.window[A], gate.unit[A]) == (40, one.law.unit)


def test_a_law_that_fails_leaves_the_window_where_it_is():
    gate, problems = FakeGate(), []
    one = regulator(gate, on_problem=lambda words, error: problems.append((words, type(error))))
    one.law.fails = True
    one.record(turn(), now=0.0)
    one.update(now=0.0)
    assert gate.resized == [(A, 10, False)]
    assert one.verdict.reason == "the law step failed: the window stays"
    assert problems == [
        ("law step could not take in a turn", ZeroDivisionError),
        ("law step failed", ZeroDivisionError),
    ]


def test_history_is_kept_within_limits():
    gate = FakeGate()
    gate.active = 7
    one = regulator(gate)
    one.sample(EngineSample(at=0.0, kv_usage_max=0.5, prefix_queries=10, prefix_hits=0))
    one.sample(EngineSample(at=1.0, kv_usage_max=0.5, prefix_queries=20, prefix_hits=5))
    for now in range(HISTORY_POINTS + 1):
        one.update(now=float(now))
    assert len(one.history) == HISTORY_POINTS
    assert one.history[0].at == 1.0
    last = one.history[-1]
    assert (last.active, last.running, last.held, last.kv_usage, last.reason) == (7, 2, 1, 0.5, "plus 1")
    assert last.window == gate.window[A]


def test_history_tells_the_hit_rate_of_each_interval():
    one = regulator(FakeGate())
    one.sample(EngineSample(at=0.0, prefix_queries=10, prefix_hits=0))
    one.sample(EngineSample(at=1.0, prefix_queries=20, prefix_hits=5))
    one.update(now=1.0)
    one.update(now=2.0)
    assert [point.hit_rate for point in one.history] == [0.5, None]


@given(
    st.lists(st.floats(allow_nan=False), min_size=1, max_size=6),
    st.floats(1, 100),
    st.floats(1, 100) | st.just(math.inf),
)
def test_the_window_is_always_within_its_bounds(steps, minimum, maximum):
    """Invariant 5."""
    minimum, maximum = min(minimum, maximum), max(minimum, maximum)
    gate = FakeGate()
    one = regulator(gate, Bounds(minimum, maximum))
    for now, step in enumerate(steps):
        one.law.step = step
        one.update(now=float(now))
        assert minimum <= gate.window[A] <= maximum


class Learning(StepLaw):
    """Learns a number."""

    known = 0

    def dump(self):
        return {"known": self.known}

    def load(self, state):
        if "known" not in state:
            raise ValueError("nothing known")
        self.known = state["known"]


def test_what_a_law_has_learned_outlives_a_restart_and_a_change_of_its_parameters():
    one = regulator(FakeGate(), make_law=Learning)
    one.law.known = 7
    other = regulator(FakeGate(), make_law=Learning)
    other.load(one.dump())
    assert other.law.known == 7
    other.set_law(Learning)
    assert other.law.known == 7


def test_what_another_law_has_learned_is_left_alone():
    one = regulator(FakeGate(), make_law=Learning)
    one.load({"law": "another", "learned": {"known": 7}})
    assert one.law.known == 0
    assert regulator(FakeGate()).dump() is None


def test_a_state_that_a_law_refuses_is_a_problem_told():
    told = []
    one = regulator(FakeGate(), make_law=Learning, on_problem=lambda words, error: told.append(words))
    one.load({"law": one.law.name, "learned": {}})
    assert one.law.known == 0
    assert "nothing known" in told[0]
