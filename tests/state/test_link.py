"""Redis that has lost the script, that dies, that comes back; and turns that do not wait for it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import pytest
from redis import Redis

from concur_proxy.model import SessionKey, TurnFacts
from concur_proxy.state import owners
from concur_proxy.state.connect import close, connect
from concur_proxy.state.link import Link
from tests.state.cast import POOL, Actor, settle
from tests.state.redis import PATIENCE_S, RedisServer, needs_redis

pytestmark = needs_redis


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


async def until_up(link: Link, *, up: bool) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while link.up is not up:
            link.hurry()
            await link.ask(["secret", "key", "value"])


def test_a_redis_that_has_lost_the_script_is_given_it_again(server: RedisServer) -> None:
    async def play() -> None:
        client = connect(server.url)
        link = Link(client, "{test}:", "r")
        link.start()
        await until_up(link, up=True)
        server.command("SCRIPT", "FLUSH")
        assert await link.ask(["secret", "key", "another"]) == {"value": "value"}
        assert link.failures == 0
        await link.aclose()
        await close(client)

    asyncio.run(play())


def test_while_redis_is_gone_everybody_is_told_so_and_when_it_is_back_too(server: RedisServer) -> None:
    async def play() -> None:
        client = connect(server.url)
        link = Link(client, "{test}:", "r")
        told: list[bool] = []
        link.on_change = told.append
        link.start()
        await until_up(link, up=True)
        server.kill()
        assert await link.ask(["secret", "key", "value"]) is None
        assert not link.up
        assert link.problem
        server.start()
        await until_up(link, up=True)
        assert told == [True, False, True]
        await link.aclose()
        await close(client)

    asyncio.run(play())


def test_what_nobody_carries_is_answered_too(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("concur_proxy.state.link.MOST_WAITING", 2)
    answers: list[object] = []
    link = Link(connect(server.url), "{test}:", "r")
    for _ in range(3):
        link.send(["secret", "key", "value"], answers.append)
    assert answers == [None]


def two_replicas(server: RedisServer, window: float) -> tuple[Redis, list[Actor]]:
    """Two that know of each other, and may have shares at once."""
    client = Redis(port=server.port, decode_responses=True)
    client.set("{test}:heard", client.time()[0] * 1000)
    client.set("{test}:since", 1)
    actors = [Actor(client, "{test}:", name, window) for name in ("one", "other")]
    settle(actors)
    return client, actors


def test_a_turn_goes_on_before_redis_answers_and_the_answer_is_taken_in_then(server: RedisServer) -> None:
    async def play() -> None:
        client, actors = two_replicas(server, 6.0)
        one, other = actors
        one.arrive("s")
        settle(actors)
        one.finish(next(iter(one.door.leases)))
        await asyncio.sleep(0)
        settle(actors)

        went_on = asyncio.Event()
        turn = TurnFacts(POOL, SessionKey("tenant", "s"))
        other.replica.owners.claim(turn, lambda _: went_on.set())
        async with asyncio.timeout(PATIENCE_S):
            await went_on.wait()  # nothing has been carried
        assert (other.replica.owners.late, other.replica.owners.moved) == (1, 0)
        other.courier.go()
        assert other.replica.owners.moved == 1
        assert (one.load, other.load) == (1, 1)
        one.sync()
        assert (one.load, other.load) == (0, 1)
        client.close()

    asyncio.run(play())


def test_a_turn_that_would_be_held_waits_for_the_answer_and_rides_its_own_place(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owners, "PATIENCE_S", 0.0)
    monkeypatch.setattr(owners, "HELD_PATIENCE_S", 3600.0)

    async def play() -> None:
        client, actors = two_replicas(server, 2.0)
        one, other = actors
        for actor, session in ((one, "s"), (other, "t")):
            actor.arrive(session)
            settle(actors)
        one.finish(next(iter(one.door.leases)))
        await asyncio.sleep(0)
        settle(actors)

        other.arrive("s")
        for _ in range(8):
            await asyncio.sleep(0)
        assert (other.door.held, len(other.door.leases), other.replica.owners.late) == (0, 1, 0)  # it is in no line
        other.courier.go()
        assert (other.door.held, len(other.door.leases), other.replica.owners.moved) == (0, 2, 1)
        client.close()

    asyncio.run(play())


def test_where_redis_is_gone_no_turn_asks(server: RedisServer) -> None:
    client = Redis(port=server.port, decode_responses=True)
    actor = Actor(client, "{test}:", "one", 6.0)
    turn = TurnFacts(POOL, SessionKey("tenant", "s"))
    assert not actor.replica.owners.is_ours(turn)
    actor.courier.up = False
    assert actor.replica.owners.is_ours(turn)
    client.close()


class Failing:
    """A client with a bug; and one that is in the middle of a call when it is told to end."""

    def __init__(self, *, hangs: bool) -> None:
        self._hangs = hangs
        self.asked = asyncio.Event()

    async def script_load(self, _: str) -> str:
        self.asked.set()
        if self._hangs:
            with contextlib.suppress(asyncio.CancelledError):  # as ``asyncio.wait_for`` does now and then
                await asyncio.Event().wait()
        raise AttributeError("a bug")

    async def evalsha(self, *_: object) -> str:
        raise AssertionError


def test_a_bug_in_the_client_leaves_nobody_without_an_answer() -> None:
    async def play() -> None:
        link = Link(Failing(hangs=False), "{test}:", "r")
        link.first = lambda: 1 / 0  # type: ignore[assignment, return-value]
        link.start()
        async with asyncio.timeout(PATIENCE_S):
            assert await link.ask(["secret", "key", "value"]) is None
            assert await link.ask(["secret", "key", "value"]) is None
            await link.aclose()
        assert link.problem == "a bug"

    asyncio.run(play())


def test_it_ends_in_the_middle_of_a_call_whose_client_forgets_that_it_should(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("concur_proxy.tasks.AGAIN_S", 0.01)

    async def play() -> None:
        client = Failing(hangs=True)
        link = Link(client, "{test}:", "r")
        link.start()
        link.send(["secret", "key", "value"], lambda _: None)
        async with asyncio.timeout(PATIENCE_S):
            await client.asked.wait()
            await link.aclose()

    asyncio.run(play())
