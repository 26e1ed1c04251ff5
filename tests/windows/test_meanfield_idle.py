"""Idle places per turn: Little's law, whatever keeps a place idle."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.windows.meanfield.idle import IdlePlaces


def play(idle, turns_per_s, *, seconds=1000, step=1.0, came_back=True):
    places = IdlePlaces()
    due = 0.0
    for number in range(int(seconds / step)):
        due += turns_per_s * step
        while due >= 1.0:
            places.turn(came_back=came_back)
            due -= 1.0
        places.update(idle, now=100.0 + number * step)
    return places


@given(idle=st.floats(0, 200), turns_per_s=st.floats(0.2, 20))
def test_it_is_idle_places_by_turn_rate(idle, turns_per_s):
    assert play(idle, turns_per_s).seconds_per_turn() == pytest.approx(idle / turns_per_s, rel=0.1, abs=0.1)


def test_how_often_it_is_told_does_not_matter():
    often, seldom = play(10, 2.0, step=0.25), play(10, 2.0, step=4.0)
    assert often.seconds_per_turn() == pytest.approx(seldom.seconds_per_turn(), rel=0.05)


def test_with_few_turns_nothing_is_known():
    assert IdlePlaces().seconds_per_turn() is None
    assert play(10, 0.01).seconds_per_turn() is None


def test_the_old_is_forgotten():
    places = play(100, 1.0)
    for second in range(1000):
        places.turn(came_back=True)
        places.update(5, now=2000.0 + second)
    assert places.seconds_per_turn() == pytest.approx(5, rel=0.1)


def test_nobody_comes_back_where_sessions_end_with_their_turn():
    assert play(0, 1.0, came_back=False).nobody_comes_back()
    assert not play(0, 1.0).nobody_comes_back()


def test_nobody_comes_back_where_places_stay_idle():
    assert play(100, 1.0, came_back=False).nobody_comes_back()
    assert not play(100, 1.0).nobody_comes_back()


def test_it_takes_turns_and_time_to_tell():
    assert not play(0, 1.0, came_back=False, seconds=20).nobody_comes_back()
    assert not play(2, 1.0, came_back=False, seconds=100).nobody_comes_back()


def test_turns_that_have_just_ended_say_nothing_yet():
    places = play(0, 0.1, came_back=False)
    for _ in range(40):
        places.turn(came_back=False)
    places.update(40, now=2000.0)
    assert not places.nobody_comes_back()
