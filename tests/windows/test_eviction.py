"""The congestion signal of KV usage and evictions per request, and the steps that follow from it."""

import pytest

from concur_proxy.windows.eviction import Eviction
from tests.windows.cases import SILENCE, Run

UNKNOWN = None
QUIET = {"preemptions": 0.0, "requests": 10.0}


def one(window=32.0, params=None, **told):
    return Run(Eviction(**params or {}), window).step(**told).window


@pytest.mark.parametrize(
    ("usage", "evictions", "requests", "window"),
    [
        (0.74, 0.0, 10.0, 34),
        (0.75, 0.0, 10.0, 25),
        (0.5, 4.9, 10.0, 34),
        (0.5, 5.0, 10.0, 25),
        (0.1, 65.0, 10.0, 25),
        (0.0, 65.0, 10.0, 34),
        (0.3, 2.0, 0.0, 25),
        (0.3, 1.0, UNKNOWN, 34),
        (0.74, UNKNOWN, 10.0, 34),
        (0.75, UNKNOWN, UNKNOWN, 25),
        (UNKNOWN, 5.0, 10.0, 32),
    ],
)
def test_usage_times_one_and_evictions_per_request(usage, evictions, requests, window):
    assert one(kv_usage=usage, preemptions=evictions, requests=requests) == window


@pytest.mark.parametrize(
    ("usage", "evictions", "window"), [(0.5, 14.9, 34), (0.5, 15.0, 25), (1.0, 0.0, 34), (1.0, UNKNOWN, 32)]
)
def test_product_of_usage_and_evictions_per_request(usage, evictions, window):
    assert one(params={"product": True}, kv_usage=usage, preemptions=evictions, requests=10.0) == window


@pytest.mark.parametrize(
    ("window", "left"), [(100.0, 80), (33.0, 26), (10.0, 8), (9.0, 8), (8.0, 8), (5.0, 5), (400.0, 256)]
)
def test_a_cut_is_to_whole_sessions_and_not_below_eight(window, left):
    assert one(window, kv_usage=0.9, **QUIET) == left


@pytest.mark.parametrize(("window", "grown"), [(5.0, 7), (253.0, 255), (255.0, 256), (256.0, 256), (300.0, 256)])
def test_growth_ends_at_256(window, grown):
    assert one(window, kv_usage=0.1, **QUIET) == grown


def test_its_parameters_are_those_of_the_law():
    mine = {"alpha": 3.0, "beta": 0.5, "threshold": 0.4, "window_low": 12.0, "window_high": 34.0, "window_start": 20.0}
    assert one(params=mine, kv_usage=0.39, **QUIET) == 34
    assert one(30.0, params=mine, kv_usage=0.4, **QUIET) == 15
    assert one(20.0, params=mine, kv_usage=0.4, **QUIET) == 12
    assert Eviction(**mine).start(capacity_tokens=1e6, typical_footprint_tokens=1e3) == 20


def test_it_starts_with_32_whatever_is_known():
    assert Eviction().start(capacity_tokens=None, typical_footprint_tokens=None) == 32
    assert Eviction().start(capacity_tokens=1000.0, typical_footprint_tokens=10.0) == 32


def test_what_came_between_two_steps_counts_together_and_once():
    run = Run(Eviction(period_s=5.0))
    assert run.step(kv_usage=0.5, **QUIET).window == 18
    for _ in range(4):
        assert run.step(kv_usage=0.5, preemptions=3.0, requests=2.0).window == 18
    assert run.step(kv_usage=0.5, **QUIET).window == 14
    assert run.steps(5, kv_usage=0.5, **QUIET) == 16


def test_a_sample_is_acted_on_once():
    run = Run(Eviction())
    run.step(kv_usage=0.1, **QUIET)
    assert run.steps(5, kv_usage=0.1, interval_s=None) == 18


def test_without_a_sample_it_stays():
    assert Run(Eviction()).steps(5, **SILENCE) == 16


def test_it_tells_its_signal():
    run = Run(Eviction())
    assert run.law.snapshot() == {"congestion": None, "threshold": 0.75}
    verdict = run.step(kv_usage=0.5, preemptions=3.0, requests=10.0)
    assert run.law.snapshot() == {"congestion": pytest.approx(0.65), "threshold": 0.75}
    assert verdict.reason == "KV usage 0.50, 0.30 evictions per request: congestion 0.65 is below 0.75: grow"
