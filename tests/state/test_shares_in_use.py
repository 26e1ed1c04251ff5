"""The sum of what replicas have in use never exceeds the window, whatever is lost, late or dead; and nobody starves.

The real script in a real Redis, real gates and replicas; only the messages between them are the test's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from concur_proxy.state import leader, owners, replica
from concur_proxy.windows.base import Unit
from tests.state.cast import A, Actor, settle
from tests.state.redis import RedisServer, needs_redis

pytestmark = needs_redis

WINDOW = 6.0
STEPS = 250
PREFIX = "{test}:"
FATES = ["arrives", "arrives", "arrives", "answer", "lost", "late"]
RARE = ["die", "join", "forget"]
ACTIONS = ["arrive"] * 4 + ["finish"] * 2 + ["round"] * 4 + ["calm"] + ["sync"] * 2 + ["go", "stray"] * 2 + RARE
"""In a round everybody says and hears, and one of them meets a fate."""


@pytest.fixture(scope="module")
def client() -> Iterator[Redis]:
    with RedisServer() as server:
        yield Redis(port=server.port, decode_responses=True)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns wait for their courier, so that the same steps make the same story."""
    monkeypatch.setattr(owners, "PATIENCE_S", 3600.0)
    monkeypatch.setattr(replica, "GRACE_MS", 3_600_000)  # until ``no_grace``
    monkeypatch.setattr(replica, "MEMBER_MS", 3_600_000)


def begin(client: Redis, count: int, window: float = WINDOW, unit: Unit = Unit.SESSIONS) -> list[Actor]:
    client.flushall()
    no_grace(client)
    return [Actor(client, PREFIX, f"r{number}", window, unit=unit) for number in range(count)]


def no_grace(client: Redis) -> None:
    """As if everybody had had the time to say what they use."""
    client.set(f"{PREFIX}heard", client.time()[0] * 1000)
    client.set(f"{PREFIX}since", 1)


def total(actors: list[Actor], client: Redis | None = None) -> float:
    """What all have in use; with ``client``, less the places that have moved to others, of which one has yet to hear.

    Such a place is idle where it was, and can serve nobody there but its session.
    """
    return sum(actor.share - (unheard(client, actor) if client is not None else 0.0) for actor in actors)


def unheard(client: Redis, actor: Actor) -> float:
    born = int(client.hget(f"{PREFIX}r:{actor.name}", "born") or 0)
    seen = actor.replica.moves_seen if born == actor.replica.born else 0
    moves = (entry.split("|") for entry in client.lrange(f"{PREFIX}moved:{actor.name}", 0, -1))
    return sum(float(charge) for count, _, charge, *_ in moves if int(count) > seen)


@pytest.mark.parametrize(("unit", "window"), [(Unit.SESSIONS, WINDOW), (Unit.TOKENS, 110 * WINDOW)])
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32 - 1))
def test_the_sum_in_use_never_exceeds_the_window(client: Redis, unit: Unit, window: float, seed: int) -> None:
    chance = Random(seed)

    async def play() -> None:
        actors = begin(client, 3, window, unit)
        settle(actors)
        born = len(actors)
        for _ in range(STEPS):
            what, actor, number = chance.choice(ACTIONS), chance.choice(actors), chance.randrange(12)
            fate = chance.choice(FATES)
            what = "round" if what in RARE and chance.random() < 0.8 else what
            if what == "arrive":
                actor.arrive(f"s{number}")
            elif what == "finish" and actor.door.leases:
                actor.finish(sorted(actor.door.leases)[number % len(actor.door.leases)])
            elif what == "round":
                for each in actors:
                    each.sync(fate if each is actor else "arrives")
                    each.courier.go()
            elif what == "calm":
                for each in actors:
                    each.sync()
                no_grace(client)
            elif what == "sync":
                actor.sync(fate)
            elif what == "go":
                actor.courier.go(fate)
            elif what == "stray":
                actor.courier.arrive_late()
            elif what == "die" and len(actors) > 1:
                actors.remove(actor)
                client.delete(f"{PREFIX}r:{actor.name}")  # it has not been heard of for its time to live
                if client.hget(f"{PREFIX}leader", "id") == actor.name:
                    client.delete(f"{PREFIX}leader")
            elif what == "join" and len(actors) < 5:
                actors.append(Actor(client, PREFIX, f"r{born}", window, unit=unit))
                born += 1
            elif what == "forget":
                for each in actors * 2:
                    each.sync()  # a move that nobody will ever hear of counts twice until all have said what they use
                client.flushall()  # killed, and back with nothing: everybody has time for that
            await asyncio.sleep(0)
            assert total(actors, client) <= window * (1 + 1e-9)
        no_grace_when_all_have_spoken(client, actors)
        assert total(actors) <= window * (1 + 1e-9)
        for actor in actors:
            for ticket in list(actor.door.leases):
                actor.finish(ticket)
        await asyncio.sleep(0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(leader, "EVEN_OUT_S", 0.0)  # as if it were time for that
            for _ in range(40):  # one admits what another gives back, many times
                settle(actors, rounds=1)
                await asyncio.sleep(0)  # whoever has lost a place says so
        assert sum(max(actor.share, actor.load) for actor in actors) >= window * (1 - 1e-9), "a part of it is lost"

    asyncio.run(play())


def no_grace_when_all_have_spoken(client: Redis, actors: list[Actor]) -> None:
    for actor in actors:
        actor.sync()
    no_grace(client)
    settle(actors)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 11)), min_size=1, max_size=40))
