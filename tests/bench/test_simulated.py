"""The experiments in simulated time: what they play is there, and what they say is of the runs that they name."""

from __future__ import annotations

import pytest

from bench import simulated
from bench.simulated import ENGINES, KNEE_PER_S, PARTS, SPAN_S, VARIANTS, WORDS, fleet, told
from concur_proxy.sim.arms import arm
from concur_proxy.simulate import load_scenario


def test_every_run_can_be_played():
    for variant, load, law in (run for runs in PARTS.values() for run in runs):
        assert VARIANTS[variant](load).about
        assert arm(law).name == law


def test_the_engine_that_tells_differs_in_that_alone():
    untold, same = load_scenario("no-cached-tokens"), told(1.0)
    assert (same.signals.cached_tokens, untold.signals.cached_tokens) == (True, False)
    assert (same.agents, same.backends) == (untold.agents, untold.backends)


def test_a_fleet_has_work_until_the_end():
    scenario = fleet(2.0)
    (agents,) = scenario.agents
    assert len(scenario.engines) == ENGINES
    assert agents.arrivals.rate_per_s == 2.0 * KNEE_PER_S * ENGINES
    assert agents.sessions > agents.arrivals.rate_per_s * SPAN_S


@pytest.mark.parametrize("part", WORDS)
def test_ratios_compare_runs_of_their_part(part, monkeypatch):
    scores = {run: index + 1.0 for index, run in enumerate(PARTS[part])}
    monkeypatch.setattr(simulated, "ProcessPoolExecutor", InPlace)
    monkeypatch.setattr(simulated, "play", lambda task: (scores[task[:3]], None))
    rows = simulated.ratios(simulated.Played([part], 1), part, WORDS[part])
    for row, (one, other) in zip(rows, WORDS[part].values(), strict=True):
        assert f"| {(one + 1) / (other + 1):.3f} (" in row


class InPlace:
    def __init__(self, jobs):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    map = staticmethod(map)
