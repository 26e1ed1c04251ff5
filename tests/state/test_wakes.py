"""What is told while nobody listens yet is heard all the same. A real Redis; replicas without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

import pytest
from redis import Redis

from concur_proxy.state import leader
from concur_proxy.state.connect import close, connect
from concur_proxy.state.wakes import Wakes
from tests.state.cast import Actor, settle
from tests.state.redis import PATIENCE_S, RedisServer, needs_redis

pytestmark = needs_redis
PREFIX = "{test}:"


@pytest.fixture(autouse=True)
def sure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who leads goes on to lead, however long the machine takes for the rest."""
    monkeypatch.setattr(leader, "SURE_S", 3600.0)


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


def tell_turns(client: Redis, name: str) -> None:
    client.xadd(f"{PREFIX}turns", {"from": name, "turns": "{}"})


def heard_after(server: RedisServer, actor: Actor, count: int) -> list[str]:
    """Listen as ``actor`` would, from now on, until it has heard of so many."""

    async def play() -> list[str]:
        heard: list[str] = []
        enough = asyncio.Event()

        def hear(said: Mapping[str, str]) -> None:
            heard.append(said["from"])
            if len(heard) >= count:
                enough.set()

        client = connect(server.url)
        turns_from = lambda: actor.replica.leader.turns_from  # noqa: E731
        wakes = Wakes(client, PREFIX, woken=lambda *_: None, heard=hear, turns_from=turns_from)
        wakes.start()
        async with asyncio.timeout(PATIENCE_S):
            await enough.wait()
        await wakes.aclose()
        await close(client)
        return heard

    return asyncio.run(play())


def test_a_leader_hears_of_turns_from_the_moment_that_it_leads(server: RedisServer) -> None:
    with Redis(port=server.port, decode_responses=True) as client:
        tell_turns(client, "before anybody led")
        one, other = actors = [Actor(client, PREFIX, name, 6.0) for name in ("one", "other")]
        settle(actors)
        assert one.replica.leads
        assert other.replica.leader.turns_from is None
        for name in ("first", "second"):
            tell_turns(client, name)
        assert heard_after(server, one, 2) == ["first", "second"]


def test_one_that_leads_again_after_redis_has_forgotten_hears_again(server: RedisServer) -> None:
    with Redis(port=server.port, decode_responses=True) as client:
        actor = Actor(client, PREFIX, "one", 6.0)
        settle([actor])
        before = actor.replica.leader.turns_from
        client.flushall()
        settle([actor])
        after = actor.replica.leader.turns_from
        assert before is not None
        assert after is not None
        assert after[0] > before[0], "it would go on from a place that Redis does not know"
