"""Laws of whole runs: nothing is lost, nothing is counted twice, faults do what they say."""

import os
import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from concur_proxy.core.gate import GatePolicy
from concur_proxy.model import Outcome
from concur_proxy.sim.arms import Arm
from concur_proxy.sim.engine import Engine
from concur_proxy.sim.world import World
from concur_proxy.windows.fixed import Fixed
from tests.sim.worlds import AGENTS, ENGINE, play, scenario, world

TWO = [{"count": 2, "engine": ENGINE}]
FAULTS = st.lists(
    st.fixed_dictionaries(
        {
            "at_s": st.floats(0, 60),
            "kind": st.sampled_from(["lost", "back", "blind", "seeing", "flush", "capacity"]),
            "backend": st.sampled_from(["engine-1", "engine-2"]),
            "share": st.sampled_from([0.5, 0.8, 1.0]),
        }
    ),
    max_size=4,
)


@pytest.mark.sources
@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    law=st.sampled_from(["unlimited", "fixed:2", "aimd", "aimd/eager", "requests:3"]),
    faults=FAULTS,
    timeout=st.sampled_from([None, 5.0, 30.0]),
    children=st.booleans(),
)
def test_blocks_sessions_and_turns_are_all_accounted_for(seed, law, faults, timeout, children):
    """Invariant 10, in whole runs with faults and impatient clients; and the gate's books agree with the agents'."""
    spec = {"sessions": 6, "turns": 3} | (
        {"children": {"chance": 0.3, "turns": 2, "first_prompt": 500}} if children else {}
    )
    what = scenario(spec, backends=TWO, faults=faults, client={"timeout_s": timeout, "retries": 3})
    one = world(what, law, seed)
    front_ask = one.front.ask
    one.front.ask = lambda call: (check_blocks(one), front_ask(call))
    result = one.run()
    check_blocks(one)
    figures = result.figures
    assert figures.sessions + figures.failed + figures.unfinished == 6
    books = one.front.gate.snapshot(now=one.events.now)
    assert books.arrived == books.admitted + books.held + sum(books.refused.values()) + books.abandoned
    assert books.finished.get(Outcome.COMPLETED, 0) == figures.turns
    if not faults and timeout is None:
        assert (figures.failed, figures.unfinished, figures.errors, books.held, books.running) == (0, 0, 0, 0, 0)


def check_blocks(one):
    for runner in one.runners.values():
        pool = runner.engine.pool
        assert pool.used + pool.free + 1 == pool.total


def test_turns_of_a_session_follow_each_other():
    turns = {}
    for turn in play(scenario(), "aimd").turns:
        turns.setdefault(turn.session, []).append(turn)
    assert len(turns) == 12
    for session in turns.values():
        assert [turn.index for turn in session] == [0, 1, 2, 3, 4]
        assert all(a.done_at <= b.asked_at for a, b in pairwise(session))
        assert all(t.asked_at <= t.admitted_at < t.first_token_at <= t.done_at for t in session)
        assert all(turn.cached_tokens <= turn.known_tokens for turn in session)


