"""Whichever replicas are cut off from Redis, and for however long: no share of a window is in use twice."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from redis import Redis

from concur_proxy.core.gate import GatePolicy
from concur_proxy.sim.arms import arm
from concur_proxy.sim.scenario import Scenario
from concur_proxy.state.replica import REFUSE_AFTER_S
from tests.state.redis import RedisServer, needs_redis
from tests.state.world import Node, ReplicatedWorld, play

pytestmark = needs_redis

WINDOW = 6
REPLICAS = 3
LOOK_S = 0.05
ENGINE = {"kv_tokens": 64_000, "cost": {"a": 0.02, "b": 5e-5, "c": 3e-5, "d": 1e-7}}
AGENTS = {
    "sessions": 9,
    "turns": 6,
    "first_prompt": 500,
    "new_prompt": 100,
    "output": 20,
    "think_s": {"exponential": 2},
}

Cut = tuple[int, float, float]
"""Which replica, from when on, for how long."""

cuts = st.tuples(st.integers(0, REPLICAS - 1), st.floats(0.5, 8.0), st.floats(0.1, 20.0))
skews = st.tuples(st.floats(-3600, 3600), st.floats(0.98, 1.02))


@pytest.fixture(scope="module")
def client() -> Iterator[Redis]:
    with RedisServer() as server:
        yield Redis(port=server.port, decode_responses=True)


class Watched(ReplicatedWorld):
    """Looks now and then at what all have in use."""

    most = 0.0
    cut_off = 0
    admitted_while_cut_off = 0

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.before: dict[Node, int] = {}

    def look(self) -> None:
        names = list(self.runners)
        shares = [
            sum(node.door.view(name).window for name in names)
            - self.unheard(node.replica.name, node.replica.moves_seen)
            for node in self.nodes
        ]
        self.most = max(self.most, sum(shares))
        for node in self.nodes:
            admitted = node.door.gate.snapshot(now=self.events.now).admitted
            if node.replica.is_cut_off:
                self.cut_off += 1
                self.admitted_while_cut_off += admitted - self.before.get(node, admitted)
                self.before[node] = admitted
            else:
                self.before.pop(node, None)
        self.events.after(LOOK_S, self.look)

    def unheard(self, name: str, seen: int) -> float:
        """Places that have moved to others, of which one has yet to hear: they can serve nobody there."""
        moves = (entry.split("|") for entry in self.server.moves_of(name))
        return sum(float(charge) for count, _, charge, *_ in moves if int(count) > seen)

    def cut(self, who: int, at_s: float, length_s: float) -> None:
        wire = self.nodes[who].wire
        self.events.at(at_s, partial(setattr, wire, "cut", True))
        self.events.at(at_s + length_s, partial(setattr, wire, "cut", False))


def played(client: Redis, story: list[Cut], clocks: list[tuple[float, float]] | None = None) -> Watched:
    what = Scenario.model_validate(
        {
            "about": "a test",
            "backends": [{"engine": ENGINE}],
            "agents": [AGENTS],
            "client": {"retries": 1000},
            "give_up_after_s": 120.0,
        }
    )
    chosen = arm(f"fixed:{WINDOW}")
    policy = GatePolicy(**{**what.gate, **chosen.gate, "retry_after_s": 1.0})
    world = Watched(what, chosen, policy, client=client, count=REPLICAS, seed=1)
    for node, skew in zip(world.nodes, clocks or [(0.0, 1.0)] * REPLICAS, strict=True):
        node.door.skew = skew
    for each in story:
        world.cut(*each)
    world.events.at(2.5, world.look)
    play(world)
    return world


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(cuts, min_size=1, max_size=3), st.lists(skews, min_size=REPLICAS, max_size=REPLICAS))
@example([(0, 3.0, 12.0)], [(0.0, 1.0)] * REPLICAS)
def test_no_share_is_in_use_twice(client: Redis, story: list[Cut], clocks: list[tuple[float, float]]) -> None:
    world = played(client, story, clocks)
    assert world.most <= WINDOW
    assert not world.unfinished


@pytest.mark.parametrize("length_s", [10.0, 40.0])
def test_turns_wait_for_one_that_is_cut_off_alone_and_are_refused_when_it_takes_long(
    client: Redis, length_s: float
) -> None:
    world = played(client, [(1, 3.0, length_s)])
    assert world.cut_off > 0
    assert world.admitted_while_cut_off == 0
    assert bool(world.troubles.get("replica_cut_off")) is (length_s > REFUSE_AFTER_S)
    assert not world.unfinished


def test_where_redis_is_gone_for_all_everybody_goes_on(client: Redis) -> None:
    world = played(client, [(each, 3.0, 20.0) for each in range(REPLICAS)])
    assert world.cut_off == 0
    assert "replica_cut_off" not in world.troubles
    assert not world.unfinished
