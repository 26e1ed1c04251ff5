"""Small scenarios, and worlds of them that a test may look into."""

from concur_proxy.core.gate import GatePolicy
from concur_proxy.sim.arms import arm
from concur_proxy.sim.scenario import Scenario
from concur_proxy.sim.world import World

ENGINE = {"kv_tokens": 16_000, "cost": {"a": 0.02, "b": 5e-4, "c": 3e-5, "d": 1e-7}}
AGENTS = {"sessions": 12, "turns": 5, "first_prompt": 1500, "think_s": {"exponential": 1}}


def scenario(*agents, backends=None, **fields):
    """Agents on one engine; each of ``agents`` says what differs from twelve plain ones."""
    return Scenario.model_validate(
        {
            "about": "a test",
            "name": "test",
            "backends": backends or [{"engine": ENGINE}],
            "agents": [AGENTS | one for one in agents or ({},)],
            **fields,
        }
    )


def world(what, law="unlimited", seed=1, **policy):
    chosen = arm(law)
    return World(what, chosen, GatePolicy(**{**what.gate, **policy, **chosen.gate}), recorded=(), seed=seed)


def play(what, law="unlimited", seed=1, **policy):
    return world(what, law, seed, **policy).run()