def test_output_does_not_depend_on_the_process():
    code = (
        "from tests.sim.worlds import *; import json;"
        "print(json.dumps(play(scenario({'prefix_tokens': 500, 'children': {'chance': .3}}), 'aimd').to_json()))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, check=True, env={**os.environ, "PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


@pytest.mark.parametrize(
    ("history", "least", "most"), [("kept", 0.8, 1), ("dropped", 0.55, 0.75), ("changed", 0.5, 0.7)]
)
def test_what_clients_send_back_decides_what_hits(history, least, most):
    ample = [{"engine": ENGINE | {"kv_tokens": 1_000_000}}]
    figures = play(scenario({"history": history, "first_prompt": 500, "output": 400}, backends=ample)).figures
    known = figures.recomputed_tokens
    assert least < figures.hit_rate < most or history == "kept"
    assert known < 16 * figures.turns, "all that is known hits, but for the last block"


def test_a_shared_prefix_is_computed_once():
    ample = [{"engine": ENGINE | {"kv_tokens": 1_000_000}}]
    apart = play(scenario({"turns": 1, "first_prompt": 4500}, backends=ample))
    shared = play(scenario({"turns": 1, "first_prompt": 500, "prefix_tokens": 4000}, backends=ample), "fixed:1")
    assert apart.figures.hit_rate == 0
    assert sorted(turn.cached_tokens for turn in shared.turns) == [0] + [4000] * 11


def test_parents_wait_for_their_children_or_do_not():
    spec = {"sessions": 1, "turns": 2, "think_s": 1, "children": {"chance": 1, "turns": 4, "think_s": 30}}
    waits = play(scenario(spec))
    goes_on = play(scenario(spec | {"children": spec["children"] | {"waits": False}}))
    assert waits.figures.ended_s > 90 > goes_on.figures.ended_s
    children = [turn for turn in waits.turns if "/" in turn.session]
    parent = [turn for turn in waits.turns if "/" not in turn.session]
    assert len(children) == 4
    assert parent[1].asked_at == pytest.approx(max(turn.done_at for turn in children) + 1)


def test_unseen_agents_load_the_engine_and_nobody_waits_for_them():
    quiet = play(scenario())
    busy = play(scenario({}, {"sessions": 4, "unseen": True, "endless": True}))
    assert busy.figures.ended_s > 1.1 * quiet.figures.ended_s
    assert busy.figures.turns == quiet.figures.turns == 60
    assert max(moment.active for moment in busy.series[0].moments) <= 12


def test_an_engine_that_is_lost_takes_its_contexts_along_and_the_other_one_goes_on():
    lost = [{"at_s": 20, "kind": "lost", "backend": "engine-1"}]
    two = [{"count": 2, "engine": ENGINE | {"kv_tokens": 1_000_000}}]
    calm, result = play(scenario(backends=two)), play(scenario(backends=two, faults=lost))
    assert (result.figures.sessions, result.figures.failed, result.figures.errors) == (12, 0, 0)
    assert calm.figures.recomputed_tokens < 1000 < result.figures.recomputed_tokens


def test_without_any_engine_clients_are_refused_until_it_is_back():
    faults = [{"at_s": 20, "kind": "lost"}, {"at_s": 50, "kind": "back"}]
    result = play(scenario(faults=faults, client={"retries": 100}), "fixed:4")
    assert (result.figures.sessions, result.figures.failed) == (12, 0)
    assert result.troubles["no_backend"] > 0
    gave_up = play(scenario(faults=faults[:1], client={"retries": 1}), "fixed:4")
    assert gave_up.figures.failed == 12


def test_a_flush_costs_what_was_idle():
    ample = [{"engine": ENGINE | {"kv_tokens": 1_000_000}}]
    spec = {"think_s": 40}
    calm = play(scenario(spec, backends=ample))
    flushed = play(scenario(spec, backends=ample, faults=[{"at_s": 40, "kind": "flush"}]))
    assert calm.figures.recomputed_tokens < 1000 < flushed.figures.recomputed_tokens


def test_half_the_capacity_hits_less():
    spec, faults = {"think_s": 5}, [{"at_s": 1, "kind": "capacity", "share": 0.3}]
    engine = [{"engine": ENGINE | {"kv_tokens": 40_000}}]
    whole, less = play(scenario(spec, backends=engine)), play(scenario(spec, backends=engine, faults=faults))
    assert less.figures.hit_rate < whole.figures.hit_rate - 0.1
    assert max(moment.kv_usage for moment in less.series[0].moments) <= 1


def test_without_metrics_nothing_is_known_of_the_engine():
    seen = play(scenario(faults=[{"at_s": 10, "kind": "blind"}]), "aimd").series[0].moments
    assert seen[5].kv_usage is not None
    blind = play(scenario(signals={"metrics": False}), "aimd")
    assert all(moment.kv_usage is None for moment in blind.series[0].moments)
    assert blind.figures.sessions == 12


def test_noise_moves_the_gauge_and_stays_within_it():
    usages = [
        [moment.kv_usage for moment in play(scenario(signals={"usage_noise": noise}), "fixed:3").series[0].moments]
        for noise in (0, 0.2)
    ]
    assert usages[0] != usages[1]
    assert all(0 <= usage <= 1 for usage in usages[1])


def test_impatient_clients_try_again_and_then_fail():
    patient = play(scenario(client={"timeout_s": 1000, "retries": 0}), "fixed:2")
    hasty = play(scenario(client={"timeout_s": 20, "retries": 1}), "fixed:2")
    assert (patient.figures.failed, patient.figures.errors) == (0, 0)
    assert hasty.troubles["client_timeout"] > 0
    assert hasty.figures.failed > 0


def test_models_have_engines_of_their_own():
    backends = [{"name": name, "model": name, "engine": ENGINE} for name in ("a", "b")]
    result = play(
        scenario({"model": "a", "sessions": 3}, {"model": "b", "sessions": 9}, backends=backends), "unlimited"
    )
    most = {series.backend: max(moment.active for moment in series.moments) for series in result.series}
    assert most == {"a": 3, "b": 9}


def test_an_open_scenario_stops_at_its_time():
    what = scenario({"sessions": 200, "arrivals": {"rate_per_s": 1}}, stop_after_s=100)
    result = play(what, "fixed:4")
    assert result.open
    assert result.figures.ended_s == 100
    assert result.figures.unfinished > 0
    assert result.score == pytest.approx(1 / result.figures.output_tokens_per_s)


def test_sessions_that_say_nothing_hold_their_places_for_a_lease():
    assert AGENTS["sessions"] == 12
    polite, silent = (play(scenario({"goodbye": goodbye}), "fixed:4") for goodbye in (True, False))
    assert silent.figures.ended_s >= polite.figures.ended_s
    assert silent.gate["reclaimed"] + silent.gate["leases_expired"] > 0


def test_a_law_that_fails_ends_the_run():
    class Broken(Fixed):
        def update(self, signals, view, *, now):
            raise ZeroDivisionError

    what = scenario()
    one = World(what, Arm("broken", lambda **bounds: Broken()), GatePolicy(), recorded=(), seed=1)
    with pytest.raises(ZeroDivisionError):
        one.run()


def test_unseen_agents_go_to_the_engines_in_turns_and_elsewhere_when_theirs_dies():
    lost = [{"at_s": 5, "kind": "lost", "backend": "engine-1"}]
    unseen = {"sessions": 4, "unseen": True, "turns": 30}
    one = world(scenario({"sessions": 1, "turns": 30}, unseen, backends=TWO, faults=lost, client={"retries": 10}))
    one.run()
    dead, alive = one.runners.values()
    assert dead.work.steps > 0
    assert one.troubles["backend_lost"] >= 2
    assert alive.generated_tokens > 5 * dead.generated_tokens


def test_capacity_comes_back():
    faults = [{"at_s": 1, "kind": "capacity", "share": 0.3}, {"at_s": 30, "kind": "capacity", "share": 1}]
    one = world(scenario(faults=faults))
    one.run()
    (runner,) = one.runners.values()
    assert runner.engine.pool.used == 0


@pytest.mark.parametrize("law", ["unlimited", "aimd"])
def test_merging_steps_changes_no_run(monkeypatch, law):
    """Whatever happens to an engine cuts its merged steps: the run is the one that goes step by step."""
    faults = [
        {"at_s": 9.7, "kind": "flush", "backend": "engine-1"},
        {"at_s": 14.3, "kind": "capacity", "share": 0.8, "backend": "engine-1"},
        {"at_s": 21.1, "kind": "lost", "backend": "engine-2"},
        {"at_s": 33.3, "kind": "back", "backend": "engine-2"},
    ]
    what = scenario(backends=TWO, faults=faults, client={"timeout_s": 25, "retries": 5})
    merged = play(what, law)
    start_step = Engine.start_step
    monkeypatch.setattr(Engine, "start_step", lambda self, now, until=None: start_step(self, now))
    stepped = play(what, law)
    assert merged.to_json() == stepped.to_json()
    assert merged.turns == stepped.turns
    assert merged.series == stepped.series


@pytest.mark.parametrize("goodbye", [True, False])
def test_a_session_departs_once_whether_it_says_so_or_its_lease_does(goodbye):
    """Leases are over an hour after the last turn."""
    one = world(scenario({"sessions": 4, "goodbye": goodbye}))
    one.run()
    (name,) = one.runners
    if not goodbye:
        assert one.front.view(name).departed < 4
        one.front.gate.tick(now=one.events.now + 3600)
    assert one.front.view(name).departed == 4


FULL = [{"engine": ENGINE | {"max_running": 4, "max_queued": 3}}]


def test_turns_that_a_full_engine_refuses_wait_and_are_sent_again():
    one = world(scenario(backends=FULL))
    result = one.run()
    (runner,) = one.runners.values()
    assert runner.engine.stats.rejections > 0
    assert (result.figures.sessions, result.figures.errors) == (12, 0)


def test_laws_hear_of_refusals_at_once():
    """A window that refusals cut is refused less often than one that does not mind them."""
    refusals = {}
    for law in ("unlimited", "aimd"):
        one = world(scenario(backends=FULL), law)
        one.run()
        (refusals[law],) = (runner.engine.stats.rejections for runner in one.runners.values())
    assert 0 < refusals["aimd"] < refusals["unlimited"] / 2


def test_what_goes_past_the_proxy_is_refused_to_its_face():
    seen, unseen = {"sessions": 2, "turns": 2}, {"sessions": 10, "turns": 2, "unseen": True}
    troubles = play(scenario(seen, unseen, backends=FULL, client={"retries": 2})).troubles
    assert set(troubles) == {"overloaded"}
