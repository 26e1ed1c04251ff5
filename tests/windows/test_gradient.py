"""Long-term to present latency, and the window that follows it."""

import math

import pytest

from concur_proxy.windows.gradient import FALL, FIRST_STEPS, Gradient
from concur_proxy.windows.warm import FIRST_WINDOW
from tests.windows.cases import SILENCE, Run, record


def turns(seconds, *, count=8, uncached=100):
    return [record(prompt=1000, cached=1000 - uncached, first_token_s=seconds)] * count


def settled(law=None, window=40.0, seconds=0.1):
    """Return a run whose long-term latency is known."""
    run = Run(law or Gradient(), window)
    for _ in range(FIRST_STEPS):
        run.step(turns=turns(seconds))
    run.window = window
    return run


@pytest.mark.parametrize(
    ("now", "gradient"), [(0.05, 1.0), (0.1, 1.0), (0.15, 1.0), (0.2, 0.75), (0.3, 0.5), (3.0, 0.5)]
)
def test_the_window_follows_the_ratio_of_latencies(now, gradient):
    # The long-term latency moves too little in one step to be seen here.
    run = settled(Gradient(long_s=1e6))
    assert run.step(turns=turns(now)).window == pytest.approx(40 * gradient + 4, rel=1e-3)


def test_its_parameters_are_those_of_the_law():
    run = settled(Gradient(tolerance=2.0, headroom=1.0, long_s=1e6))
    assert run.step(turns=turns(0.2)).window == pytest.approx(41, rel=1e-3)
    run.window = 40.0
    assert run.step(turns=turns(0.25)).window == pytest.approx(33, rel=1e-3)


def test_the_first_sample_is_no_congestion_however_slow():
    assert Run(Gradient()).step(turns=turns(100.0)).window == 20


def test_the_length_of_prompts_is_no_congestion():
    run = settled()
    assert run.step(turns=turns(1.0, uncached=1000)).window == 44


def test_large_prompts_weigh_most():
    run = settled()
    run.step(turns=[*turns(1.0, uncached=1000, count=4), *turns(0.05, uncached=1, count=4)])
    assert run.law.snapshot()["short_s_per_token"] == pytest.approx((4.0 + 0.2) / (4000 + 4))


def test_samples_of_the_beginning_weigh_alike():
    run = Run(Gradient())
    for seconds in (0.1, 0.2, 0.15):
        run.step(turns=turns(seconds))
    assert run.law.snapshot()["long_s_per_token"] == pytest.approx(0.0015)


@pytest.mark.parametrize("after", [1.0, 30.0])
def test_later_ones_by_the_time_that_has_passed(after):
    run = settled()
    run.step(after=after, turns=turns(0.11))
    weight = 1 - math.exp(-after / 600)
    assert run.law.snapshot()["long_s_per_token"] == pytest.approx(0.001 + weight * 0.0001)


def test_a_load_that_is_gone_is_forgotten_soon():
    run = settled(seconds=1.0)
    run.step(turns=turns(0.1))
    assert run.law.snapshot()["long_s_per_token"] == pytest.approx(FALL * 0.01, rel=0.01)
    run.steps(60, turns=turns(0.1))
    assert run.law.snapshot()["long_s_per_token"] < 0.0025


def test_one_step_per_period():
    run = Run(Gradient(period_s=5.0))
    run.steps(11, turns=turns(0.1))
    assert len(set(run.windows)) == 3


@pytest.mark.parametrize(
    "seen",
    [turns(0.1, count=7), [record(first_token_s=None)] * 20, [record(cached=None)] * 20, []],
    ids=["few", "not streamed", "cached tokens not told", "none"],
)
def test_turns_that_say_too_little(seen):
    verdict = Run(Gradient()).step(turns=seen, **SILENCE)
    assert verdict.window == 16
    assert "too few turns" in verdict.reason


def test_the_engines_hit_rate_stands_for_cached_tokens_that_are_not_told():
    run = Run(Gradient())
    run.step(turns=[record(prompt=1000, cached=None)] * 8, hit_rate=0.9)
    assert run.law.snapshot()["short_s_per_token"] == pytest.approx(0.001)


def test_it_starts_with_what_fits():
    assert Gradient().start(capacity_tokens=1000.0, typical_footprint_tokens=40.0) == 25
    assert Gradient().start(capacity_tokens=None, typical_footprint_tokens=None) == FIRST_WINDOW
