"""Idle places of a starved engine: kept for those who are soon back, taken from those who are not."""

import pytest

from concur_proxy.core import patience
from concur_proxy.simulate.api import run_scenario
from concur_proxy.simulate.files import load_scenario


@pytest.fixture
def hasty(monkeypatch):
    """As if a place were worth nothing to who has it."""

    def use():
        monkeypatch.setattr(patience, "due_at", lambda backend, losers, arriving, now: now)

    return use


def test_sessions_in_short_tool_calls_keep_their_contexts():
    played = run_scenario(load_scenario("few-places"), law="fixed:2", seed=1).figures
    assert played.hit_rate > 0.7


@pytest.mark.sources
@pytest.mark.parametrize("arm", ["fixed:1/fifo", "fixed:2/fifo", "meanfield"])
def test_to_keep_them_is_faster(arm, hasty):
    what = load_scenario("few-places")
    kept = run_scenario(what, law=arm, seed=1).figures
    hasty()
    taken = run_scenario(what, law=arm, seed=1).figures
    assert kept.ended_s < 0.95 * taken.ended_s
    assert kept.hit_rate > taken.hit_rate + 0.1


@pytest.mark.sources
@pytest.mark.parametrize("law", ["fixed:1", "fixed:2", "meanfield"])
def test_nobody_waits_for_those_who_are_away_for_long(law, hasty):
    what = load_scenario("few-places-away")
    played = run_scenario(what, law=law, seed=1).figures
    hasty()
    at_once = run_scenario(what, law=law, seed=1).figures
    assert played.ended_s < 1.01 * at_once.ended_s
    assert played.wait_max_s < 1.2 * at_once.wait_max_s + 1.0
