"""Each way in which a session ends gives its place to whoever waits; and limits in a crowd. Over real sockets."""

import asyncio
from collections import Counter

import orjson
import pytest

from concur_proxy.core.gate import GatePolicy
from concur_proxy.core.policy import TenantLimits
from concur_proxy.model import BackendEvent, BackendId, SessionKey
from tests.gateway.harness import CHAT, STREAMED, Engine, Proxy, ok, request, run, until

SHORT = GatePolicy(lease_min_s=0.05, lease_max_s=0.05)
LONG = GatePolicy(lease_min_s=3600.0, lease_max_s=3600.0, max_wait_s=3600.0)


def named(session, *, more=b""):
    return b"X-Session-ID: %b\r\n%b" % (session, more)


async def said_final(proxy, header):
    await proxy.ask(headers=named(b"first", more=header + b": true\r\n"))


async def goodbye(proxy):
    await proxy.ask(headers=named(b"first"))
    proxy.dispatcher.end_session(SessionKey(proxy.turns[-1].session.namespace, "first"))


async def goodbye_too_early(proxy):
    """While its turn runs: the place is free when that has ended."""
    asking = asyncio.create_task(proxy.ask(STREAMED, headers=named(b"first", more=b"X-Slow: 1\r\n")))
    await until(lambda: proxy.dispatcher.snapshot().running == 2)
    proxy.dispatcher.end_session(next(lease.session for lease in leases(proxy) if lease.session.id == "first"))
    proxy.go.set()
    await asking


def leases(proxy):
    return [turn.lease for turn in proxy.gate._admission.running.values()]


async def client_gone(proxy):
    client = await proxy.client()
    await client.send(request(CHAT, headers=named(b"first", more=b"X-Slow: 1\r\n")))
    await until(lambda: proxy.dispatcher.snapshot().running == 2)
    await client.close()
    await until(lambda: proxy.dispatcher.snapshot().running == 1)


async def lease_over(proxy):
    await proxy.ask(headers=named(b"first"))


async def engine_gone(proxy):
    await proxy.ask(headers=named(b"first"))
    place = BackendId("b0")
    proxy.dispatcher.backend_event(place, BackendEvent.LOST)
    proxy.dispatcher.backend_event(place, BackendEvent.UP)


ENDS = {
    "x-session-final": (LONG, lambda proxy: said_final(proxy, b"x-session-final")),
    "x-dynamo-session-final": (LONG, lambda proxy: said_final(proxy, b"x-dynamo-session-final")),
    "goodbye": (LONG, goodbye),
    "goodbye while it runs": (LONG, goodbye_too_early),
    "its client has gone": (SHORT, client_gone),
    "its lease is over": (SHORT, lease_over),
    "its engine has gone": (LONG, engine_gone),
    "it has no name": (LONG, lambda proxy: proxy.ask()),
}


@pytest.mark.parametrize("way", ENDS)
def test_whoever_waits_gets_the_place(way):
    """Beside another session that runs all the while, so that the engine is never without work."""
    policy, end = ENDS[way]

    async def main():
        stays = asyncio.Event()

        async def answer(seen, wire):
            if seen.values(b"x-stays"):
                await stays.wait()
            elif seen.values(b"x-slow"):
                await proxy.go.wait()
            await wire.send(ok())

        async with Engine(answer) as engine, Proxy((engine,), window=2.0, policy=policy) as proxy:
            proxy.go = asyncio.Event()
            runs = asyncio.create_task(proxy.ask(headers=named(b"runs", more=b"X-Stays: 1\r\n")))
            await until(lambda: proxy.dispatcher.snapshot().running == 1)
            await end(proxy)
            assert (await proxy.ask(headers=named(b"next"))).status == 200
            assert not runs.done()
            stays.set()
            assert (await runs).status == 200
            await until(proxy.idle)

    run(main())


def test_an_idle_session_keeps_its_place_until_it_ends():
    """What the others are measured by."""

    async def main():
        stays = asyncio.Event()

        async def answer(seen, wire):
            if seen.values(b"x-stays"):
                await stays.wait()
            await wire.send(ok())

        async with Engine(answer) as engine, Proxy((engine,), window=2.0, policy=LONG) as proxy:
            runs = asyncio.create_task(proxy.ask(headers=named(b"runs", more=b"X-Stays: 1\r\n")))
            await until(lambda: proxy.dispatcher.snapshot().running == 1)
            await proxy.ask(headers=named(b"first"))
            waits = asyncio.create_task(proxy.ask(headers=named(b"next")))
            await until(lambda: proxy.dispatcher.snapshot().held == 1)
            proxy.dispatcher.tick()
            assert proxy.dispatcher.snapshot().held == 1
            stays.set()
            await runs
            proxy.dispatcher.end_session(SessionKey(proxy.turns[0].session.namespace, "first"))
            assert (await waits).status == 200

    run(main())


def test_in_a_crowd_each_key_gets_what_it_may_have_and_no_more():
    async def main():
        go, running, most = asyncio.Event(), Counter(), Counter()

        async def answer(seen, wire):
            (key,) = seen.values(b"x-api-key")
            running[key] += 1
            most[key] = max(most[key], running[key])
            await go.wait()
            running[key] -= 1
            await wire.send(ok())

        limits = {"default": TenantLimits(active_sessions=7, held_turns=4)}
        async with Engine(answer) as engine, Proxy((engine,), window=4.0, policy=GatePolicy(limits=limits)) as proxy:
            keys = [b"key-%d" % number for number in range(5)]
            crowd = [
                asyncio.create_task(proxy.ask(headers=b"x-api-key: %b\r\nx-session-final: true\r\n" % key))
                for _ in range(20)
                for key in keys
            ]
            answered = lambda: sum(each.done() for each in crowd)  # noqa: E731
            await until(lambda: answered() + proxy.dispatcher.snapshot().held + running.total() == len(crowd))
            refused = [each.result() for each in crowd if each.done()]
            codes = {orjson.loads(each.body)["error"]["code"] for each in refused}
            assert codes <= {"too_many_held", "too_many_sessions"}
            assert proxy.dispatcher.snapshot().held == 4 * len(keys)
            assert running.total() == 4
            go.set()
            statuses = Counter(answer.status for answer in await asyncio.gather(*crowd))
            assert statuses == {200: 4 + 4 * len(keys), 429: len(crowd) - 4 - 4 * len(keys)}
            assert max(most.values()) <= 4
            await until(proxy.idle)
            again = await asyncio.gather(*[proxy.ask(headers=b"x-api-key: %b\r\n" % key) for key in keys])
            assert [answer.status for answer in again] == [200] * len(keys), "nothing counts that is over"

    run(main())
