"""Which agents play: synthetic ones of a given size, or recorded ones made small enough for the engine at hand."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from concur_proxy.bench.families import Family, family
from concur_proxy.sim.data import coding_agents
from concur_proxy.sim.workload import SessionScript, Shape, Spread, TurnScript, synthetic

LONGEST_PAUSE_S = 5.0
"""Of recorded agents in haste: what was longer was a person, not a tool."""
SUB_AGENT_TURNS = 1 / 3
"""Of its parent's: what a synthetic sub-agent plays."""


@dataclass(frozen=True, slots=True)
class SyntheticAgents:
    """Agents that are alike but for their think times."""

    sessions: int = 48
    turns: int = 12
    prefix_tokens: int = 100
    """System prompt, the same for all."""
    first_tokens: int = 800
    new_tokens: int = 800
    """What each further turn adds, besides the previous answer."""
    output_tokens: int = 50
    think_s: float = 0.5
    think_sigma: float = 0.8
    """Width of the log-normal think times; 0: all alike."""
    seed: int = 0
    sub_agents: int = 0
    """How many begin at a time; their parent waits for them."""
    sub_agents_after: float = 0.2
    """Share of the turns, the last apart, behind which they begin."""

    def families(self) -> tuple[Family, ...]:
        """The agents with their sub-agents."""
        random = Random(f"{self.seed}/sub-agents")
        return tuple(self._family(script, random) for script in self.scripts())

    def _family(self, script: SessionScript, random: Random) -> Family:
        if not self.sub_agents:
            return Family(script)
        born = [index for index in range(len(script.turns) - 1) if random.random() < self.sub_agents_after]
        return Family(script, {index: self._born(script, index, random) for index in born})

    def _born(self, parent: SessionScript, index: int, random: Random) -> tuple[Family, ...]:
        scripts = synthetic(self.sub_agents, self._shape(self.turns * SUB_AGENT_TURNS), seed=random.getrandbits(64))
        return tuple(
            Family(SessionScript(f"{parent.id}/{index}.{number}", one.prefix_tokens, one.turns))
            for number, one in enumerate(scripts, 1)
        )

    def scripts(self) -> tuple[SessionScript, ...]:
        return synthetic(self.sessions, self._shape(self.turns), seed=self.seed)

    def _shape(self, turns: float) -> Shape:
        return Shape(
            prefix_tokens=self.prefix_tokens,
            turns=Spread(turns),
            first_prompt=Spread(self.first_tokens),
            new_prompt=Spread(self.new_tokens),
            output=Spread(self.output_tokens),
            think_s=Spread(self.think_s, self.think_sigma),
            rewrite_share=0.0,
        )


@dataclass(frozen=True, slots=True)
class RecordedAgents:
    """Recorded coding agents (``sim.data``), made small enough for the engine at hand.

    Prompts and outputs have factors of their own: a small card prefills slower, compared with how it decodes, than the
    ones that such agents run on.
    """

    sessions: int = 48
    turns: int = 12
    """At most so many of each, from the first on."""
    prompts: float = 0.03
    outputs: float = 0.25
    time: float = 0.05
    longest_think_s: float = LONGEST_PAUSE_S
    """Longer pauses, after ``time``, are cut to this."""

    def scripts(self) -> tuple[SessionScript, ...]:
        return tuple(self._reduced(script) for script in itertools.islice(coding_agents(), self.sessions))

    def families(self, recordings: Sequence[Family] | None = None) -> tuple[Family, ...]:
        """The agents with their sub-agents; ``recordings``: others than the package's own, which have none."""
        given = map(family, coding_agents()) if recordings is None else recordings
        return tuple(self._smaller(one.cut(self.turns)) for one in itertools.islice(given, self.sessions))

    def _smaller(self, whole: Family) -> Family:
        return whole.of({script.id: self._reduced(script) for script in whole.members()})

    def _reduced(self, script: SessionScript) -> SessionScript:
        prefix = round(script.prefix_tokens * self.prompts)
        return SessionScript(script.id, prefix, tuple(map(self._turn, script.turns[: self.turns])))

    def _turn(self, turn: TurnScript) -> TurnScript:
        return TurnScript(
            max(1, round(turn.new_prompt_tokens * self.prompts)),
            max(1, round(turn.output_tokens * self.outputs)),
            min(turn.think_s * self.time, self.longest_think_s),
            turn.rewrites,
        )


def longest_contexts(scripts: tuple[SessionScript, ...]) -> int:
    """Return the tokens of all sessions' longest contexts together: what a cache would hold that never evicts."""
    return sum(
        max(prompt + turn.output_tokens for prompt, turn in zip(script.prompts(), script.turns, strict=True))
        for script in scripts
    )
