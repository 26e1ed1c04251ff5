from concur_proxy.bench.demo import AGENTS, ENGINE
from concur_proxy.bench.workloads import RecordedAgents, SyntheticAgents, longest_contexts
from concur_proxy.sim.data import coding_agents
from concur_proxy.sim.options import deploy
from concur_proxy.sim.workload import SessionScript, TurnScript


def test_synthetic_agents_are_alike_but_for_their_pauses():
    scripts = SyntheticAgents(sessions=3, turns=4, first_tokens=800, new_tokens=200, output_tokens=50).scripts()
    assert [len(script.turns) for script in scripts] == [4, 4, 4]
    for script in scripts:
        assert [turn.new_prompt_tokens for turn in script.turns] == [800, 200, 200, 200]
        assert {turn.output_tokens for turn in script.turns} == {50}
        assert script.turns[0].think_s == 0
        assert not any(turn.rewrites for turn in script.turns)
    pauses = {turn.think_s for script in scripts for turn in script.turns[1:]}
    assert len(pauses) > 3
    assert SyntheticAgents(think_sigma=0, sessions=1).scripts()[0].turns[1].think_s == 0.5


def test_recorded_agents_are_made_smaller():
    scripts = RecordedAgents(5, 6, prompts=0.1, outputs=0.5, time=0.01, longest_think_s=0.2).scripts()
    assert len(scripts) == 5
    for script, original in zip(scripts, coding_agents(), strict=False):
        assert script.id == original.id
        assert len(script.turns) == min(6, len(original.turns))
        for turn, before in zip(script.turns, original.turns, strict=False):
            assert turn.new_prompt_tokens == max(1, round(before.new_prompt_tokens * 0.1))
            assert turn.output_tokens == max(1, round(before.output_tokens * 0.5))
            assert turn.think_s == min(before.think_s * 0.01, 0.2)
            assert turn.rewrites is before.rewrites


def test_the_longest_contexts_of_all_sessions():
    turns = (TurnScript(100, 10, 0.0), TurnScript(20, 5, 0.0), TurnScript(50, 1, 0.0, rewrites=True))
    assert longest_contexts((SessionScript("a", 10, turns), SessionScript("b", 10, turns[:1]))) == 145 + 120


def test_the_demo_is_in_the_regime_that_it_is_about():
    scripts, engine = AGENTS.scripts(), deploy(ENGINE)
    capacity = engine.engine.blocks * engine.engine.block_size
    assert 4 <= longest_contexts(scripts) / capacity <= 6.5
    assert max(max(script.prompts()) for script in scripts) < engine.max_model_len / 2
