"""Experiments: what their files may say, which runs are missing, and what is told of those that are there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bench.experiment import wanted
from bench.overhead import document
from bench.trials.kept import Kept, Run
from bench.trials.plot import draw
from bench.trials.report import section
from bench.trials.spec import Experiment
from bench.trials.ways import opened
from concur_proxy.bench.engine_stats import EngineStats
from concur_proxy.bench.player import PlayOptions, play
from concur_proxy.bench.workloads import RecordedAgents
from concur_proxy.sim.server import EngineOptions, EngineServer
from concur_proxy.sim.workload import SessionScript, TurnScript
from concur_proxy.windows import LAWS

FILES = sorted((Path(__file__).parents[2] / "bench" / "experiments").glob("*.yaml"))
RESULTS = Path(__file__).parents[2] / "docs" / "results.md"

SMALL = {
    "title": "Small",
    "about": "Two ways.",
    "engine": {"kv_tokens": 1024},
    "agents": {"synthetic": {"turns": 2}},
    "loads": [3],
    "rounds": 2,
    "ways": {"direct": {}, "fixed 2": {"proxy": ["--law", "fixed"]}, "fixed 4": {"proxy": []}},
    "compare": [["direct", "best fixed"]],
}


def small(**other):
    return Experiment.model_validate({**SMALL, **other})


def run(experiment, way, number, rate):
    report = {
        "useful_tokens_per_s": rate,
        "output_tokens_per_s": rate / 2,
        "hit_rate": 0.5,
        "recomputed_tokens": 7,
        "turn_p50_s": 1.0,
        "turn_p95_s": 2.0,
        "jobs": {"p95_s": 3.0},
        "longest_wait_s": 4.0,
        "failed_sessions": 1,
    }
    return Run(experiment.key(3, way), 3, way, number, report, "today")


def test_agents_begin_all_at_once_or_as_their_arrivals_say():
    assert [one.start_s for one in small().agents.families(3)] == [0.0, 0.0, 0.0]
    surge = {"rate_per_s": 0.5, "surge": 20, "surge_at_s": 10, "surge_s": 2}
    starts = [one.start_s for one in small(agents={"arrivals": surge}).agents.families(40)]
    assert starts == sorted(starts)
    assert starts[-1] > 12
    assert sum(10 <= start < 12 for start in starts) > 10


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_file_is_an_experiment_that_the_results_show(path):
    experiment = Experiment.read(path)
    agents = experiment.agents
    most = len(RecordedAgents(**agents.recorded, sessions=10**6).scripts()) if agents.recorded else 10**6
    for load in experiment.loads:
        assert load <= len(agents.scripts(load)) == min(load * (1 + agents.refills), most)
    for way in experiment.ways.values():
        assert isinstance(experiment.play.options(way, 2, ["a"]), PlayOptions)
        if way.proxy and "--law" in way.proxy:
            assert way.proxy[way.proxy.index("--law") + 1] in LAWS
    assert {name for pair in experiment.compare for name in pair} <= {*experiment.ways, "best fixed"}
    assert f"<!-- experiment: {path.stem} -->" in RESULTS.read_text()


def test_what_changes_a_run_changes_its_key_and_nothing_else_does():
    key = small().key(3, "direct")
    assert small(title="Other", rounds=9, loads=[3, 4]).key(3, "direct") == key
    others = [
        small().key(4, "direct"),
        small().key(3, "fixed 2"),
        small(engine={"kv_tokens": 2048}).key(3, "direct"),
        small(agents={"synthetic": {"turns": 3}}).key(3, "direct"),
        small(play={"timeout_s": 5}).key(3, "direct"),
    ]
    assert len({key, *others}) == 6


def test_a_way_is_one_thing():
    with pytest.raises(ValueError, match="either proxy or router"):
        small(ways={"both": {"proxy": [], "router": []}})


def test_an_experiment_goes_on_where_it_was(tmp_path):
    experiment, path = small(), tmp_path / "deep" / "runs.jsonl"
    assert wanted(experiment, Kept(path), 3, "direct", 0)
    Kept(path).add(run(experiment, "direct", 0, 10.0))
    again = Kept(path)
    assert not wanted(experiment, again, 3, "direct", 0)
    assert wanted(experiment, again, 3, "direct", 1)
    assert not wanted(experiment, again, 3, "direct", -1)
    assert [found.report["useful_tokens_per_s"] for found in again.of(experiment.key(3, "direct"))] == [10.0]


def test_the_round_that_teaches_is_played_and_not_told(tmp_path):
    experiment = small(ways={"learned": {"proxy": [], "keeps_state": True}}, compare=[])
    kept = Kept(tmp_path / "runs.jsonl")
    assert wanted(experiment, kept, 3, "learned", -1)
    kept.add(run(experiment, "learned", -1, 10.0))
    assert not wanted(experiment, kept, 3, "learned", -1)
    assert kept.of(experiment.key(3, "learned")) == []
    assert "learned" not in section(experiment, kept)


def test_the_best_fixed_window_is_found_and_pairs_are_compared(tmp_path):
    experiment, kept = small(), Kept(tmp_path / "runs.jsonl")
    for way, rates in (("direct", (10.0, 20.0)), ("fixed 2", (5.0, 10.0)), ("fixed 4", (4.0, 10.0))):
        for number, rate in enumerate(rates):
            kept.add(run(experiment, way, number, rate))
    text = section(experiment, kept)
    assert "**3 agents** (today)" in text
    assert len({line.count("|") for line in text.splitlines() if line.startswith("|")}) == 1
    assert "| fixed 2 | 2 | 8 (5 to 10) | 4 | 50.0% | 7 | 1.0 s / 2.0 s | 3.0 s | 4.0 s | 2 |" in text
    assert "- direct over best fixed (fixed 2): **2.00** (least 2.00, lower bound of the 95 % interval 2.00)" in text


def test_a_page_gets_the_tables_between_its_marks(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- experiment: x -->\nold\n<!-- end -->\nb\n<!-- experiment: y -->\n<!-- end -->\n")
    document.write(page, "experiment: x", "new \\1\n")
    assert (
        page.read_text()
        == "a\n<!-- experiment: x -->\nnew \\1\n<!-- end -->\nb\n<!-- experiment: y -->\n<!-- end -->\n"
    )
    with pytest.raises(ValueError, match="experiment: z"):
        document.write(page, "experiment: z", "")


def test_a_proxy_keeps_what_it_learned_where_the_way_says_so(tmp_path):
    experiment = small(ways={"learned": {"proxy": ["--law", "meanfield"], "keeps_state": True}}, compare=[])
    state = tmp_path / "state.json"
    scripts = experiment.agents.scripts(8)
    with EngineServer(EngineOptions(port=0, model="m", speed=50.0)) as engine:
        with opened(experiment.ways["learned"], engine.url, state) as url:
            report = asyncio.run(play(url, scripts, PlayOptions()))
        assert report.errors == 0
        assert state.exists()
        with opened(Experiment.model_validate(SMALL).ways["direct"], engine.url, state) as url:
            assert url == engine.url


def test_clients_may_limit_their_own_requests():
    script = (TurnScript(20, 4, 0.0), TurnScript(20, 4, 0.0))
    scripts = tuple(SessionScript(str(number), 0, script) for number in range(6))
    most = []
    with EngineServer(EngineOptions(port=0, model="m", speed=5.0)) as engine:
        for limit in (2, None):
            seen = []
            options = PlayOptions(requests_at_once=limit)
            report = asyncio.run(play(engine.url, scripts, options, on_progress=lambda p, s=seen: s.append(p.active)))
            assert report.turns == 12
            most.append(max(seen))
    assert most[0] <= 2


def test_a_run_may_be_stopped_and_counts_what_was_answered_until_then():
    scripts = tuple(SessionScript(str(number), 0, (TurnScript(20, 4, 0.0),) * 400) for number in range(4))
    with EngineServer(EngineOptions(port=0, model="m", speed=5.0)) as engine:
        report = asyncio.run(play(engine.url, scripts, PlayOptions(stop_after_s=1.0)))
    assert 0 < report.turns < 1600
    assert report.errors == 0
    assert report.useful_tokens_per_s > 0


def test_a_warm_up_is_played_and_not_counted():
    scripts = tuple(SessionScript(str(number), 0, (TurnScript(20, 4, 0.0),) * 400) for number in range(4))

    async def played(url):
        stats = EngineStats(url)
        await stats.begin()
        report = await play(url, scripts, PlayOptions(stop_after_s=2.0, warm_up_s=1.0))
        spent = await stats.end()
        await stats.aclose()
        return report, spent

    with EngineServer(EngineOptions(port=0, model="m", speed=5.0)) as engine:
        report, spent = asyncio.run(played(engine.url))
    assert 0 < report.output_tokens < spent.generation_tokens
    assert report.wall_s >= 1.0


def test_ways_are_drawn_over_loads(tmp_path):
    experiment, kept = small(), Kept(tmp_path / "runs.jsonl")
    kept.add(run(experiment, "fixed 2", 0, 10.0))
    draw(tmp_path / "ways.svg", experiment, kept, ["direct", "fixed 2"])
    assert "fixed 2" in (tmp_path / "ways.svg").read_text()
