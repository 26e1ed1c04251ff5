import math

import pytest

from concur_proxy.windows.base import Verdict
from concur_proxy.windows.freshness import DECAY_RATE, FreshOnly, without_gauges
from tests.windows.cases import signals, view

OLD = {"records_age_s": 100.0}


def fresh_only(start=16.0):
    return FreshOnly(lambda _signals, _view: start, stale_after_s=10.0, decay_after_s=60.0)


def ask(guard, verdict, *, now=1000.0, told=None, **seen):
    return guard.guard(Verdict(verdict, "law"), signals(**told or {}), view(**seen), now=now)


def test_what_is_fresh_passes():
    assert ask(fresh_only(), 40.0, told={"age_s": 10.0}, **OLD) == Verdict(40.0, "law")


@pytest.mark.parametrize("window", [1.0, 40.0])
def test_what_is_stale_is_frozen(window):
    assert ask(fresh_only(), window, told={"age_s": 10.1}, **OLD).window == 16


@pytest.mark.parametrize(("age_s", "words"), [(10.1, "no fresh signals for 10 s: "), (math.inf, "no signals yet: ")])
def test_it_is_said_for_how_long_nothing_was_heard(age_s, words):
    assert ask(fresh_only(), 40.0, told={"age_s": age_s}, **OLD).reason.startswith(words)


def test_fresh_records_permit_growth_and_no_cut():
    assert ask(fresh_only(), 40.0, told={"age_s": 10.1}, records_age_s=10.0) == Verdict(40.0, "law")
    assert ask(fresh_only(), 4.0, told={"age_s": 10.1}, records_age_s=10.0).window == 16


def test_cached_tokens_that_answers_tell_are_news():
    guard = fresh_only()
    assert ask(guard, 4.0, now=1000.0, told={"age_s": math.inf, "hit_rate": 0.1}) == Verdict(4.0, "law")
    assert ask(guard, 4.0, now=1010.0, told={"age_s": math.inf}) == Verdict(4.0, "law")
    assert ask(guard, 4.0, now=1011.0, told={"age_s": math.inf}).window == 16


def test_it_goes_back_by_a_share_of_the_way_per_second():
    guard = fresh_only(start=10.0)
    assert ask(guard, 30.0, now=1000.0, told={"age_s": 60.0}, window=30.0).window == 30
    verdict = ask(guard, 30.0, now=1003.0, told={"age_s": 63.0}, window=30.0)
    assert verdict.window == pytest.approx(10 + 20 * math.exp(-DECAY_RATE * 3))


def test_only_the_time_after_the_freeze_counts():
    guard = fresh_only(start=10.0)
    ask(guard, 30.0, now=1000.0, told={"age_s": 21.0}, window=30.0)
    verdict = ask(guard, 30.0, now=1040.0, told={"age_s": 61.0}, window=30.0)
    assert verdict.window == pytest.approx(10 + 20 * math.exp(-DECAY_RATE))


@pytest.mark.parametrize(("records_age_s", "grows"), [(10.0, True), (10.1, False)])
def test_the_way_up_needs_fresh_records(records_age_s, grows):
    guard = fresh_only()
    for now in (1000.0, 1001.0):
        verdict = ask(guard, 4.0, now=now, told={"age_s": math.inf}, window=4.0, records_age_s=records_age_s)
    assert (verdict.window > 4) is grows


@pytest.mark.parametrize(("window", "start"), [(math.inf, 16.0), (16.0, math.inf)])
def test_there_is_no_way_from_or_to_infinity(window, start):
    guard = fresh_only(start)
    for now in (1000.0, 1010.0):
        assert ask(guard, 5.0, now=now, told={"age_s": math.inf}, window=window).window == window


def test_gauges_are_of_the_moment_and_the_rest_is_not():
    told = signals(running=1.0, waiting=1.0, kv_usage=0.5, evictable_tokens=5.0, hit_rate=0.4, rejections=2.0)
    assert without_gauges(told) == signals(hit_rate=0.4, rejections=2.0)
