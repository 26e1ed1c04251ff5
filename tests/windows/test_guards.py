"""Each guard alone."""

import math

import pytest

from concur_proxy.windows.base import Unit, Verdict
from concur_proxy.windows.guards import GrowWhileBound, OneCutPerDrain, StopAtPreemption, WithinSlew
from tests.windows.cases import signals, view

FREE = {"bound": False, "held": 0}


def ask(guard, verdict, *, now=0.0, told=None, **seen):
    return guard.guard(Verdict(verdict, "law"), signals(**told or {}), view(**seen), now=now)


# growth


@pytest.mark.parametrize(
    ("seen", "window"), [(FREE, 16), ({"bound": True, "held": 0}, 20), ({"bound": False, "held": 1}, 20)]
)
def test_growth_needs_somebody_who_waits(seen, window):
    assert ask(GrowWhileBound(), 20.0, **seen).window == window


def test_a_cut_does_not():
    assert ask(GrowWhileBound(), 8.0, **FREE) == Verdict(8.0, "law")


@pytest.mark.parametrize(("window", "left"), [(20.0, 16.0), (16.0, 16.0), (8.0, 8.0)])
def test_a_preemption_stops_growth_and_is_hard(window, left):
    verdict = ask(StopAtPreemption(), window, told={"preemptions": 2.0})
    assert (verdict.window, verdict.hard) == (left, True)


@pytest.mark.parametrize("preemptions", [None, 0.0])
def test_no_preemption_changes_nothing(preemptions):
    assert ask(StopAtPreemption(), 20.0, told={"preemptions": preemptions}) == Verdict(20.0, "law")


# one cut per drain


def test_a_second_cut_waits_until_the_first_has_drained():
    guard = OneCutPerDrain(Unit.SESSIONS)
    assert ask(guard, 8.0, now=0.0, active=16).window == 8
    for now in range(1, 11):
        assert ask(guard, 4.0, now=float(now), window=8.0, active=16 if now < 10 else 8).window == 8
    assert ask(guard, 4.0, now=13.9, window=8.0).window == 8
    assert ask(guard, 4.0, now=14.0, window=8.0).window == 4


def test_warm_sessions_that_stay_over_the_window_put_it_off_for_a_while_only():
    guard = OneCutPerDrain(Unit.SESSIONS)
    ask(guard, 8.0, active=16)
    windows = [ask(guard, 4.0, now=float(now), window=8.0, active=16).window for now in range(1, 31)]
    assert windows == [8] * 29 + [4]


def test_growth_passes_while_a_cut_drains():
    guard = OneCutPerDrain(Unit.SESSIONS)
    ask(guard, 8.0)
    assert ask(guard, 10.0, now=1.0, window=8.0, active=16) == Verdict(10.0, "law")


def test_what_is_over_a_window_that_was_never_cut_puts_nothing_off():
    assert ask(OneCutPerDrain(Unit.SESSIONS), 8.0, active=100).window == 8


def test_a_window_of_tokens_drains_in_tokens():
    guard = OneCutPerDrain(Unit.TOKENS)
    ask(guard, 8000.0, window=16000.0)
    for now in range(1, 11):
        ask(guard, 8000.0, now=float(now), window=8000.0, active=4, footprint_tokens=9000.0)
    assert ask(guard, 4000.0, now=11.0, window=8000.0, footprint_tokens=9000.0).window == 8000
    assert ask(guard, 4000.0, now=16.0, window=8000.0, footprint_tokens=7000.0).window == 4000


# slew


@pytest.mark.parametrize(("window", "left"), [(1000.0, 64.0), (64.0, 64.0), (20.0, 20.0), (4.0, 4.0), (1.0, 4.0)])
def test_no_step_is_larger_than_a_factor(window, left):
    assert ask(WithinSlew(), window).window == left


def test_a_hard_verdict_stays_hard():
    assert WithinSlew().guard(Verdict(1.0, "law", hard=True), signals(), view(), now=0.0).hard


@pytest.mark.parametrize(("before", "after"), [(math.inf, 10.0), (10.0, math.inf)])
def test_there_is_no_factor_to_infinity(before, after):
    assert ask(WithinSlew(), after, window=before).window == after


@pytest.mark.parametrize("per_second", [1, 4, 16])
@pytest.mark.parametrize(("wish", "after_3_s"), [(1e9, 16.0 * 4**3), (0.0, 1024.0)])
def test_it_moves_as_far_however_often_it_is_asked(per_second, wish, after_3_s):
    guard, window = WithinSlew(), 16.0 if wish else 1024.0 * 4**3
    for count in range(3 * per_second):
        window = ask(guard, wish, now=count / per_second, window=window).window
    assert window == after_3_s


def test_several_steps_within_a_second_make_one():
    guard = WithinSlew()
    assert ask(guard, 30.0, now=0.0).window == 30
    assert ask(guard, 60.0, now=0.5, window=30.0).window == 60
    assert ask(guard, 90.0, now=0.9, window=60.0).window == 64
    assert ask(guard, 90.0, now=1.0, window=64.0).window == 90


def test_what_others_have_done_to_the_window_is_not_undone():
    guard = WithinSlew()
    ask(guard, 100.0, now=0.0, window=100.0)
    assert ask(guard, 5.0, now=0.1, window=5.0).window == 5
    assert ask(guard, 1.0, now=0.2, window=5.0).window == 5
    assert ask(guard, 50.0, now=0.3, window=5.0).window == 20
