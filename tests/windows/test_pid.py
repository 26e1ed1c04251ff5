"""Proportional, integral and derivative part, each by itself and what keeps them in bounds."""

import math

import pytest

from concur_proxy.model import Outcome
from concur_proxy.windows.pid import LONGEST_STEP_PERIODS, MEMORY_S, Pid
from concur_proxy.windows.warm import FIRST_WINDOW
from tests.windows.cases import ROOM, Run, record


def turns(latency, count=4, **fields):
    return [record(first_token_s=latency, **fields)] * count


def expected(errors, *, kp=1.0, ki=0.2, kd=0.03, dt=1.0):
    """Yield each step of the textbook's controller."""
    integral, before = 0.0, errors[0]
    for error in errors:
        integral += error * dt
        yield kp * error + ki * integral + kd * (error - before) / dt
        before = error


def test_it_is_the_textbooks_controller():
    latencies = [1.0, 3.0, 2.5, 2.0, 0.5]
    run = Run(Pid(), 50.0)
    window = 50.0
    for latency, step in zip(latencies, expected([(2.0 - each) / 2.0 for each in latencies]), strict=True):
        window += step
        assert run.step(turns=turns(latency)).window == pytest.approx(window)


def test_its_parameters_are_those_of_the_controller():
    law = Pid(target_s=4.0, kp=0.5, ki=0.1, kd=0.05, period_s=2.0)
    run = Run(law, 50.0)
    window = 50.0
    steps = expected([0.75, -0.5, 0.25], kp=0.5, ki=0.1, kd=0.05, dt=2.0)
    for latency, step in zip([1.0, 6.0, 3.0], steps, strict=True):
        window += step
        assert run.step(after=2.0, turns=turns(latency)).window == pytest.approx(window)


def test_latency_is_the_mean_of_all_turns_since_the_last_step():
    one, other = Run(Pid()), Run(Pid())
    mixed = one.step(turns=[*turns(1.0, count=3), *turns(5.0, count=1)])
    assert mixed.window == other.step(turns=turns(2.0)).window == 16
    assert one.law.snapshot()["latency_s"] == 2.0


def test_a_turn_that_is_not_streamed_counts_with_its_whole_duration():
    run = Run(Pid())
    run.step(turns=turns(None))
    assert run.law.snapshot()["latency_s"] == 1.0


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.COMPLETED])
def test_turns_that_were_not_completed_say_nothing(outcome):
    assert Run(Pid()).step(turns=turns(100.0, outcome=outcome)).window == 16


def test_without_a_turn_it_stays():
    run = Run(Pid())
    run.step(turns=turns(1.0))
    before = run.window
    assert run.steps(20, **ROOM) == before


def test_one_step_per_period():
    run = Run(Pid(period_s=5.0))
    run.steps(11, turns=turns(1.0))
    assert len(set(run.windows)) == 3


def test_the_integral_has_an_end():
    run = Run(Pid(integral_limit_s=3.0), 1000.0)
    run.steps(20, turns=turns(4.0))
    assert run.law.snapshot()["integral_s"] == -3.0
    run.steps(50, turns=turns(1.0))
    assert run.law.snapshot()["integral_s"] == 3.0


@pytest.mark.parametrize(("latency", "sign"), [(1.0, 1), (3.0, -1)])
def test_the_integral_does_not_wind_up_where_the_window_cannot_follow(latency, sign):
    run = Run(Pid(), 50.0)
    for _ in range(20):
        run.window = 50.0  # a guard has stopped it
        run.step(turns=turns(latency))
    assert run.law.snapshot()["integral_s"] == sign * 0.5
    run.window = 50.0
    back = run.step(turns=turns(4.0 - latency)).window
    assert math.copysign(1.0, back - 50.0) == -sign


def test_what_comes_late_counts_for_some_periods_only():
    run = Run(Pid(), 50.0)
    run.step(turns=turns(2.0))
    run.step(after=MEMORY_S - 1.0, turns=turns(1.0))
    assert run.law.snapshot()["integral_s"] == 0.5 * LONGEST_STEP_PERIODS


def test_after_a_minute_without_turns_it_begins_anew():
    run = Run(Pid(), 50.0)
    run.steps(10, turns=turns(4.0))
    run.steps(61)
    before = run.window
    assert run.step(turns=turns(1.0)).window == pytest.approx(before + 0.5 + 0.2 * 0.5)


def test_an_endless_turn_leaves_one_session():
    assert Run(Pid()).step(turns=turns(1e6)).window == 1


def test_it_starts_with_what_fits():
    assert Pid().start(capacity_tokens=1000.0, typical_footprint_tokens=40.0) == 25
    assert Pid().start(capacity_tokens=None, typical_footprint_tokens=40.0) == FIRST_WINDOW
