import itertools
from random import Random

import pytest
from pydantic import ValidationError

from concur_proxy.errors import ConfigError
from concur_proxy.sim.data import coding_agents
from concur_proxy.sim.plans import arrivals, make_plans
from concur_proxy.sim.scenario import ArrivalsPart
from tests.sim.worlds import ENGINE, scenario

AMPLE = [{"engine": ENGINE | {"kv_tokens": 1_000_000}}]


def times(count, **written):
    return list(itertools.islice(arrivals(ArrivalsPart(**written), Random(1)), count))


def test_all_at_once_and_in_waves():
    assert times(3, at_s=5) == [5, 5, 5]
    assert times(5, wave=2, every_s=10) == [0, 0, 10, 10, 20]


def test_poisson_arrivals_have_their_rate():
    assert times(20_000, rate_per_s=2)[-1] == pytest.approx(10_000, rel=0.03)


def test_a_surge_multiplies_the_rate_while_it_lasts():
    found = times(20_000, rate_per_s=1, surge=5, surge_at_s=1000, surge_s=1000)
    within = [sum(start <= time < start + 1000 for time in found) for start in (0, 1000, 2000)]
    assert within == pytest.approx([1000, 5000, 1000], rel=0.1)
    assert times(20_000, rate_per_s=1, surge=5, surge_at_s=1000)[-1] == pytest.approx(4800, rel=0.05)


@pytest.mark.parametrize("written", [{"wave": 2}, {"wave": 2, "every_s": 1, "rate_per_s": 1}, {"surge": 2}])
def test_arrivals_that_contradict_themselves_are_refused(written):
    with pytest.raises(ValidationError):
        ArrivalsPart(**written)


def test_plans_depend_on_the_seed_alone():
    what = scenario({"turns": {"mean": 5, "sigma": 0.5}, "children": {"chance": 0.5}})
    assert make_plans(what, (), 1) == make_plans(what, (), 1)
    assert make_plans(what, (), 1) != make_plans(what, (), 2)


def test_more_recorded_sessions_than_there_are_are_played_again_under_another_name():
    what = scenario(
        {"sessions": 200, "recorded": "coding-agents", "max_turns": 30, "max_context": 120_000}, backends=AMPLE
    )
    scripts = [plan.script for plan in make_plans(what, coding_agents(), 1)]
    assert len({script.id for script in scripts}) == 200
    assert all(1 <= len(script.turns) <= 30 for script in scripts)
    assert all(max(script.prompts()) <= 120_000 for script in scripts)


def test_think_times_are_cut():
    what = scenario({"recorded": "coding-agents", "longest_think_s": 60}, backends=AMPLE)
    assert max(turn.think_s for plan in make_plans(what, coding_agents(), 1) for turn in plan.script.turns) == 60


def test_children_are_born_after_a_turn_that_is_not_the_last():
    what = scenario({"children": {"chance": 1, "count": 2}, "turns": 4})
    for plan in make_plans(what, (), 1):
        assert sorted(plan.children) == [0, 1, 2]
        assert all(len(family) == 2 for family in plan.children.values())


def test_sessions_end_where_their_context_does_not_fit():
    what = scenario({"turns": 100, "children": {"chance": 1, "turns": 100}})
    plans = make_plans(what, (), 1)
    most = what.backends[0].engine.config().max_request_tokens
    children = [child for plan in plans for family in plan.children.values() for child in family]
    for script in (plan.script for plan in [*plans, *children]):
        turns = zip(script.prompts(), script.turns, strict=True)
        longest = max(prompt + turn.output_tokens for prompt, turn in turns)
        assert most - 1000 < longest <= most
    profile = scenario({"turns": 1000}, backends=[{"engine": {"profile": "qwen3-32b-8xh100"}}])
    assert max(max(plan.script.prompts()) for plan in make_plans(profile, (), 1)) <= 40_960


def test_agents_whose_first_turn_does_not_fit_are_refused():
    with pytest.raises(ConfigError, match="not one first turn fits into 16000 tokens"):
        make_plans(scenario({"first_prompt": 20_000}), (), 1)
    with pytest.raises(ConfigError, match="not one first turn"):
        make_plans(scenario({"recorded": "coding-agents", "max_context": 100}), coding_agents(), 1)
