"""The fixed windows that a sweep tries."""

from __future__ import annotations

import math
from collections import Counter

from concur_proxy.sim.plans import make_plans
from concur_proxy.sim.scenario import Scenario
from concur_proxy.sim.workload import SessionScript

STEP = 1.2
"""Each window is at most this many times the one before, as far as whole numbers allow."""


def windows(scenario: Scenario, recorded: tuple[SessionScript, ...]) -> list[int]:
    """Return windows from what certainly fits to what holds nobody, or between the scenario's own bounds."""
    low, high = scenario.sweep_from, scenario.sweep_to
    if low is None or high is None:
        few, many = _range(scenario, recorded)
        low, high = low or few, high or many
    found = [low]
    while found[-1] < high:
        found.append(min(high, max(found[-1] + 1, int(found[-1] * STEP))))
    return found


def _range(scenario: Scenario, recorded: tuple[SessionScript, ...]) -> tuple[int, int]:
    """Half of what fits when every context is as long as it ever gets, and all sessions of a pool over its engines."""
    plans = [plan for plan in make_plans(scenario, recorded, 0) if not plan.part.unseen]
    longest = [max(plan.script.prompts(), default=1) for plan in plans]
    mean = sum(longest) / len(longest)
    capacity = min(part.engine.config().max_request_tokens for part in scenario.backends)
    engines = Counter(part.model for part in scenario.engines.values())
    sessions = Counter(plan.pool for plan in plans)
    many = max(math.ceil(count / engines[pool]) for pool, count in sessions.items())
    return max(1, min(many, int(capacity / mean / 2))), many
