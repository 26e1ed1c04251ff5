"""One replica runs the law, by everybody's turns; the next leader goes on with what it has learned. Real processes."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable

import httpx
import pytest
from redis import Redis

from concur_proxy.sim.server import EngineOptions, EngineServer
from tests.clients.stack import ProxyProcess, metric
from tests.state.redis import PATIENCE_S, RedisServer, needs_redis

pytestmark = [needs_redis, pytest.mark.service, pytest.mark.slow]


def ask(url: str, session: str) -> None:
    body = {
        "model": "alpha",
        "max_tokens": 4,
        "ignore_eos": True,
        "messages": [{"role": "user", "content": "hi " * 50}],
    }
    answer = httpx.post(f"{url}/v1/chat/completions", json=body, headers={"x-session-id": session}, timeout=60)
    assert answer.status_code == 200


def law(replica: ProxyProcess) -> dict[str, float]:
    (backend,) = httpx.get(f"{replica.url}/concur/status").json()["backends"]
    found: dict[str, float] = backend["law"]
    return found


def leads(replica: ProxyProcess) -> bool:
    return metric(replica.url, "concur_state_leader") == 1


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.05)


def roles(replicas: list[ProxyProcess]) -> tuple[ProxyProcess, ProxyProcess]:
    """Return who leads and who follows."""
    one, other = replicas
    until(lambda: leads(one) != leads(other))
    return (one, other) if leads(one) else (other, one)


def knows_of_turns_elsewhere(leader: ProxyProcess) -> bool:
    return law(leader)["turns"] >= metric(leader.url, "concur_turns_finished_total") + 10


def teach(replicas: list[ProxyProcess]) -> tuple[ProxyProcess, ProxyProcess] | None:
    """Ask one until the other, which leads, knows; None where that has changed: who gets no time is taken for dead."""
    leader, follower = roles(replicas)
    for number in range(12):
        ask(follower.url, f"s{number % 3}")
    until(lambda: knows_of_turns_elsewhere(leader) or not leads(leader))
    return (leader, follower) if leads(leader) else None


def kept(redis: RedisServer) -> float:
    """Return how many turns whoever leads next will know of."""
    with Redis(port=redis.port) as client:
        said = client.get("{concur}:learned")
    learned = json.loads(said) if said else {}
    return sum(each["learned"]["turns"]["turns"] for each in learned.values())


def test_the_leader_learns_from_turns_elsewhere_and_who_follows_it_knows_what_it_knew() -> None:
    with RedisServer() as redis, EngineServer(EngineOptions(port=0, model="alpha", speed=4.0)) as engine:
        flags = ["--state", redis.url]
        started = [ProxyProcess([engine.url], flags=flags) for _ in range(2)]
        try:
            while (cast := teach(started)) is None:
                pass
            leader, follower = cast
            until(lambda: metric(follower.url, "concur_window_whole") == metric(leader.url, "concur_window_whole") > 0)

            learned = law(leader)["turns"]
            until(lambda: kept(redis) >= learned - 1)
            os.kill(leader.pid, signal.SIGKILL)
            until(lambda: leads(follower))
            assert law(follower)["turns"] >= learned - 2
            ask(follower.url, "s0")
        finally:
            for replica in started:
                replica.close()
