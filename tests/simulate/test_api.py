import dataclasses
import json
import math

import pytest

from concur_proxy.errors import ConfigError
from concur_proxy.sim.scenario import Scenario
from concur_proxy.simulate import load_scenario, run_scenario, scenario_names
from concur_proxy.windows import build_law

SMALL = Scenario.model_validate(
    {
        "about": "twelve agents that need three times what there is",
        "backends": [
            {"engine": {"kv_tokens": 16_000, "cost": {"a": 0.02, "b": 5e-4, "c": 3e-5, "d": 1e-7}, "block_size": 16}}
        ],
        "agents": [{"sessions": 12, "turns": 5, "first_prompt": 1500, "think_s": {"exponential": 1}}],
    }
)


@pytest.mark.parametrize("law", ["unlimited", "fixed:3", "aimd", "requests:2"])
def test_the_same_seed_gives_the_same_bytes(law):
    first, second = (run_scenario(SMALL, law=law, seed=7) for _ in range(2))
    assert json.dumps(first.to_json()) == json.dumps(second.to_json())
    assert first.turns == second.turns
    assert first.series == second.series
    assert json.dumps(run_scenario(SMALL, law=law, seed=8).to_json()) != json.dumps(first.to_json())


def test_a_window_pays_where_contexts_do_not_fit():
    free, held = run_scenario(SMALL, law="unlimited"), run_scenario(SMALL, law="fixed:3")
    assert held.figures.hit_rate > 0.6 > free.figures.hit_rate
    assert held.figures.recomputed_tokens < free.figures.recomputed_tokens
    assert held.score < free.score
    assert (free.figures.wait_max_s, free.window, held.window) == (0, None, 3)


def test_a_cap_on_requests_is_no_cap_on_sessions():
    capped = run_scenario(SMALL, law="requests:3")
    assert capped.figures.hit_rate < run_scenario(SMALL, law="fixed:3").figures.hit_rate - 0.2
    assert max(moment.running for moment in capped.series[0].moments) == 3


def test_every_turn_is_played_once():
    figures = run_scenario(SMALL, law="aimd").figures
    assert (figures.sessions, figures.failed, figures.unfinished, figures.turns, figures.errors) == (12, 0, 0, 60, 0)


def test_a_law_of_ones_own():
    made = []

    def two(*, minimum, maximum):
        made.append((minimum, maximum))
        return build_law("fixed", {"window": 2}, minimum=minimum, maximum=maximum)

    own, fixed = run_scenario(SMALL, law=two), run_scenario(SMALL, law="fixed:2")
    assert own.figures == fixed.figures
    assert made == [(1.0, math.inf)]


def test_parameters_reach_the_law():
    few = run_scenario(SMALL, law="fixed", params={"window": 2})
    assert few.figures == run_scenario(SMALL, law="fixed:2").figures


def test_settings_of_the_gate_go_over_the_scenarios():
    hurried = run_scenario(SMALL, law="fixed:1", gate={"max_wait_s": 5.0})
    assert hurried.troubles["queue_timeout"] > 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"law": "amid"}, "no such law"),
        ({"law": "aimd:3"}, "only fixed and requests"),
        ({"law": "fixed:0"}, "from 1 on"),
        ({"law": "requests"}, "needs a number"),
        ({"law": "aimd", "params": {"gamma": 1}}, "gamma"),
        ({"gate": {"patience": 1}}, "patience is no setting"),
    ],
)
def test_what_is_wrong_is_said(arguments, said):
    with pytest.raises(ConfigError, match=said):
        run_scenario(SMALL, **arguments)


@pytest.mark.parametrize("name", scenario_names())
def test_every_scenario_of_the_package_is_good(name):
    scenario = load_scenario(name)
    assert scenario.name == name
    assert dataclasses.is_dataclass(next(iter(scenario.engines.values())).engine.config())
