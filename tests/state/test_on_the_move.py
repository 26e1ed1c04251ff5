"""Places of sessions that move while they are given away: no more turns run at once, over all replicas, than may.

The real script in a real Redis, real gates and replicas; the test says which word arrives when.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from redis import Redis

from concur_proxy.core import patience
from concur_proxy.core.gate import GatePolicy
from concur_proxy.sim.arms import arm
from concur_proxy.sim.scenario import Scenario
from concur_proxy.state import owners, replica
from tests.state.cast import Actor, settle
from tests.state.redis import RedisServer, needs_redis
from tests.state.world import ReplicatedWorld, Server, play

pytestmark = needs_redis

PREFIX = "{test}:"
WINDOW = 6


@pytest.fixture(scope="module")
def client() -> Iterator[Redis]:
    with RedisServer() as server:
        yield Redis(port=server.port, decode_responses=True)


def begin(client: Redis, monkeypatch: pytest.MonkeyPatch, count: int) -> list[Actor]:
    monkeypatch.setattr(owners, "PATIENCE_S", 3600.0)
    monkeypatch.setattr(replica, "MEMBER_MS", 3_600_000)
    monkeypatch.setattr(
        patience, "due_at", lambda _backend, _losers, _arriving, now: now if PATIENCE.over else math.inf
    )
    PATIENCE.over = False
    client.flushall()
    client.set(f"{PREFIX}heard", client.time()[0] * 1000)
    client.set(f"{PREFIX}since", 1)
    return [Actor(client, PREFIX, f"r{number}", float(WINDOW)) for number in range(count)]


class Patience:
    """With the idle places of an engine that has nothing to do, while turns wait."""

    over = False

    def ends(self, one: Actor) -> None:
        self.over = True
        one.door.note(one.door.gate.tick(now=one.door.clock()))


PATIENCE = Patience()


def running(actors: list[Actor]) -> int:
    return sum(len(actor.door.leases) for actor in actors)


async def fill(one: Actor, actors: list[Actor]) -> None:
    """Let one replica have the whole window as idle places, which all know of."""
    for number in range(WINDOW):
        one.arrive(f"s{number}")
        settle(actors)
    for ticket in list(one.door.leases):
        one.finish(ticket)
        await asyncio.sleep(0)
    settle(actors)
    assert one.active == WINDOW


async def crowd_out(one: Actor, actors: list[Actor]) -> None:
    """Have somebody new wait for one of the idle places of which the window consists."""
    settle(actors)
    await fill(one, actors)
    one.arrive("new")
    settle(actors)


async def tell(*actors: Actor) -> None:
    await asyncio.sleep(0)
    for actor in actors:
        actor.courier.go()


def test_a_place_that_moves_while_it_is_given_to_somebody_else_is_used_once(
    client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        one, other, _ = actors = begin(client, monkeypatch, 3)
        await crowd_out(one, actors)
        other.arrive("s0")
        other.courier.go()  # the place is here now, and ``one`` has yet to hear so
        assert len(other.door.leases) == 1
        PATIENCE.ends(one)
        for number in range(1, WINDOW):
            one.arrive(f"s{number}")
        assert running(actors) <= WINDOW
        await tell(*actors)
        settle(actors)
        assert running(actors) <= WINDOW

    asyncio.run(story())


def test_no_turn_runs_before_it_is_known_who_else_is_there(client: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        actors = begin(client, monkeypatch, 3)
        for actor in actors:
            actor.arrive(f"of {actor.name}")
            actor.courier.go("answer")  # says what is here, and hears nothing
        assert running(actors) == 0
        settle(actors)
        assert running(actors) == 3

    asyncio.run(story())


def test_a_place_that_nobody_has_taken_is_given_away_as_soon_as_redis_has_said_so(
    client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        one, *_ = actors = begin(client, monkeypatch, 3)
        await crowd_out(one, actors)
        PATIENCE.ends(one)
        assert not one.door.leases
        assert one.active == WINDOW - 1, "one place is enough"
        one.arrive("next")
        await tell(one)
        assert [lease.session.id for lease in one.door.leases.values()] == ["new"]

    asyncio.run(story())


def test_a_session_that_comes_back_where_it_has_lost_its_place_does_not_wait_for_itself(
    client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        one, *_ = actors = begin(client, monkeypatch, 3)
        await crowd_out(one, actors)
        PATIENCE.ends(one)
        one.arrive("s0")
        await tell(one)
        settle(actors)
        names = {lease.session.id for lease in one.door.leases.values()}
        assert names & {"new", "s0"}
        for _ in range(3):
            for ticket in list(one.door.leases):
                one.finish(ticket)
            await asyncio.sleep(0)
            settle(actors)
        assert not one.door.tickets

    asyncio.run(story())


def test_what_redis_does_not_answer_to_is_free_when_no_other_can_take_it_any_more(
    client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        one, *_ = actors = begin(client, monkeypatch, 3)
        await crowd_out(one, actors)
        PATIENCE.ends(one)
        await asyncio.sleep(0)
        one.courier.up = False
        one.courier.go("lost")
        one.replica.look()
        assert not one.door.leases
        before = one.door.clock
        one.door.clock = lambda: before() + replica.MEMBER_MS / 1000 + 2.0
        one.replica.look()
        assert one.door.leases

    asyncio.run(story())


ENGINE = {"kv_tokens": 400_000, "cost": {"a": 0.005, "b": 2e-5, "c": 1e-5, "d": 1e-8}}
AGENTS = {
    "sessions": 60,
    "arrivals": {"rate_per_s": 14},
    "turns": 5,
    "first_prompt": 200,
    "new_prompt": 20,
    "output": 8,
    "think_s": {"constant": 0.05},
}


class Line(Server):
    """One replica's way to Redis, slow for half a second now and then."""

    def __init__(self, world: Crowd, number: int) -> None:
        self._world = world
        self._random = Random(f"{world.seed}/line/{number}")
        self._slow = False
        self._until = 0.0
        self.evaluate = world.server.evaluate  # type: ignore[method-assign]
        self.delay_s = self._delay_s

    def _delay_s(self) -> float:
        now, random = self._world.events.now, self._random
        if now >= self._until:
            self._slow, self._until = random.random() < 0.25, now + random.expovariate(2.0)
        return 0.0005 + (random.expovariate(80.0) if self._slow else 0.0)


class Crowd(ReplicatedWorld):
    """Counts the turns that run at once over all replicas."""

    most = 0

    def look(self) -> None:
        books = [node.door.gate.snapshot(now=self.events.now) for node in self.nodes]
        self.most = max(self.most, sum(book.running for book in books))
        self.events.after(0.002, self.look)


def crowd(client: Redis, seed: int) -> Crowd:
    parts = {"backends": [{"engine": ENGINE}], "agents": [AGENTS], "give_up_after_s": 120.0}
    what, chosen = Scenario.model_validate({"about": "a test", **parts}), arm(f"fixed:{WINDOW}")
    world = Crowd(what, chosen, GatePolicy(**{**what.gate, **chosen.gate}), client=client, count=3, seed=seed)
    for number, node in enumerate(world.nodes):
        node.wire._server = Line(world, number)
    world.events.at(1.0, world.look)
    play(world)
    assert not world.unfinished
    return world


@example(7)
@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32 - 1))
def test_no_more_turns_run_at_once_than_may_however_late_words_of_moves_come(client: Redis, seed: int) -> None:
    assert crowd(client, seed).most <= WINDOW
