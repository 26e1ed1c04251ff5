"""The history of a running proxy: what gate, engine and answers say becomes one moment."""

from __future__ import annotations

import asyncio
import math

import pytest

from concur_proxy.config import Settings
from concur_proxy.control.probe import Scrape
from concur_proxy.engines.base import EngineSample
from concur_proxy.model import BackendEvent, BackendId, SessionKey, TurnFacts, Usage
from concur_proxy.observe.turnlog import TurnLog
from concur_proxy.runtime.node import Node

NAME = BackendId("a")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


def recorded(clock, happens, *, law="fixed"):
    """Return the newest moment of a node with one backend, after ``happens(node)`` and a pause of ten seconds."""

    async def go():
        node = Node(Settings.model_validate({"backends": [{"url": "http://127.0.0.1:9", "name": NAME}], "control": {
            "law": law, "fixed": {"window": 3}}}))  # fmt: skip
        node.membership.start()
        try:
            node.clock = node.dispatcher.clock = clock
            node.dispatcher.backend_event(NAME, BackendEvent.UP)
            node.historian.record()
            clock.now += 10.0
            happens(node)
            node.historian.record()
            *_, (_, moment) = node.historian.history.ring(NAME).between(0.0)
            assert node.historian.history.total.newest_at == clock.now
            return moment
        finally:
            await node.stop()

    return asyncio.run(go())


def sample(at, **counters):
    return Scrape(NAME, "vllm", sample=EngineSample(at=at, **counters))


def test_places_and_windows_are_those_of_the_gate(clock):
    def happens(node):
        pool = node.gate.snapshot(now=clock.now).backends[NAME].pool
        for name in "abcd":
            node.gate.arrive(TurnFacts(pool, SessionKey("k", name), body_bytes=400), now=clock.now)

    moment = recorded(clock, happens)
    assert (moment.window_sessions, moment.active, moment.running, moment.held) == (3, 3, 3, 1)
    assert math.isnan(moment.window_tokens)
    assert math.isnan(moment.kv_usage)
    assert moment.footprint_tokens > 0


def test_turns_that_wait_for_any_backend_of_a_pool_count_once(clock):
    async def go():
        backends = [{"url": f"http://127.0.0.1:{port}", "name": name} for port, name in ((9, "a"), (10, "b"))]
        control = {"law": "fixed", "fixed": {"window": 1}}
        node = Node(Settings.model_validate({"backends": backends, "control": control}))
        node.membership.start()
        try:
            node.clock = node.dispatcher.clock = clock
            for name in ("a", "b"):
                node.dispatcher.backend_event(BackendId(name), BackendEvent.UP)
            pool = node.gate.snapshot(now=clock.now).backends[NAME].pool
            for name in "cdefg":
                node.gate.arrive(TurnFacts(pool, SessionKey("k", name), body_bytes=400), now=clock.now)
            node.historian.record()
            rings = (node.historian.history.ring(name) for name in ("a", "b", None))
            return [[moment.held for _, moment in ring.between(0.0)] for ring in rings]
        finally:
            await node.stop()

    assert asyncio.run(go()) == [[3], [3], [3]]


def test_a_window_of_tokens_is_no_window_of_sessions(clock):
    moment = recorded(clock, lambda _: None, law="footprint")
    assert math.isnan(moment.window_sessions)
    assert moment.window_tokens > 0


def test_what_a_backend_could_hold_that_takes_no_turns_is_no_room(clock):
    there = recorded(clock, lambda node: node.loop.scraped(sample(99.0, capacity_tokens=500)))
    assert (there.window_sessions, there.capacity_tokens) == (3, 500)

    def lost(node):
        node.loop.scraped(sample(109.0, capacity_tokens=500))
        node.dispatcher.backend_event(NAME, BackendEvent.LOST)

    gone = recorded(clock, lost)
    assert all(math.isnan(value) for value in (gone.window_sessions, gone.capacity_tokens))
    assert gone.active == 0


def test_rates_are_those_of_the_engines_counters(clock):
    def happens(node):
        node.loop.scraped(sample(99.0, prefix_queries=0, prefix_hits=0, generation_tokens=0, prompt_tokens=0))
        node.historian.record()
        clock.now += 10.0
        node.loop.scraped(sample(109.0, prefix_queries=400, prefix_hits=300, generation_tokens=50, prompt_tokens=400))

    moment = recorded(clock, happens)
    assert moment.hit_rate == 0.75
    assert (moment.prompt_tokens_per_s, moment.generated_tokens_per_s) == (40.0, 5.0)


def test_without_counters_answers_tell(clock):
    def happens(node):
        turn = TurnLog("r", "POST", "/", "chat", 200, "completed", 1.0, backend=NAME, usage=Usage(80, 20, 60))
        node.metrics.turn(turn)

    moment = recorded(clock, happens)
    assert moment.hit_rate == 0.75
    assert (moment.prompt_tokens_per_s, moment.generated_tokens_per_s) == (8.0, 2.0)
    assert moment.recomputed_tokens_per_s == 0.0
