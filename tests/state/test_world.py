"""Several replicas do to hit rates and throughput what one does: real gates, laws and script in virtual time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis import Redis

from concur_proxy.core.gate import GatePolicy
from concur_proxy.sim.arms import arm
from concur_proxy.sim.scenario import Scenario
from tests.state.redis import RedisServer, needs_redis
from tests.state.world import ReplicatedWorld, play

pytestmark = needs_redis

ENGINE = {"kv_tokens": 16_000, "cost": {"a": 0.02, "b": 5e-4, "c": 3e-5, "d": 1e-7}}


@pytest.fixture(scope="module")
def client() -> Iterator[Redis]:
    with RedisServer() as server:
        yield Redis(port=server.port, decode_responses=True)


def scenario(sessions: int = 6) -> Scenario:
    agents = {"sessions": sessions, "turns": 3, "first_prompt": 1500, "think_s": {"exponential": 1}}
    return Scenario.model_validate({"about": "a test", "backends": [{"engine": ENGINE}], "agents": [agents]})


def world(client: Redis, count: int) -> ReplicatedWorld:
    what, chosen = scenario(), arm("meanfield")
    policy = GatePolicy(**{**what.gate, **chosen.gate})
    return ReplicatedWorld(what, chosen, policy, client=client, count=count, seed=1)


def test_the_one_that_leads_hears_of_every_session_that_ends(client: Redis) -> None:
    three = world(client, 3)
    assert play(three).figures.sessions == 6
    (leader,) = (node for node in three.nodes if node.replica.leads)
    ended = sum(node.door.view(name).departed for node in three.nodes for name in three.runners)
    assert ended > 0
    assert max(leader.replica.view(name).departed for name in three.runners) >= ended - 1  # the last one ends the run
