import gzip
import json
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.sim.data import ATTRIBUTION, coding_agents
from concur_proxy.sim.workload import SessionScript, Shape, Spread, TurnScript, recorded, scaled, synthetic

RECORD = {
    "id": "s",
    "system_tokens": 300,
    "tool_tokens": 700,
    "turns": [
        {"in": 5000, "prefix": 0, "out": 100, "think_s": 0, "stop": "tool_use"},
        {"in": 5600, "prefix": 4992, "out": 50, "think_s": 7.5, "stop": "tool_use"},
        {"in": 5620, "prefix": 5568, "out": 0, "think_s": 3, "stop": "tool_use"},
        {"in": 2000, "prefix": 960, "out": 10, "think_s": 60, "stop": ""},
    ],
}


def test_a_recorded_session_keeps_the_length_of_its_prompts():
    (script,) = recorded([json.dumps(RECORD)])
    assert (script.id, script.prefix_tokens) == ("s", 1000)
    assert script.turns == (
        TurnScript(4000, 100, 0.0),
        TurnScript(500, 50, 7.5),
        TurnScript(1, 1, 3.0),
        TurnScript(1000, 10, 60.0, rewrites=True),
    )
    assert list(script.prompts()) == [5000, 5600, 5651, 2000]


def test_sub_agents_are_sessions_of_their_own():
    child = {**RECORD, "id": "child", "after_turn": 1}
    scripts = recorded([json.dumps({**RECORD, "subagents": [child, child]}), "", json.dumps({**RECORD, "id": "t"})])
    assert [script.id for script in scripts] == ["s", "s/1", "s/2", "t"]


def test_a_prompt_shorter_than_its_prefix_still_has_a_token_of_its_own():
    (script,) = recorded([json.dumps({**RECORD, "turns": [{"in": 800, "prefix": 0, "out": 5, "think_s": 0}]})])
    assert script.prefix_tokens == 799
    assert list(script.prompts()) == [800]


def test_the_packaged_recording_is_there_with_its_attribution():
    scripts = coding_agents()
    assert len(scripts) == 96
    assert all(8 <= len(script.turns) <= 80 for script in scripts)
    assert len({script.id for script in scripts}) == 96
    folder = files("concur_proxy.sim.data")
    for part in ("callanjfox/kv-cache-tester", "Apache License 2.0", "WEKA"):
        assert part in ATTRIBUTION
        assert part in folder.joinpath("README.md").read_text()
    raw = folder.joinpath("coding-agents.jsonl.gz").read_bytes()
    assert len(raw) <= 60_000
    records = [json.loads(line) for line in gzip.decompress(raw).splitlines()]
    for script, record in zip(scripts, records, strict=True):
        for mine, turn in zip(script.prompts(), record["turns"], strict=True):
            assert turn["in"] <= mine <= turn["in"] * 1.12


def test_scaling_keeps_the_shape():
    script = SessionScript("s", 1000, (TurnScript(4000, 100, 2.0), TurnScript(9, 3, 4.0, rewrites=True)))
    (small,) = scaled([script], tokens=0.1, time=0.5)
    assert small == SessionScript("s", 100, (TurnScript(400, 10, 1.0), TurnScript(1, 1, 2.0, rewrites=True)))
    assert scaled([script]) == (script,)


@given(st.integers(0, 1000))
def test_a_synthetic_workload_is_the_same_for_the_same_seed(seed):
    first, second = (synthetic(5, Shape(), seed=seed) for _ in range(2))
    assert first == second
    for script in first:
        assert script.turns[0].think_s == 0
        assert all(turn.new_prompt_tokens >= 1 and turn.output_tokens >= 1 for turn in script.turns)
        assert not script.turns[0].rewrites


def test_a_synthetic_workload_has_the_medians_it_was_asked_for():
    shape = Shape(turns=Spread(20), new_prompt=Spread(500, 1.5), think_s=Spread(10, 1.3), rewrite_share=0.0)
    scripts = synthetic(60, shape, seed=3)
    assert {len(script.turns) for script in scripts} == {20}
    later = [turn for script in scripts for turn in script.turns[1:]]
    assert sorted(turn.new_prompt_tokens for turn in later)[len(later) // 2] == pytest.approx(500, rel=0.15)
    assert sorted(turn.think_s for turn in later)[len(later) // 2] == pytest.approx(10, rel=0.15)
    assert synthetic(1, shape, seed=3) != synthetic(1, shape, seed=4)
    assert any(turn.rewrites for turn in synthetic(1, Shape(rewrite_share=1.0), seed=0)[0].turns)