def test_every_turn_gets_its_turn_and_no_more_are_active_than_the_window_holds(
    client: Redis, arrivals: list[tuple[int, int]]
) -> None:
    async def play() -> None:
        actors = begin(client, 3)
        settle(actors)
        for who, number in arrivals:
            actors[who].arrive(f"s{number}")
            settle(actors, rounds=1)
        await asyncio.sleep(0)
        for _ in range(200):
            settle(actors, rounds=2)
            assert sum(actor.active for actor in actors) <= WINDOW
            for actor in actors:
                for ticket in list(actor.door.leases):
                    actor.finish(ticket)
            await asyncio.sleep(0)
            if not any(actor.door.tickets or actor.door.leases for actor in actors):
                break
        assert not any(actor.door.tickets for actor in actors)

    asyncio.run(play())


def test_a_place_moves_with_its_session_and_its_share_of_the_window(client: Redis) -> None:
    async def play() -> None:
        one, other, third = actors = begin(client, 3)
        settle(actors)
        one.arrive("s")
        settle(actors)
        (ticket,) = one.door.leases
        one.finish(ticket)
        await asyncio.sleep(0)
        settle(actors)
        assert (one.active, other.active) == (1, 0)
        other.arrive("s")
        other.courier.go()
        assert other.door.leases
        assert other.replica.owners.moved == 1
        one.sync()
        assert (one.active, other.active, third.active) == (0, 1, 0)
        assert total(actors) <= WINDOW

    asyncio.run(play())


def cached(client: Redis, actors: list[Actor]) -> list[float]:
    return [float(client.hget(f"{PREFIX}r:{actor.name}", f"c:{A}") or 0) for actor in actors]


def test_a_context_that_moves_with_its_session_counts_once(client: Redis) -> None:
    async def play() -> None:
        one, other, _ = actors = begin(client, 3)
        settle(actors)
        for name in ("s", "t"):
            one.arrive(name)
            settle(actors)
            one.finish(next(iter(one.door.leases)))
            await asyncio.sleep(0)
        settle(actors)
        before = cached(client, actors)
        assert before[0] > 0
        assert before[1:] == [0, 0]
        other.arrive("s")
        other.courier.go()
        at_once = cached(client, actors)
        assert sum(at_once) == before[0]
        assert at_once[1] > 0
        one.sync("answer")  # it has yet to hear of the move
        assert sum(cached(client, actors)) == before[0]
        settle(actors)
        assert cached(client, actors)[0] == at_once[0]

    asyncio.run(play())


def test_idle_places_of_one_are_given_up_for_turns_of_another_when_the_engine_has_nothing_to_do(client: Redis) -> None:
    async def play() -> None:
        one, other, _ = actors = begin(client, 3)
        settle(actors)
        for number in range(6):
            one.arrive(f"s{number}")
            settle(actors)
        tickets = sorted(one.door.leases)
        assert len(tickets) == WINDOW
        other.arrive("new")
        for ticket in tickets[:-1]:
            one.finish(ticket)
            await asyncio.sleep(0)
            settle(actors, rounds=2)
        assert other.door.tickets or one.active < WINDOW
        one.finish(tickets[-1])
        await asyncio.sleep(0)
        settle(actors)
        assert other.door.leases
        assert one.active + other.active <= WINDOW

    asyncio.run(play())


def test_a_session_that_runs_elsewhere_stays_there_and_its_second_turn_is_a_guest(client: Redis) -> None:
    async def play() -> None:
        one, other, _ = actors = begin(client, 3)
        settle(actors)
        one.arrive("s")
        settle(actors)
        other.arrive("s")
        settle(actors)
        (lease,) = other.door.leases.values()
        assert lease.turn.final
        other.finish(next(iter(other.door.leases)))
        await asyncio.sleep(0)
        settle(actors)
        assert (one.active, other.active) == (1, 0)
        assert client.hget(f'{PREFIX}s:["pool", "tenant", "s"]', "owner") == one.name

    asyncio.run(play())


def test_what_a_dead_replica_had_is_divided_among_the_living_and_its_sessions_are_taken_over(client: Redis) -> None:
    async def play() -> None:
        one, other, third = actors = begin(client, 3)
        settle(actors)
        for number in range(3):
            one.arrive(f"s{number}")
            settle(actors)
        assert one.share >= 3
        client.delete(f"{PREFIX}r:{one.name}", f"{PREFIX}leader")
        settle([other, third])
        assert other.share + third.share == WINDOW
        other.arrive("s0")
        settle([other, third])
        (lease,) = other.door.leases.values()
        assert not lease.turn.final

    asyncio.run(play())


