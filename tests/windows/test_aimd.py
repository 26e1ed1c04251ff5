"""Eq. 1 of arXiv 2601.22705, and what ``aimd`` does where it has less to go by."""

import pytest

from concur_proxy.model import Outcome
from concur_proxy.windows.aimd import GOOD_HIT_RATE, Aimd
from concur_proxy.windows.warm import FIRST_WINDOW
from tests.windows.cases import CONGESTION, ROOM, SILENCE, Run, record

UNKNOWN = None


def one(window=16.0, params=None, **told):
    return Run(Aimd(**params or {}), window).step(**told).window


@pytest.mark.parametrize(
    ("usage", "hits", "window"),
    [
        (0.0, 0.0, 18),
        (0.199, 0.0, 18),
        (0.199, 1.0, 18),
        (0.2, 0.0, 16),
        (0.2, 1.0, 16),
        (0.35, 0.0, 16),
        (0.5, 0.0, 16),
        (0.501, 0.0, 8),
        (0.501, 0.199, 8),
        (0.501, 0.2, 16),
        (0.501, 1.0, 16),
        (1.0, 0.0, 8),
        (1.0, 1.0, 16),
        (0.1, UNKNOWN, 18),
        (1.0, UNKNOWN, 16),
    ],
)
def test_equation_1(usage, hits, window):
    assert one(kv_usage=usage, hit_rate=hits) == window


def test_its_parameters_are_those_of_the_equation():
    mine = {"alpha": 3.0, "beta": 0.8, "usage_low": 0.4, "usage_high": 0.6, "hit_rate_threshold": 0.5}
    assert one(10.0, mine, kv_usage=0.39, hit_rate=0.9) == 13
    assert one(10.0, mine, kv_usage=0.4, hit_rate=0.4) == 10
    assert one(10.0, mine, kv_usage=0.61, hit_rate=0.49) == 8
    assert one(10.0, mine, kv_usage=0.61, hit_rate=0.5) == 10


def test_a_preemption_does_not_touch_the_equation():
    assert one(preemptions=5.0, **CONGESTION) == 8


@pytest.mark.parametrize(
    ("capacity", "footprint", "first"),
    [
        (None, None, FIRST_WINDOW),
        (1000.0, None, FIRST_WINDOW),
        (None, 10.0, FIRST_WINDOW),
        (1000.0, 40.0, 25),
        (5, 10, 1),
    ],
)
def test_it_starts_with_what_fits(capacity, footprint, first):
    assert Aimd().start(capacity_tokens=capacity, typical_footprint_tokens=footprint) == first


def test_one_change_per_period():
    run = Run(Aimd(period_s=5.0))
    run.steps(11, **ROOM)
    assert run.windows == [18, 18, 18, 18, 18, 20, 20, 20, 20, 20, 22]


def test_a_change_that_did_not_come_about_does_not_begin_a_period():
    law = Aimd(period_s=5.0)
    run = Run(law)
    run.step(**ROOM)
    run.window = 16.0  # a guard has stopped it
    assert run.step(**ROOM).window == 18
    assert run.step(**ROOM).window == 18


def test_a_sample_is_acted_on_once():
    run = Run(Aimd(), 16.0)
    run.step(**ROOM)
    run.steps(5, kv_usage=0.1, interval_s=None)
    assert run.window == 18


def test_a_hit_rate_is_remembered_for_some_periods():
    run = Run(Aimd())
    run.step(kv_usage=0.3, hit_rate=0.1)
    assert run.steps(9, kv_usage=0.3) == 16
    assert run.step(kv_usage=0.9).window == 8


def test_an_old_hit_rate_is_none():
    run = Run(Aimd())
    run.step(kv_usage=0.3, hit_rate=0.1)
    assert run.steps(11, kv_usage=0.3) == 16
    assert run.steps(5, kv_usage=0.9) == 16
    assert run.law.snapshot() == {"hit_rate": None}


# without KV usage


GOOD_CACHED = int(1000 * GOOD_HIT_RATE)


def turns(cached, count=8, **fields):
    return [record(prompt=1000, cached=cached, **fields)] * count


@pytest.mark.parametrize(("cached", "window"), [(0, 8), (199, 8), (200, 16), (GOOD_CACHED - 1, 16), (GOOD_CACHED, 18)])
def test_without_kv_usage_it_goes_by_what_agents_find_cached(cached, window):
    assert Run(Aimd()).step(turns=turns(cached), **SILENCE).window == window


@pytest.mark.parametrize(
    "seen",
    [
        turns(0, count=7),
        turns(0, expected=None),
        turns(0, expected=0),
        turns(None),
        turns(0, outcome=Outcome.CANCELLED),
        turns(0, outcome=Outcome.CLIENT_ERROR),
        [record(prompt=0, cached=0)] * 8,
    ],
    ids=["few", "first turns", "nothing to find", "not told", "cancelled", "client errors", "empty"],
)
def test_turns_that_say_nothing_of_the_cache(seen):
    assert Run(Aimd()).step(turns=seen, **SILENCE).window == 16


def test_turns_count_once():
    run = Run(Aimd())
    run.step(turns=turns(0), **SILENCE)
    assert run.steps(5, **SILENCE) == 8


def test_turns_of_long_ago_do_not_count():
    run = Run(Aimd())
    run.step(turns=turns(0, count=7), **SILENCE)
    assert run.step(after=61.0, turns=turns(0, count=1), **SILENCE).window == 16
    assert run.step(turns=turns(0, count=7), **SILENCE).window == 8
    run.step(after=0.1, turns=turns(0), **SILENCE)
    assert run.step(after=61.0, **SILENCE).window == 8


def test_turns_do_not_count_where_the_engine_tells_its_usage():
    run = Run(Aimd())
    run.step(turns=turns(0), kv_usage=0.3)
    assert run.step(**SILENCE).window == 16


def test_more_is_not_cached_than_was_asked():
    run = Run(Aimd())
    run.step(turns=[*turns(10**9, count=1), *turns(0, count=7)], **SILENCE)
    assert run.window == 8
