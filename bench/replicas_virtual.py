#!/usr/bin/env python3
"""Three replicas beside one in virtual time, seed by seed: a table of docs/replicas.md. No load of the machine matters.

python bench/replicas_virtual.py --seeds 1,2,3 --order fifo

Real gates, laws and replicas, the real script in a real Redis, simulated engines and agents (tests/state/world.py): the
workload of bench/replicas.py.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from redis import Redis

sys.path.append(str(Path(__file__).parents[1]))  # behind what is installed, which may be compiled

from concur_proxy.core.gate import GatePolicy
from concur_proxy.sim.arms import arm
from concur_proxy.sim.profiles import PROFILES
from concur_proxy.sim.scenario import Scenario
from tests.state.redis import RedisServer
from tests.state.world import DELAY_S, ReplicatedWorld, figures

SPEED = 4.0
"""Of the engine, beside the ``laptop`` that it stands for."""


@dataclass(frozen=True, slots=True)
class Run:
    useful_tokens_per_s: float
    hit_rate: float
    paused: float
    reclaimed: float


def scenario(scale: int) -> Scenario:
    cost = {name: getattr(PROFILES["laptop"].cost, name) / SPEED for name in "abcd"}
    agents = {
        "sessions": 72 * scale,
        "turns": 8,
        "prefix": 100,
        "first_prompt": 800,
        "new_prompt": 800,
        "output": 50,
        "think_s": {"mean": 1, "sigma": 0.8},
    }
    engine = {"kv_tokens": 110_000 * scale, "cost": cost, "token_budget": 2048}
    parts = {"backends": [{"engine": engine}], "agents": [agents], "give_up_after_s": 4000}
    return Scenario.model_validate({"about": "three replicas beside one", **parts})


def run(client: Redis, replicas: int, seed: int, options: argparse.Namespace) -> Run:
    what, law = scenario(options.scale), arm(options.law)
    policy = GatePolicy(**{**what.gate, **law.gate, "order": options.order})
    delay_s = options.delay_ms / 1000
    world = ReplicatedWorld(what, law, policy, client=client, count=replicas, seed=seed, delay_s=lambda: delay_s)
    found = figures(world)
    counts = world.counts()
    return Run(found.useful_tokens_per_s, found.hit_rate, counts["paused"], counts["reclaimed"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--scale", type=int, default=1, help="so many times the agents and the cache")
    parser.add_argument("--delay-ms", type=float, default=1000 * DELAY_S, help="from a replica to Redis, and back")
    parser.add_argument("--law", default="meanfield")
    parser.add_argument("--order", default=GatePolicy().order)
    options = parser.parse_args()
    pairs: list[tuple[Run, Run]] = []
    with RedisServer() as server:
        client = Redis(port=server.port, decode_responses=True)
        for seed in map(int, options.seeds.split(",")):
            one, several = (run(client, count, seed, options) for count in (1, options.replicas))
            pairs.append((one, several))
            print(
                f"seed {seed}: hit rate {one.hit_rate:.3f} and {several.hit_rate:.3f}, "
                f"useful tokens {several.useful_tokens_per_s / one.useful_tokens_per_s:.3f}, "
                f"idle places taken {one.reclaimed:.0f} and {several.reclaimed:.0f}",
                flush=True,
            )
    count = len(pairs)
    ratio = sum(several.useful_tokens_per_s / one.useful_tokens_per_s for one, several in pairs) / count
    hits = [sum(pair[which].hit_rate for pair in pairs) / count for which in (0, 1)]
    print(f"mean of {count}: hit rate {hits[0]:.3f} and {hits[1]:.3f}, useful tokens {ratio:.3f}")


if __name__ == "__main__":
    main()
