"""One replica runs the law, by everybody's turns; the next leader goes on with what it has learned. Real processes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import httpx
import pytest

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


def test_the_leader_learns_from_turns_elsewhere_and_who_follows_it_knows_what_it_knew() -> None:
    with RedisServer() as redis, EngineServer(EngineOptions(port=0, model="alpha", speed=4.0)) as engine:
        flags = ["--state", redis.url]
        started = [ProxyProcess([engine.url], flags=flags) for _ in range(2)]
        try:
            one, other = started
            until(lambda: leads(one) != leads(other))
            leader, follower = (one, other) if leads(one) else (other, one)
            for number in range(12):
                ask(follower.url, f"s{number % 3}")
            until(lambda: law(leader)["turns"] >= 10)
            assert metric(leader.url, "concur_turns_finished_total") == 0
            window = metric(leader.url, "concur_window_whole")
            until(lambda: metric(follower.url, "concur_window_whole") == metric(leader.url, "concur_window_whole"))
            assert window > 0

            until(lambda: redis.command("EXISTS", "{concur}:learned") == ":1")
            learned = law(leader)["turns"]
            os.kill(leader.pid, signal.SIGKILL)
            until(lambda: leads(follower))
            assert law(follower)["turns"] >= 0.9 * learned - 1
            ask(follower.url, "s0")
        finally:
            for replica in started:
                replica.close()
