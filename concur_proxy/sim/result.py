"""What came of a run: figures for tables, rows and points for whoever wants to look closer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from concur_proxy.sim.agents import TurnDone
    from concur_proxy.sim.series import Series
    from concur_proxy.sim.world import World


@dataclass(frozen=True, slots=True)
class Job:
    """A session that has ended; sub-agents belong to their parent's."""

    session: str
    started_at: float
    ended_at: float
    complete: bool

    @property
    def seconds(self) -> float:
        return self.ended_at - self.started_at


@dataclass(frozen=True, slots=True)
class Figures:
    """The numbers of one run. Tokens, seconds of virtual time, shares 0..1; rates are over the whole run."""

    ended_s: float
    """Makespan: when the last session ended, or the time after which the scenario stops."""
    sessions: int
    """Ended with all their turns answered."""
    failed: int
    unfinished: int
    turns: int
    turns_per_s: float
    output_tokens_per_s: float
    useful_tokens_per_s: float
    """Prompt tokens that nobody had computed before, and output."""
    hit_rate: float
    """Cached over prompt tokens."""
    recomputed_tokens: int
    """Prompt tokens that this session's earlier turns had computed and that were computed again."""
    job_mean_s: float
    job_p95_s: float
    job_p99_s: float
    turn_mean_s: float
    """From the agent's question to the whole answer."""
    turn_p95_s: float
    first_token_mean_s: float
    first_token_p95_s: float
    wait_mean_s: float
    """In the gate, of a turn."""
    wait_max_s: float
    preemptions: int
    evictions: int
    steps: int
    busy: float
    """Share of the time that engines computed, mean of all."""
    errors: int
    """Refusals, failures and timeouts that clients saw."""


@dataclass(frozen=True, slots=True)
class Result:
    scenario: str
    arm: str
    seed: int
    window: float | None
    """Of an arm with a constant window."""
    open: bool
    """The scenario stops at a time: what counts is how much was done, not when all was done."""
    figures: Figures
    troubles: Mapping[str, int]
    """What clients saw, and how often."""
    gate: Mapping[str, int]
    jobs: Sequence[Job]
    turns: Sequence[TurnDone]
    series: Sequence[Series]

    @property
    def score(self) -> float:
        """Seconds for the whole, or seconds per output token where the scenario stops at a time: less is better."""
        rate = self.figures.output_tokens_per_s
        if not self.open:
            return self.figures.ended_s
        return 1.0 / rate if rate else math.inf

    @classmethod
    def of(cls, world: World) -> Result:
        """Take the account of a world that has been played."""
        snapshot = world.front.gate.snapshot(now=world.events.now)
        return cls(
            scenario=world.scenario.name,
            arm=world.arm.name,
            seed=world.seed,
            window=world.arm.window,
            open=world.scenario.stop_after_s is not None,
            figures=_figures(world),
            troubles=dict(sorted(world.troubles.items())),
            gate={
                "paused": snapshot.paused,
                "resumed": snapshot.resumed,
                "reclaimed": snapshot.reclaimed,
                "leases_expired": snapshot.leases_expired,
                **{f"admitted_{why.value}": number for why, number in snapshot.admitted_by.items()},
            },
            jobs=tuple(world.jobs),
            turns=tuple(world.turns),
            series=tuple(watch.series for watch in world.watches.values()),
        )

    def to_json(self) -> dict[str, Any]:
        """All figures, ready for JSON; the same seed gives the same."""
        figures = {name: _plain(getattr(self.figures, name)) for name in Figures.__slots__}
        return {
            "scenario": self.scenario,
            "arm": self.arm,
            "seed": self.seed,
            "window": self.window,
            "score": _plain(self.score),
            **figures,
            "troubles": dict(self.troubles),
            "gate": dict(self.gate),
        }


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _figures(world: World) -> Figures:
    turns = world.turns
    ended = world.scenario.stop_after_s if world.scenario.stop_after_s and world.unfinished else world.events.now
    span = ended or math.inf
    output = sum(turn.output_tokens for turn in turns)
    prompt = sum(turn.prompt_tokens for turn in turns)
    cached = sum(turn.cached_tokens for turn in turns)
    known = sum(turn.known_tokens for turn in turns)
    jobs = sorted(job.seconds for job in world.jobs if job.complete)
    seconds = sorted(turn.done_at - turn.asked_at for turn in turns)
    first = sorted(turn.first_token_at - turn.asked_at for turn in turns)
    waits = [turn.admitted_at - turn.asked_at for turn in turns]
    works = [runner.work for runner in world.runners.values()]
    return Figures(
        ended_s=ended,
        sessions=len(jobs),
        failed=len(world.jobs) - len(jobs),
        unfinished=world.unfinished,
        turns=len(turns),
        turns_per_s=len(turns) / span,
        output_tokens_per_s=output / span,
        useful_tokens_per_s=(prompt - known + output) / span,
        hit_rate=cached / prompt if prompt else 0.0,
        recomputed_tokens=sum(max(0, turn.known_tokens - turn.cached_tokens) for turn in turns),
        job_mean_s=_mean(jobs),
        job_p95_s=_quantile(jobs, 0.95),
        job_p99_s=_quantile(jobs, 0.99),
        turn_mean_s=_mean(seconds),
        turn_p95_s=_quantile(seconds, 0.95),
        first_token_mean_s=_mean(first),
        first_token_p95_s=_quantile(first, 0.95),
        wait_mean_s=_mean(waits),
        wait_max_s=max(waits, default=0.0),
        preemptions=sum(work.preemptions for work in works),
        evictions=sum(work.evictions for work in works),
        steps=sum(work.steps for work in works),
        busy=_mean([work.busy_s for work in works]) / span,
        errors=sum(world.troubles.values()),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest value that ``share`` of all do not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0