def test_the_one_that_was_replaced_as_leader_decides_nothing_any_more(client: Redis) -> None:
    one, other = actors = begin(client, 2)
    settle(actors)
    (leader,) = (actor for actor in actors if actor.replica.leads)
    successor = other if leader is one else one
    client.delete(f"{PREFIX}leader")
    successor.sync()
    successor.courier.go()
    assert successor.replica.leads
    leader.replica.decide(A, 100.0, hard=False)
    settle(actors)
    assert not leader.replica.leads
    assert total(actors) == WINDOW


def test_one_that_ends_keeps_what_is_active_there_and_no_more(client: Redis) -> None:
    async def play() -> None:
        one, other, third = actors = begin(client, 3)
        settle(actors)
        one.arrive("s")
        settle(actors)
        one.replica.is_leaving = lambda: True
        settle(actors)
        other.arrive("first of a crowd")  # whoever is short makes the leader look
        for number in range(4):
            other.arrive(f"c{number}")
        settle(actors)
        assert one.share == 1
        assert other.share + third.share == WINDOW - 1

    asyncio.run(play())


def test_what_the_leader_decides_holds_for_all(client: Redis) -> None:
    actors = begin(client, 3)
    settle(actors)
    (leader,) = (actor for actor in actors if actor.replica.leads)
    leader.replica.decide(A, 9.0, hard=True)
    settle(actors)
    assert [actor.share for actor in actors] == [3.0, 3.0, 3.0]
    assert all(actor.door.gate.snapshot(now=0.0).backends[A].hard for actor in actors)
    assert leader.replica.view(A).window == 9.0


def test_after_redis_has_forgotten_everything_nobody_gets_more_until_all_had_time_to_speak(
    client: Redis,
) -> None:
    one, other, third = actors = begin(client, 3)
    settle(actors)
    before = {actor.name: actor.share for actor in actors}
    client.flushall()
    settle([one])
    assert one.share == before[one.name]
    settle(actors)
    assert {actor.name: actor.share for actor in actors} == before
    assert total([one, other, third]) == WINDOW


def be_silent_for_long(client: Redis) -> None:
    client.set(f"{PREFIX}heard", 1)
    client.set(f"{PREFIX}since", 1)


def test_the_first_of_a_fleet_has_the_whole_window_at_once_where_all_before_it_have_left(client: Redis) -> None:
    (before,) = begin(client, 1)
    be_silent_for_long(client)
    before.sync()  # this server is noted
    before.courier.send(["leave"], lambda _: None)
    before.courier.go()
    be_silent_for_long(client)
    (after,) = actors = [Actor(client, PREFIX, "after", WINDOW)]
    settle(actors)
    assert after.replica.settled
    assert after.share == WINDOW


@pytest.mark.parametrize("what", ["another server", "somebody who has not left"])
def test_whoever_comes_after_silence_waits_for_those_who_may_be_at_work(client: Redis, what: str) -> None:
    (before,) = begin(client, 1)
    be_silent_for_long(client)
    before.sync()
    if what == "another server":
        client.set(f"{PREFIX}run", "of before")
        before.courier.send(["leave"], lambda _: None)
        before.courier.go()
    else:
        client.delete(f"{PREFIX}r:{before.name}")
    be_silent_for_long(client)
    (after,) = actors = [Actor(client, PREFIX, "after", WINDOW)]
    settle(actors)
    assert not after.replica.settled
    assert after.share == 0


def test_a_redis_whose_clock_is_put_back_is_not_waited_for_until_then(client: Redis) -> None:
    (one,) = actors = begin(client, 1)
    settle(actors)
    ahead = client.time()[0] * 1000 + 3_600_000
    for key in ("heard", "since"):
        client.set(f"{PREFIX}{key}", ahead)
    one.sync()
    assert int(float(client.get(f"{PREFIX}since") or 0)) < ahead - 3_000_000


def test_a_place_that_leaves_while_redis_has_forgotten_us_and_we_have_not_heard_so_is_given_up(client: Redis) -> None:
    async def play() -> None:
        one, other = actors = begin(client, 2)
        for number in range(2):
            settle(actors)
            one.arrive(f"s{number}")
            settle(actors)
            one.finish(next(iter(one.door.leases)))
            await asyncio.sleep(0)
        settle(actors)
        other.arrive("s0")
        settle(actors)
        client.delete(f"{PREFIX}r:{one.name}")
        one.sync("answer")  # Redis knows it again, and counts anew; it has not heard so
        other.arrive("s1")
        other.courier.go()
        settle(actors)
        assert (one.active, other.active) == (0, 2)
        assert total(actors) <= WINDOW

    asyncio.run(play())
