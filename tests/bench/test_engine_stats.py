import asyncio

import pytest

from concur_proxy.bench import engine_stats
from concur_proxy.bench.engine_stats import EngineDelta, EngineStats, delta
from concur_proxy.engines.base import EngineSample
from concur_proxy.errors import BackendError
from tests.bench.servers import reply, served


def page(hits, queries):
    return f"""\
# TYPE vllm:prefix_cache_hits counter
vllm:prefix_cache_hits_total{{engine="0",model_name="m"}} {hits}
vllm:prefix_cache_queries_total{{engine="0",model_name="m"}} {queries}
vllm:num_preemptions_total{{engine="0",model_name="m"}} 2.0
""".encode()


def run(answer, use):
    async def main():
        async with served(answer) as (url, script):
            stats = EngineStats(url)
            try:
                return await use(stats), script
            finally:
                await stats.aclose()

    return asyncio.run(main())


async def begin_and_end(stats):
    await stats.begin()
    return await stats.end()


def test_counters_before_and_after(monkeypatch):
    monkeypatch.setattr(engine_stats, "QUIET_PERIOD_S", 0)
    pages = iter([page(100, 1000), page(400, 3000)])
    found, script = run(lambda _: reply(next(pages)), begin_and_end)
    assert (found.prefix_hits, found.prefix_queries, found.preemptions) == (300, 2000, 0)
    assert (found.prompt_tokens, found.generation_tokens) == (None, None)
    assert {seen.path for seen in script.seen} == {"/metrics"}


@pytest.mark.parametrize("body", [b"<html>", b"", b"{}", b"python_gc_objects 1\n"])
def test_an_engine_without_metrics_is_unknown(monkeypatch, body):
    monkeypatch.setattr(engine_stats, "QUIET_PERIOD_S", 0)
    assert run(lambda _: reply(body, 404 if not body else 200), begin_and_end)[0] == EngineDelta()


def test_a_counter_that_went_back_is_unknown():
    found = delta(EngineSample(at=0, prefix_hits=10, preemptions=1), EngineSample(at=0, prefix_hits=5, preemptions=4))
    assert found == EngineDelta(preemptions=3)


def test_the_cache_is_emptied_as_soon_as_it_can_be(monkeypatch):
    monkeypatch.setattr(engine_stats, "RESET_INTERVAL_S", 0)
    answers = iter([{"success": False}, {"success": False}, {"success": True}])
    _, script = run(lambda _: reply(next(answers)), EngineStats.reset_cache)
    assert [(seen.method, seen.path) for seen in script.seen] == [("POST", "/reset_prefix_cache")] * 3


def test_an_old_engine_says_nothing():
    assert len(run(lambda _: reply(b""), EngineStats.reset_cache)[1].seen) == 1


def test_a_cache_that_stays_in_use(monkeypatch):
    monkeypatch.setattr(engine_stats, "RESET_INTERVAL_S", 0)
    with pytest.raises(BackendError, match="in use"):
        run(lambda _: reply({"success": False}), EngineStats.reset_cache)


def test_an_engine_that_cannot_empty_its_cache():
    with pytest.raises(BackendError, match="VLLM_SERVER_DEV_MODE"):
        run(lambda _: reply(b"", 404), EngineStats.reset_cache)


def test_an_engine_that_is_not_there():
    with pytest.raises(BackendError, match="does not answer"):
        asyncio.run(EngineStats("http://127.0.0.1:1").reset_cache())
