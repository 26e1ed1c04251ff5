"""Engines die, freeze and go blind under load: every client gets an answer, and the books are right afterwards."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager

import pytest

from concur_proxy.sim.server import EngineOptions, EngineServer
from tests.chaos import scenes
from tests.clients.stack import ProxyProcess
from tests.control.engines import FakeEngine, Page, metrics

TOKENS = 120


def check(seen):
    assert seen.hung == 0
    assert seen.balanced, seen.books
    assert seen.over_window <= 0


@pytest.mark.slow
def test_two_hundred_streams_outlive_their_engine_where_they_are_resumed():
    seen = scenes.kill_a_backend(resume=True, tokens=TOKENS)
    check(seen)
    assert seen.errors == {}
    assert seen.completed == 200
    assert seen.resumed > 0
    for stream in seen.streams:
        assert len(stream.ids) == 1
        assert stream.tokens == stream.usage["completion_tokens"] == TOKENS


@pytest.mark.slow
def test_two_hundred_streams_end_or_are_told_why_not_where_they_are_not_resumed():
    seen = scenes.kill_a_backend(resume=False, tokens=TOKENS)
    check(seen)
    assert all(stream.clean for stream in seen.streams)
    assert set(seen.errors) == {"backend_lost"}
    assert seen.completed + seen.errors.total() == 200


@pytest.mark.slow
def test_an_engine_that_falls_silent_gets_no_turns_within_ten_seconds():
    seen = scenes.freeze_a_backend()
    check(seen)
    assert seen.completed == seen.clients


@pytest.mark.slow
def test_streams_wait_for_a_network_that_comes_back():
    seen = scenes.cut_a_backend_off(comes_back=True, tokens=TOKENS)
    check(seen)
    assert (seen.completed, seen.errors) == (200, {})
    assert seen.resumed > 0, "nothing ran where the network was cut"


@pytest.mark.slow
def test_streams_are_told_why_not_where_the_network_does_not_come_back():
    seen = scenes.cut_a_backend_off(comes_back=False, tokens=TOKENS)
    check(seen)
    assert all(stream.clean for stream in seen.streams)
    assert seen.errors["backend_timeout"] > 0
    assert seen.completed + seen.errors.total() == 200


@pytest.mark.slow
def test_turns_go_on_while_the_network_to_the_metrics_is_cut():
    seen = scenes.cut_metrics_off(cut_s=1.0)
    assert seen.completed == seen.clients > 0
    assert seen.balanced


@pytest.mark.slow
def test_the_only_engine_may_be_restarted():
    seen = scenes.restart_a_backend()
    assert seen.hung == 0
    assert seen.balanced
    assert all(stream.clean for stream in seen.streams)


@contextmanager
def blinkable():
    """A page of metrics that can be taken away; yields its URL and what makes it fail or work."""
    loop, page, ready, stop = asyncio.new_event_loop(), {}, threading.Event(), asyncio.Event()

    async def serve():
        async with FakeEngine({"/metrics": metrics()}) as engine:
            page["engine"] = engine
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    ready.wait()
    engine = page["engine"]
    try:
        yield f"http://127.0.0.1:{engine.port}/metrics", lambda bad: engine.pages.update({"/metrics": bad})
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


@pytest.mark.parametrize("bad", [Page(hang=True), Page(status=500)], ids=["hangs", "500"])
def test_turns_go_on_by_ledger_and_latencies_while_metrics_are_lost(bad, tmp_path):
    with EngineServer(EngineOptions(port=0, model="alpha", speed=4.0)) as engine, blinkable() as (url, become):
        config = tmp_path / "config.yaml"
        config.write_text(
            f"backends: [{{url: '{engine.url}', metrics_url: '{url}'}}]\n"
            "control: {scrape_interval_s: 0.05, scrape_timeout_s: 0.2, stale_after_s: 0.5, decay_after_s: 1}\n"
        )
        with ProxyProcess([], flags=["--config", str(config)]) as proxy:
            scenes.until(lambda: not scenes.status(proxy.url)["backends"][0]["signals"]["stale"])
            seen = scenes.lose_metrics(lambda: become(bad), lambda: become(metrics()), proxy)
            assert seen.completed == seen.clients
            assert seen.balanced
            assert scenes.states(proxy.url) == {scenes.name_of(engine): "up"}
