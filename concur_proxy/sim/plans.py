"""From a scenario to the sessions that will be played: who begins when, says what, and has which sub-agents."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from concur_proxy.errors import ConfigError
from concur_proxy.model import PoolId
from concur_proxy.sim.scenario import AgentsPart, ArrivalsPart, ChildrenPart, Scenario
from concur_proxy.sim.workload import SessionScript, Shape, TurnScript, synthetic


@dataclass(frozen=True, slots=True)
class Plan:
    """One session to play."""

    script: SessionScript
    start_s: float
    pool: PoolId
    part: AgentsPart
    children: Mapping[int, Sequence[Plan]] = field(default_factory=dict)
    """Sub-agents that begin after a turn, by its index."""


def make_plans(scenario: Scenario, recorded: Sequence[SessionScript], seed: int) -> list[Plan]:
    """Return all sessions of a scenario; ``recorded`` are those that recorded agents are drawn from.

    A session ends with the last turn that its engines take: no agent gets beyond the model's longest context.
    ConfigError where they do not take a single turn of some agents.
    """
    plans: list[Plan] = []
    for index, part in enumerate(scenario.agents):
        random = Random(f"{seed}/{index}")
        pool = PoolId(part.model or scenario.backends[0].model)
        most = min(scenario.longest_context(pool), part.max_context or math.inf)
        scripts = _recorded(part, recorded, most, random) if part.recorded else _synthetic(part, index, most, random)
        starts = list(itertools.islice(arrivals(part.arrivals, random), part.sessions))
        some = [(script, start) for script, start in zip(scripts, starts, strict=False) if script.turns]
        if not some:
            raise ConfigError(f"agents[{index}]: not one first turn fits into {most:g} tokens, the longest context")
        for script, start in some:
            plans.append(Plan(script, start, pool, part, _children(script, part, pool, most, random)))
    return plans


def arrivals(part: ArrivalsPart, random: Random) -> Iterator[float]:
    """Yield the times at which sessions begin, for ever."""
    now = part.at_s
    if part.wave is not None and part.every_s is not None:
        while True:
            yield from itertools.repeat(now, part.wave)
            now += part.every_s
    if part.rate_per_s is None:
        yield from itertools.repeat(now)
        return
    while True:
        now = _next(part, part.rate_per_s, now, random.expovariate(1.0))
        yield now


def _next(part: ArrivalsPart, rate: float, now: float, load: float) -> float:
    """Return when a Poisson process whose rate has steps has gone on by ``load`` expected arrivals."""
    surge_end = part.surge_at_s + part.surge_s if part.surge_s is not None else float("inf")
    for end, current in ((part.surge_at_s, rate), (surge_end, rate * part.surge), (float("inf"), rate)):
        if now >= end:
            continue
        if load <= (end - now) * current:
            return now + load / current
        load -= (end - now) * current
        now = end
    return now


def _synthetic(part: AgentsPart, index: int, most: float, random: Random) -> list[SessionScript]:
    shape = Shape(
        prefix_tokens=part.prefix_tokens,
        turns=part.turns,
        first_prompt=part.first_prompt,
        new_prompt=part.new_prompt,
        output=part.output,
        think_s=part.think_s,
        rewrite_share=part.rewrite_share,
    )
    scripts = synthetic(part.sessions, shape, seed=random.getrandbits(64))
    return [_cut(SessionScript(f"{index}-{one.id}", one.prefix_tokens, one.turns), part, most) for one in scripts]


def _recorded(part: AgentsPart, recorded: Sequence[SessionScript], most: float, random: Random) -> list[SessionScript]:
    """Recorded sessions in an order of chance; where more are wanted than there are, some are played twice."""
    cut = [script for script in (_cut(one, part, most) for one in recorded) if script.turns]
    chosen: list[SessionScript] = []
    while cut and len(chosen) < part.sessions:
        round_ = cut[:]
        random.shuffle(round_)
        chosen += [
            SessionScript(f"{each.id}.{len(chosen) // len(cut)}", each.prefix_tokens, each.turns) for each in round_
        ]
    return chosen[: part.sessions]


def _cut(script: SessionScript, part: AgentsPart, most: float) -> SessionScript:
    """Leave out what is over the limits on turns, context and think time."""
    turns: list[TurnScript] = []
    for turn, prompt in zip(script.turns[: part.max_turns], script.prompts(), strict=False):
        if prompt + turn.output_tokens > most:
            break
        think = turn.think_s if part.longest_think_s is None else min(turn.think_s, part.longest_think_s)
        turns.append(TurnScript(turn.new_prompt_tokens, turn.output_tokens, think, turn.rewrites))
    return SessionScript(script.id, script.prefix_tokens, tuple(turns))


def _children(
    script: SessionScript, part: AgentsPart, pool: PoolId, most: float, random: Random
) -> dict[int, list[Plan]]:
    spec = part.children
    if spec is None:
        return {}
    born = [index for index in range(len(script.turns) - 1) if random.random() < spec.chance]
    families = {index: [_cut(one, part, most) for one in _family(script, spec, index, random)] for index in born}
    return {index: [Plan(one, 0.0, pool, part) for one in family if one.turns] for index, family in families.items()}


def _family(parent: SessionScript, spec: ChildrenPart, index: int, random: Random) -> Iterator[SessionScript]:
    shape = Shape(
        prefix_tokens=parent.prefix_tokens,
        turns=spec.turns,
        first_prompt=spec.first_prompt,
        new_prompt=spec.new_prompt,
        output=spec.output,
        think_s=spec.think_s,
        rewrite_share=0.0,
    )
    for number, one in enumerate(synthetic(spec.count, shape, seed=random.getrandbits(64)), 1):
        yield SessionScript(f"{parent.id}/{index}.{number}", one.prefix_tokens, one.turns)
