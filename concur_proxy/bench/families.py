"""Agents with the sub-agents that they start and wait for: from recordings, from scenarios, or drawn at random."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from concur_proxy.errors import ConfigError
from concur_proxy.sim.plans import Plan
from concur_proxy.sim.workload import SessionScript, TurnScript, recorded


@dataclass(frozen=True, slots=True)
class Family:
    """One agent and its sub-agents, which may have some of their own."""

    script: SessionScript
    children: Mapping[int, tuple[Family, ...]] = field(default_factory=dict)
    """Sub-agents that begin when a turn has been answered, by its index from 0."""
    waits: bool = True
    """The agent thinks about its next turn only when all of them are done; else they run beside it."""
    start_s: float = 0.0
    """Seconds from the beginning of the run to that of the agent, where agents do not come at a rate."""

    def members(self) -> Iterator[SessionScript]:
        """All sessions of the family, the agent's own first."""
        yield self.script
        for siblings in self.children.values():
            for child in siblings:
                yield from child.members()

    def cut(self, turns: int) -> Family:
        """Return the family with at most so many turns of each; who would begin later is not there."""
        script = SessionScript(self.script.id, self.script.prefix_tokens, self.script.turns[:turns])
        children = {
            index: tuple(child.cut(turns) for child in born) for index, born in self.children.items() if index < turns
        }
        return replace(self, script=script, children=children)

    def of(self, sessions: Mapping[str, SessionScript]) -> Family:
        """Return the same family with other sessions, by their ids."""
        children = {index: tuple(child.of(sessions) for child in born) for index, born in self.children.items()}
        return replace(self, script=sessions[self.script.id], children=children)


def family(one: SessionScript | Family) -> Family:
    return one if isinstance(one, Family) else Family(one)


def recorded_families(lines: Iterable[bytes | str]) -> tuple[Family, ...]:
    """Read recorded sessions as ``sim.workload.recorded`` does, and leave sub-agents with those who started them.

    ``after_turn`` of a sub-agent is the turn, from 0, whose answer started it. The pause behind that answer was
    recorded with the sub-agents in it: what the longest of them took (``think_s`` and ``api_s`` of its turns) is taken
    out.
    """
    return tuple(_recorded(record, record["id"]) for record in (orjson.loads(line) for line in lines if line.strip()))


def read_families(path: Path) -> tuple[Family, ...]:
    """Read a file of recorded sessions, one JSON object a line, gzipped or not. ConfigError where it holds none."""
    try:
        raw = path.read_bytes()
        found = recorded_families((gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).splitlines())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, LookupError, TypeError, EOFError) as error:
        problem = f"{type(error).__name__}: {error}"
        raise ConfigError(f"{path}: holds no recorded sessions (one JSON object a line): {problem}") from None
    if not found:
        raise ConfigError(f"{path}: holds no recorded sessions: it is empty")
    return found


def planned_families(plans: Sequence[Plan], *, speed: float = 1.0) -> tuple[Family, ...]:
    """Return the agents of a simulated scenario that the proxy sees; ``speed`` divides all their times.

    Agents that are unseen have no end, and nobody waits for them there: they are left out.
    """
    return tuple(_planned(plan, speed) for plan in plans if not plan.part.unseen)


def _recorded(record: dict[str, Any], name: str) -> Family:
    born: dict[int, list[tuple[Family, float]]] = {}
    for number, child in enumerate(record.get("subagents", ()), 1):
        took_s = sum(float(turn["think_s"]) + float(turn.get("api_s", 0.0)) for turn in child["turns"])
        found = _recorded(child, f"{name}/{number}")
        born.setdefault(min(int(child.get("after_turn", 0)), len(record["turns"]) - 1), []).append((found, took_s))
    (script,) = recorded([orjson.dumps({**record, "id": name, "subagents": []})])
    turns = list(script.turns)
    for index, children in born.items():
        if index + 1 < len(turns):
            turns[index + 1] = _sooner(turns[index + 1], max(took_s for _, took_s in children))
    return Family(
        SessionScript(name, script.prefix_tokens, tuple(turns)),
        {index: tuple(child for child, _ in children) for index, children in born.items()},
    )


def _sooner(turn: TurnScript, by_s: float) -> TurnScript:
    think_s = max(0.0, turn.think_s - by_s)
    return TurnScript(turn.new_prompt_tokens, turn.output_tokens, think_s, turn.rewrites)


def _planned(plan: Plan, speed: float) -> Family:
    turns = tuple(
        TurnScript(turn.new_prompt_tokens, turn.output_tokens, turn.think_s / speed, turn.rewrites)
        for turn in plan.script.turns
    )
    spec = plan.part.children
    return Family(
        SessionScript(plan.script.id, plan.script.prefix_tokens, turns),
        {index: tuple(_planned(child, speed) for child in born) for index, born in plan.children.items()},
        waits=spec is None or spec.waits,
        start_s=plan.start_s / speed,
    )
