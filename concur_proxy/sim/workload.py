"""Workloads as counts: what a session sends and how long it thinks, whoever plays it and against whatever engine."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

import orjson


@dataclass(frozen=True, slots=True)
class TurnScript:
    new_prompt_tokens: int
    """Tokens of this turn's prompt after the part that it repeats: the whole conversation with all answers so far, or
    only the shared prefix where it ``rewrites``."""
    output_tokens: int
    think_s: float
    """Seconds between the previous answer and this turn; a first turn's is a delay of the session's start."""
    rewrites: bool = False
    """The agent replaced its context, by a summary for example."""


@dataclass(frozen=True, slots=True)
class SessionScript:
    id: str
    prefix_tokens: int
    """System prompt and tools: the beginning that sessions share. A longer one begins with the shorter ones."""
    turns: tuple[TurnScript, ...]

    def prompts(self) -> Iterator[int]:
        """Prompt tokens of each turn."""
        context = self.prefix_tokens
        for turn in self.turns:
            prompt = (self.prefix_tokens if turn.rewrites else context) + turn.new_prompt_tokens
            yield prompt
            context = prompt + turn.output_tokens


class Drawn(Protocol):
    """A random quantity."""

    def draw(self, random: Random) -> float: ...

    def tokens(self, random: Random) -> int:
        """Return a whole number, at least 1."""
        ...


@dataclass(frozen=True, slots=True)
class Spread:
    """A log-normal quantity: half of the draws are below ``median``, ``sigma`` 0 makes all of them equal to it."""

    median: float
    sigma: float = 0.0

    def draw(self, random: Random) -> float:
        return self.median * random.lognormvariate(0, self.sigma)

    def tokens(self, random: Random) -> int:
        return max(1, round(self.draw(random)))


@dataclass(frozen=True, slots=True)
class Shape:
    """What sessions are like. The defaults are medians and widths of recorded coding agents (``sim.data``)."""

    prefix_tokens: int = 15_000
    turns: Drawn = Spread(40, 1.1)
    first_prompt: Drawn = Spread(9_000, 1.0)
    """New tokens of the first turn, after the prefix."""
    new_prompt: Drawn = Spread(500, 1.5)
    output: Drawn = Spread(217, 0.85)
    think_s: Drawn = Spread(10, 1.3)
    rewrite_share: float = 0.02
    """Share of the turns, the first apart, that start again from the prefix."""


def synthetic(sessions: int, shape: Shape, *, seed: int) -> tuple[SessionScript, ...]:
    """Sessions drawn from ``shape``; the same seed draws the same ones."""
    random = Random(seed)
    return tuple(_draw(f"session-{index:05}", shape, random) for index in range(sessions))


def recorded(lines: Iterable[bytes | str]) -> tuple[SessionScript, ...]:
    """Recorded sessions, a JSON object a line: ``{"id", "system_tokens", "tool_tokens", "turns": [...], "subagents"}``.

    A turn is ``{"in", "prefix", "out", "think_s"}``: prompt tokens, how many of them equal the start of the previous
    prompt, generated tokens, seconds since the previous answer. Sub-agents become sessions of their own.
    """
    scripts: list[SessionScript] = []
    for line in lines:
        if line.strip():
            scripts.extend(_sessions(orjson.loads(line)))
    return tuple(scripts)


def recorded_gzip(raw: bytes) -> tuple[SessionScript, ...]:
    """``recorded`` from the bytes of a gzip file."""
    return recorded(gzip.decompress(raw).splitlines())


def scaled(scripts: Iterable[SessionScript], *, tokens: float = 1.0, time: float = 1.0) -> tuple[SessionScript, ...]:
    """The same sessions with all token counts and all times multiplied: a large workload's shape for a small engine."""
    return tuple(
        SessionScript(
            script.id,
            round(script.prefix_tokens * tokens),
            tuple(_scaled_turn(turn, tokens, time) for turn in script.turns),
        )
        for script in scripts
    )


def _scaled_turn(turn: TurnScript, tokens: float, time: float) -> TurnScript:
    return TurnScript(
        max(1, round(turn.new_prompt_tokens * tokens)),
        max(1, round(turn.output_tokens * tokens)),
        turn.think_s * time,
        turn.rewrites,
    )


def _draw(name: str, shape: Shape, random: Random) -> SessionScript:
    turns = [TurnScript(shape.first_prompt.tokens(random), shape.output.tokens(random), 0.0)]
    for _ in range(shape.turns.tokens(random) - 1):
        rewrites = random.random() < shape.rewrite_share
        new = (shape.first_prompt if rewrites else shape.new_prompt).tokens(random)
        turns.append(TurnScript(new, shape.output.tokens(random), shape.think_s.draw(random), rewrites))
    return SessionScript(name, shape.prefix_tokens, tuple(turns))


def _sessions(record: dict[str, Any], name: str | None = None) -> Iterator[SessionScript]:
    name = name or record["id"]
    yield _session(record, name)
    for index, child in enumerate(record.get("subagents", ()), 1):
        yield from _sessions(child, f"{name}/{index}")


def _session(record: dict[str, Any], name: str) -> SessionScript:
    """Read one session so that its prompts stay as long as they were recorded.

    Appended tokens are what a prompt has beyond the conversation as it is played here: recorded answers count reasoning
    that the next prompt leaves out.
    """
    recorded_turns = record["turns"]
    prefix = min(record["system_tokens"] + record["tool_tokens"], recorded_turns[0]["in"] - 1)
    turns: list[TurnScript] = []
    context = prefix
    before = 0
    for turn in recorded_turns:
        rewrites = turn["prefix"] < before / 2
        base = prefix if rewrites else context
        new = max(1, turn["in"] - base)
        output = max(1, turn["out"])
        turns.append(TurnScript(new, output, float(turn["think_s"]), rewrites))
        context = base + new + output
        before = turn["in"]
    return SessionScript(name, prefix, tuple(turns))
