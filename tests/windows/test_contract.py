"""What every law keeps, whatever it goes by. ``test_law_contract`` has what it keeps over time."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.model import Outcome
from concur_proxy.windows import LAWS, build_law
from concur_proxy.windows.base import Unit, Verdict
from tests.windows.cases import (
    ADAPTIVE,
    ALL,
    CONGESTION,
    DECAY_S,
    SILENCE,
    STALE_S,
    Run,
    case,
    lives,
    make,
    record,
    some_steps,
    view,
)


def play(law, steps, window, **fields):
    """Yield what was told, the view before each update and the verdict that it gave."""
    now = 0.0
    for after, told, seen, turns in steps:
        now += after
        for turn in turns:
            law.observe(turn, now=now)
        before = view(window, **seen | fields)
        verdict = law.update(told, before, now=now)
        yield told, before, verdict
        window = verdict.window


def warm(name):
    return make(name).start(capacity_tokens=None, typical_footprint_tokens=None)


@pytest.mark.parametrize("name", ALL)
class TestAnyLaw:
    @lives
    @given(steps=some_steps, start=st.floats(1.0, 1e5), bounds=st.tuples(st.floats(1.0, 100.0), st.floats(100.0, 1e4)))
    def test_the_window_stays_between_its_bounds_and_says_why_it_is_what_it_is(self, name, steps, start, bounds):
        law = make(name, minimum=bounds[0], maximum=bounds[1])
        for _, _, verdict in play(law, steps, start, minimum=bounds[0], maximum=bounds[1]):
            assert isinstance(verdict, Verdict)
            assert bounds[0] <= verdict.window <= bounds[1]
            assert verdict.reason

    @lives
    @given(steps=some_steps)
    def test_the_same_news_give_the_same_windows(self, name, steps):
        one, other = ([verdict for _, _, verdict in play(make(name), steps, 16.0)] for _ in range(2))
        assert one == other

    def test_it_says_what_it_is(self, name):
        law = make(name)
        assert law.name == name
        assert isinstance(law.unit, Unit)
        assert isinstance(law.snapshot(), dict)
        assert law.start(capacity_tokens=None, typical_footprint_tokens=None) >= 1

    @lives
    @given(capacity=st.none() | st.floats(0.0, 1e9), typical=st.none() | st.floats(0.0, 1e7))
    def test_it_starts_with_one_session_at_least(self, name, capacity, typical):
        assert make(name).start(capacity_tokens=capacity, typical_footprint_tokens=typical) >= 1

    @lives
    @given(steps=some_steps)
    def test_client_errors_say_nothing(self, name, steps):
        refused = [record(outcome=Outcome.CLIENT_ERROR, cached=0)] * 20
        with_errors = [(after, told, seen, turns + refused) for after, told, seen, turns in steps]
        assert [v for *_, v in play(make(name), with_errors, 16.0)] == [v for *_, v in play(make(name), steps, 16.0)]


@pytest.mark.parametrize("name", ADAPTIVE)
class TestAdaptiveLaw:
    @lives
    @given(steps=some_steps)
    def test_a_window_that_holds_nobody_back_does_not_grow(self, name, steps):
        for _, before, verdict in play(make(name), steps, 16.0, bound=False, held=0):
            assert verdict.window <= before.window

    @lives
    @given(steps=some_steps)
    def test_no_growth_when_samples_and_records_are_stale(self, name, steps):
        stale = [
            (after, replace(told, age_s=DECAY_S, hit_rate=None), seen, turns) for after, told, seen, turns in steps
        ]
        for _, before, verdict in play(make(name), stale, 16.0, records_age_s=STALE_S + 1):
            assert verdict.window <= before.window

    def test_it_grows_while_there_is_room(self, name):
        run = case(name).run(name)
        assert run.steps(5, **case(name).room) > 16 * case(name).session

    def test_held_turns_alone_bind(self, name):
        run = case(name).run(name, bound=False, held=1)
        assert run.steps(5, **case(name).room) > 16 * case(name).session

    def test_it_comes_back_when_the_load_has_dropped(self, name):
        run = case(name).run(name)
        low = run.steps(120, **case(name).congestion)
        assert low < 16 * case(name).session
        assert run.steps(30, seen={"bound": False, "held": 0}, **case(name).room) == low
        assert run.steps(30, **case(name).room) > 2 * low

    def test_congestion_that_lasts_cuts_once_per_drain(self, name):
        run = case(name).run(name, 64.0, active=64)
        run.steps(31, **case(name).congestion)
        assert len(set(run.windows)) == 2
        assert len(set(run.windows[:-1])) == 1

    @pytest.mark.parametrize("times", [0.1, 10.0])
    def test_stale_signals_freeze_the_window_then_lead_it_to_its_warm_start(self, name, times):
        start = times * warm(name)
        run = Run(make(name), start)
        for age in range(int(STALE_S) + 1, int(DECAY_S) + 1):
            assert run.step(age_s=age, interval_s=None).window == start
        for age in range(int(DECAY_S) + 1, 400):
            run.step(age_s=age, interval_s=None)
        assert run.window == pytest.approx(warm(name), rel=0.01)
        assert "goes back" in run.verdicts[-1].reason

    def test_where_records_are_stale_too_the_window_only_comes_down(self, name):
        old = {"records_age_s": 500.0}
        assert Run(make(name), 10 * warm(name)).steps(400, seen=old, **SILENCE) == pytest.approx(warm(name), rel=0.01)
        assert Run(make(name), 0.1 * warm(name)).steps(400, seen=old, **SILENCE) == 0.1 * warm(name)

    def test_the_way_back_does_not_depend_on_how_often_it_asks(self, name):
        often, seldom = Run(make(name), 10 * warm(name)), Run(make(name), 10 * warm(name))
        often.steps(1, **SILENCE)
        seldom.steps(1, **SILENCE)
        often.steps(200, after=0.1, **SILENCE)
        seldom.steps(2, after=10.0, **SILENCE)
        assert often.window == pytest.approx(seldom.window)

    def test_fresh_records_alone_permit_growth(self, name):
        start = 0.5 * warm(name)
        assert Run(make(name), start).steps(20, turns=[record()] * 4, **SILENCE) > start

    def test_refusals_shrink_the_window_and_make_it_hard(self, name):
        run = case(name).run(name, running=12, active=12)
        verdict = run.step(rejections=1.0, **case(name).room)
        assert verdict.window == pytest.approx(12 * 0.9 * case(name).session)
        assert (verdict.reason, verdict.hard) == ("the engine refused 1: cut", True)

    def test_a_burst_of_refusals_is_one_cut(self, name):
        run = case(name).run(name, running=12, active=12)
        run.steps(20, after=0.1, rejections=5.0, interval_s=None)
        assert len(set(run.windows)) == 1
        assert run.window == pytest.approx(12 * 0.9 * case(name).session)
        assert all(verdict.hard for verdict in run.verdicts)

    def test_an_engine_that_refuses_everything_does_not_take_the_window_to_its_end(self, name):
        run = case(name).run(name, 100.0, running=0, active=0)
        assert run.step(rejections=50.0, **case(name).room).window == 25 * case(name).session

    def test_refusals_are_news_also_without_metrics(self, name):
        run = Run(make(name), 16 * case(name).session, running=12, footprint_tokens=12_000.0)
        assert run.step(rejections=1.0, **SILENCE).window == pytest.approx(12 * 0.9 * case(name).session)

    def test_preemptions_stop_growth(self, name):
        run = case(name).run(name)
        assert run.steps(5, preemptions=1.0, **case(name).room) == 16 * case(name).session
        assert run.verdicts[-1].hard
        assert run.steps(5, preemptions=0.0, **case(name).room) > 16 * case(name).session
        assert not run.verdicts[-1].hard


def test_constant_laws_are_the_operators_word():
    for name, window in (("unlimited", math.inf), ("fixed", 7.0)):
        run = Run(make(name, {"window": 7.0} if name == "fixed" else None), window)
        run.steps(5, rejections=3.0, preemptions=2.0, **CONGESTION)
        run.steps(5, **SILENCE)
        assert set(run.windows) == {window}
        assert not any(verdict.hard for verdict in run.verdicts)


@pytest.mark.parametrize("name", ["unlimited", "fixed"])
def test_bounds_hold_for_constant_laws_too(name):
    assert Run(make(name), maximum=5.0).steps(2, **CONGESTION) == 5
    assert Run(make(name), minimum=40.0, maximum=math.inf).steps(2, **CONGESTION) >= 40


def test_an_unknown_name_is_no_law():
    with pytest.raises(KeyError):
        build_law("best", {}, minimum=1.0, maximum=10.0)


def test_laws_go_by_their_own_names():
    assert all(law.name == name for name, law in LAWS.items())
