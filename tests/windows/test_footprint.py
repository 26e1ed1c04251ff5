"""A share of the KV cache, in tokens."""

import pytest

from concur_proxy.windows.base import Unit
from concur_proxy.windows.footprint import FIRST_FOOTPRINT, Footprint
from concur_proxy.windows.warm import FIRST_WINDOW
from tests.windows.cases import CONGESTION, ROOM, SILENCE, Run, make


@pytest.mark.parametrize(("target", "window"), [(0.95, 95_000), (0.5, 50_000), (1.0, 100_000)])
def test_the_window_is_a_share_of_the_capacity(target, window):
    law = Footprint(target=target)
    assert law.unit is Unit.TOKENS
    assert Run(law).step(capacity_tokens=100_000.0).window == window
    assert law.start(capacity_tokens=100_000.0, typical_footprint_tokens=7.0) == window


@pytest.mark.parametrize("told", [ROOM, CONGESTION, SILENCE, {"interval_s": None}])
def test_it_goes_by_nothing_else(told):
    assert Run(Footprint()).steps(3, capacity_tokens=1000.0, **told) == 950


@pytest.mark.parametrize("capacity", [None, 0.0])
def test_without_a_capacity_it_stays_and_says_what_to_do(capacity):
    verdict = Run(Footprint(), 5000.0).step(capacity_tokens=capacity)
    assert verdict.window == 5000
    assert "set kv_tokens" in verdict.reason


@pytest.mark.parametrize(
    ("typical", "first"), [(None, FIRST_WINDOW * FIRST_FOOTPRINT), (500.0, 500 * FIRST_WINDOW), (0.0, 131_072)]
)
def test_without_a_capacity_it_starts_with_the_first_sessions_of_other_laws(typical, first):
    assert Footprint().start(capacity_tokens=None, typical_footprint_tokens=typical) == first


def test_an_engine_that_restarts_with_less_shrinks_it_and_one_with_more_opens_it():
    run = Run(make("footprint"), 95_000.0, footprint_tokens=95_000.0)
    assert run.step(capacity_tokens=50_000.0).window == 47_500
    assert run.step(capacity_tokens=200_000.0).window == 190_000


def test_it_tells_what_it_goes_by():
    run = Run(Footprint())
    assert run.law.snapshot() == {"capacity_tokens": None}
    assert run.step(capacity_tokens=1000.0).reason == "0.95 of 1000 tokens of KV cache"
    assert run.law.snapshot() == {"capacity_tokens": 1000.0}
