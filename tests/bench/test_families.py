import gzip
import json

import pytest

from concur_proxy.bench.families import Family, family, planned_families, read_families, recorded_families
from concur_proxy.bench.workloads import RecordedAgents, SyntheticAgents
from concur_proxy.errors import ConfigError
from concur_proxy.sim.plans import make_plans
from concur_proxy.sim.scenario import Scenario
from concur_proxy.sim.workload import SessionScript, TurnScript, recorded


def turn(tokens, think_s=0.0, api_s=1.0):
    return {"in": tokens, "prefix": tokens - 10, "out": 5, "think_s": think_s, "api_s": api_s, "stop": "tool_use"}


def record(name, *turns, **more):
    return {"id": name, "system_tokens": 20, "tool_tokens": 30, "turns": list(turns), **more}


CHILD = {key: value for key, value in record("", turn(80, 2.0), turn(90, 3.0)).items() if key != "id"}
PARENT = record(
    "p",
    turn(100),
    turn(120, 30.0),
    turn(140, 4.0),
    subagents=[{**CHILD, "after_turn": 0}, {**CHILD, "after_turn": 0}, {**CHILD, "after_turn": 1}],
)


def test_sub_agents_stay_with_the_turn_that_started_them():
    (whole,) = recorded_families([json.dumps(PARENT)])
    assert {index: [child.script.id for child in born] for index, born in whole.children.items()} == {
        0: ["p/1", "p/2"],
        1: ["p/3"],
    }
    assert [script.id for script in whole.members()] == ["p", "p/1", "p/2", "p/3"]
    assert {one.id: one.turns[0] for one in whole.members()} == {
        one.id: one.turns[0] for one in recorded([json.dumps(PARENT)])
    }


def test_the_time_of_sub_agents_is_not_waited_for_twice():
    (whole,) = recorded_families([json.dumps(PARENT)])
    # Each child took 2 + 1 + 3 + 1 seconds as it was recorded: 30 were left behind the first turn, 4 behind the second.
    assert [turn.think_s for turn in whole.script.turns] == [0.0, 23.0, 0.0]


def test_sub_agents_may_have_sub_agents_and_may_begin_at_the_end():
    inner = {**CHILD, "after_turn": 1, "subagents": [{**CHILD, "after_turn": 0}]}
    (whole,) = recorded_families([json.dumps(record("p", turn(100), turn(120), subagents=[inner])), ""])
    assert [script.id for script in whole.members()] == ["p", "p/1", "p/1/1"]
    assert list(whole.children) == [1]


def test_files_of_recordings(tmp_path):
    line = json.dumps(PARENT).encode()
    plain, packed = tmp_path / "a.jsonl", tmp_path / "a.jsonl.gz"
    plain.write_bytes(line)
    packed.write_bytes(gzip.compress(line + b"\n"))
    assert read_families(plain) == read_families(packed) == recorded_families([line])


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\x1f\x8bx", b'{"id": "a", "turns": []}', b"null"])
def test_files_that_hold_none(tmp_path, content):
    file = tmp_path / "a.jsonl"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"a\.jsonl: holds no recorded sessions"):
        read_families(file)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match="nobody: cannot be read: No such file"):
        read_families(tmp_path / "nobody")


def test_a_shorter_family_has_only_those_who_have_begun():
    (whole,) = recorded_families([json.dumps(PARENT)])
    assert [script.id for script in whole.cut(1).members()] == ["p", "p/1", "p/2"]
    assert {len(script.turns) for script in whole.cut(1).members()} == {1}


def test_recorded_families_are_made_smaller():
    (whole,) = recorded_families([json.dumps(PARENT)])
    agents = RecordedAgents(sessions=5, turns=2, prompts=0.5, outputs=1.0, time=0.1, longest_think_s=1.0)
    (small,) = agents.families([whole])
    assert [script.id for script in small.members()] == ["p", "p/1", "p/2", "p/3"]
    assert small.script.prefix_tokens == 25
    assert [turn.think_s for turn in small.script.turns] == [0.0, 1.0]
    assert small.children[0][0].script.turns[0].new_prompt_tokens == 15
    assert agents.families() == tuple(map(family, agents.scripts()))


def test_synthetic_families():
    agents = SyntheticAgents(sessions=20, turns=9, sub_agents=2, sub_agents_after=0.25)
    families = agents.families()
    assert tuple(whole.script for whole in families) == agents.scripts()
    born = [child for whole in families for siblings in whole.children.values() for child in siblings]
    assert len(born) / 2 / (20 * 8) == pytest.approx(0.25, abs=0.1)
    assert {len(child.script.turns) for child in born} == {3}
    assert all(8 not in whole.children for whole in families)
    ids = [script.id for whole in families for script in whole.members()]
    assert len(set(ids)) == len(ids)
    assert families == agents.families()
    assert SyntheticAgents(sessions=2).families() == tuple(map(Family, SyntheticAgents(sessions=2).scripts()))


def scenario(**children):
    engine = {"kv_tokens": 10_000, "cost": {"a": 0.01, "b": 1e-5, "c": 0, "d": 0}}
    agents = {"turns": 3, "think_s": 2, "children": {"chance": 1.0, "count": 2, "turns": 2, **children}}
    arrive = {"wave": 1, "every_s": 10}
    return Scenario.model_validate(
        {
            "about": "a",
            "backends": [{"engine": engine}],
            "agents": [
                {"sessions": 2, "arrivals": arrive, **agents},
                {"sessions": 1, "unseen": True, "endless": True},
            ],
        }
    )


def test_the_agents_of_a_scenario_are_the_ones_that_the_simulator_plays():
    plans = make_plans(scenario(), (), 1)
    seen = [plan for plan in plans if not plan.part.unseen]
    families = planned_families(plans)
    assert [whole.script for whole in families] == [plan.script for plan in seen]
    assert [whole.start_s for whole in families] == [0.0, 10.0]
    for whole, plan in zip(families, seen, strict=True):
        assert whole.waits
        assert {index: [child.script for child in born] for index, born in whole.children.items()} == {
            index: [child.script for child in born] for index, born in plan.children.items()
        }
    assert not planned_families(make_plans(scenario(waits=False), (), 1))[0].waits


def test_a_scenario_may_be_played_faster():
    first, second = planned_families(make_plans(scenario(), (), 1), speed=4)
    assert (second.start_s, first.script.turns[1]) == (2.5, TurnScript(600, 250, 0.5))


def test_a_session_alone_is_a_family():
    script = SessionScript("a", 1, ())
    assert family(script) == Family(script)
    assert family(Family(script, start_s=3.0)).start_s == 3.0
