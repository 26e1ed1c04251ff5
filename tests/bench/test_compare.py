import asyncio
import json

import pytest

from concur_proxy.bench import engine_stats
from concur_proxy.bench.compare import CompareOptions, Target, compare
from concur_proxy.bench.player import PlayOptions, Stop
from concur_proxy.errors import ConfigError
from concur_proxy.sim.server import EngineOptions, EngineServer
from concur_proxy.sim.workload import SessionScript, TurnScript
from tests.bench.servers import MODELS, chat, reply, served

SCRIPTS = (SessionScript("a", 10, (TurnScript(40, 5, 0.0), TurnScript(40, 5, 0.0))),)
PLAY = PlayOptions(model="m")


def answers(seen):
    return reply(MODELS) if seen.path == "/v1/models" else reply(chat(cached=4))


@pytest.mark.parametrize(
    ("text", "label", "url"),
    [
        ("direct=http://x:1", "direct", "http://x:1"),
        ("http://x:1", "http://x:1", "http://x:1"),
        ("http://x:1/?a=b", "http://x:1/?a=b", "http://x:1/?a=b"),
        ("a=http://x:1/v1/", "a", "http://x:1"),
        ("http://x:1/v1", "http://x:1/v1", "http://x:1"),
    ],
)
def test_targets_as_a_person_writes_them(text, label, url):
    assert Target.parse(text, engine_url="e") == Target(label, url, "e")


def test_rounds_take_turns_and_turn_around():
    order = []

    async def main():
        async with served(answers) as (url, _):
            options = CompareOptions((Target("a", url), Target("b", url)), rounds=3, play=PLAY)
            return await compare(SCRIPTS, options, on_progress=lambda target, n, _: order.append((n, target.label)))

    comparison = asyncio.run(main())
    assert list(dict.fromkeys(order)) == [(0, "a"), (0, "b"), (1, "b"), (1, "a"), (2, "a"), (2, "b")]
    assert {label: len(runs) for label, runs in comparison.reports.items()} == {"a": 3, "b": 3}
    assert comparison.baseline == "a"
    rates = {label: [run.output_tokens_per_s for run in runs] for label, runs in comparison.reports.items()}
    pairs = [b / a for a, b in zip(rates["a"], rates["b"], strict=True)]
    assert comparison.ratios["b"].each == pytest.approx(pairs)
    shown = json.loads(json.dumps(comparison.as_json()))
    assert shown["ratios"]["b"]["useful tokens/s"]["least"] == pytest.approx(min(pairs))
    assert "first token p95" not in shown["ratios"]["b"]  # nothing was streamed
    assert len(shown["runs"]["a"]) == 3


@pytest.mark.parametrize("labels", [(), ("a", "a")])
def test_labels_must_differ(labels):
    options = CompareOptions(tuple(Target(label, "http://127.0.0.1:1") for label in labels), play=PLAY)
    with pytest.raises(ConfigError, match="labels"):
        asyncio.run(compare(SCRIPTS, options))


def test_a_comparison_that_is_stopped_has_what_was_played(monkeypatch):
    stop = Stop()

    def in_the_third_run(target, index, _):
        if (index, target.label) == (1, "b"):
            stop()

    async def main():
        async with served(answers) as (url, _):
            options = CompareOptions((Target("a", url), Target("b", url)), rounds=5, play=PLAY)
            return await compare(SCRIPTS, options, on_progress=in_the_third_run, stop=stop)

    comparison = asyncio.run(main())
    assert {label: len(runs) for label, runs in comparison.reports.items()} == {"a": 1, "b": 2}
    assert (comparison.reports["b"][1].ended_early, comparison.failure) == ("interrupted", "interrupted")
    assert len(comparison.ratios["b"].each) == 1  # the round that both have played


def test_an_engine_that_goes_away_ends_a_comparison_with_what_was_played():
    async def main():
        async with served(answers) as (url, _):
            play = PlayOptions()  # asks for the model's name
            options = CompareOptions((Target("a", url), Target("b", "http://127.0.0.1:1")), rounds=2, play=play)
            return await compare(SCRIPTS, options)

    comparison = asyncio.run(main())
    assert {label: len(runs) for label, runs in comparison.reports.items()} == {"a": 1, "b": 0}
    assert "127.0.0.1:1 does not answer" in comparison.failure
    assert comparison.ratios == {"b": None}


def test_an_engine_is_emptied_and_read_around_each_run(monkeypatch):
    monkeypatch.setattr(engine_stats, "QUIET_PERIOD_S", 0)
    with EngineServer(EngineOptions(port=0, speed=1000, cached_tokens=False)) as engine:
        options = CompareOptions((Target("direct", engine.url, engine.url),), rounds=2)
        comparison = asyncio.run(compare(SCRIPTS, options))
    for report in comparison.reports["direct"]:
        # The first prompt is new in each round, so the cache was empty; the second finds the first's 48 of 55 tokens.
        assert (report.cached_tokens, report.preemptions) == (48, 0)


def test_without_a_reset_the_second_run_finds_the_firsts_contexts(monkeypatch):
    monkeypatch.setattr(engine_stats, "QUIET_PERIOD_S", 0)
    with EngineServer(EngineOptions(port=0, speed=1000)) as engine:
        options = CompareOptions((Target("direct", engine.url, engine.url),), rounds=2, reset_cache=False)
        first, second = asyncio.run(compare(SCRIPTS, options)).reports["direct"]
    assert second.cached_tokens > first.cached_tokens


def test_a_proxy_of_our_own_lives_for_one_run(monkeypatch):
    monkeypatch.setattr(engine_stats, "QUIET_PERIOD_S", 0)
    with EngineServer(EngineOptions(port=0, speed=1000)) as engine:
        target = Target.own_proxy("proxied", engine.url, "--law", "unlimited")
        comparison = asyncio.run(compare(SCRIPTS, CompareOptions((target,), rounds=1)))
    (report,) = comparison.reports["proxied"]
    assert (report.turns, report.errors, report.cached_tokens) == (2, 0, 48)
