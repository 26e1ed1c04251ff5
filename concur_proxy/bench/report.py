"""What a played workload amounts to: counts while it runs, and a report at its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from concur_proxy.bench.engine_stats import EngineDelta
from concur_proxy.bench.figures import Spread, jain, quantile, spread
from concur_proxy.model import Usage

ROUNDING_TOKENS = 32
"""Engines cache whole blocks only: so much of a context may be missing without any having been evicted."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A played workload as it stands. Tokens as the engine's answers tell them."""

    elapsed_s: float = 0.0
    sessions: int = 0
    sessions_done: int = 0
    turns: int = 0
    turns_done: int = 0
    active: int = 0
    """Requests under way."""
    thinking: int = 0
    """Agents between two turns."""
    errors: int = 0
    retries: int = 0
    prompt_tokens: int = 0
    new_tokens: int = 0
    """Prompt tokens that no earlier turn of their session had: nobody can have cached them for it."""
    cached_tokens: int | None = None
    """None where the answers do not tell."""
    recomputed_tokens: int | None = None
    """Context that was in the engine once and had to be processed again."""
    output_tokens: int = 0

    @property
    def hit_rate(self) -> float | None:
        return hit_rate(self.cached_tokens, self.prompt_tokens)

    @property
    def output_tokens_per_s(self) -> float:
        return self.output_tokens / self.elapsed_s if self.elapsed_s > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Report:
    """A workload that was played to its end. Times in seconds."""

    wall_s: float
    output_tokens_per_s: float
    turns: int
    """Turns that were answered."""
    errors: int
    """Turns that were not, after all retries; their sessions end there."""
    retries: int
    prompt_tokens: int
    new_tokens: int
    output_tokens: int
    cached_tokens: int | None
    hit_rate: float | None
    """Cached over all prompt tokens, 0 to 1."""
    recomputed_tokens: int | None
    preemptions: float | None
    """Requests that the engine threw out of a batch; None where it was not asked."""
    ttft_p50_s: float | None
    """Time to the first token, with all waiting before it; None without streaming."""
    ttft_p95_s: float | None
    turn_p50_s: float | None
    turn_p95_s: float | None
    longest_wait_s: float | None = None
    """The longest time to a first token, or to an answer where none is streamed."""
    useful_tokens_per_s: float = 0.0
    """New prompt tokens and generated ones: what an engine that never evicts would have had to compute."""
    turns_per_s: float = 0.0
    goodput_per_s: float | None = None
    """Turns per second within the objective; None without one."""
    jobs: Spread | None = None
    """How long sessions took, those that ended in an error apart."""
    failed_sessions: int = 0
    fairness: float | None = None
    """Jain's index of the turns that sessions got per second of waiting for answers, 0 to 1."""
    session_s: Mapping[str, float] = field(default_factory=dict)
    """How long each session took from its first turn on, those that ended in an error apart."""
    problems: Mapping[str, int] = field(default_factory=dict)
    """What went wrong, in words, and how often."""
    ended_early: str | None = None
    """Why it was not played to its end; None where it was, or where its time was up as planned."""

    def as_json(self) -> dict[str, object]:
        return asdict(self)

    def with_engine(self, spent: EngineDelta) -> Report:
        """Fill in from the engine's own counters what the answers did not tell."""
        report = replace(self, preemptions=spent.preemptions)
        if self.cached_tokens is not None or spent.prefix_hits is None or not spent.prefix_queries:
            return report
        return replace(
            report,
            cached_tokens=round(spent.prefix_hits),
            hit_rate=hit_rate(spent.prefix_hits, spent.prefix_queries),
            recomputed_tokens=max(0, round(spent.prefix_queries - spent.prefix_hits - self.new_tokens)),
        )


class Tally:
    """Counts what happens to the turns of one run."""

    def __init__(self, sessions: int, turns: int, *, objective_s: float | None = None) -> None:
        """``objective_s``: the time to a first token, or to an answer, within which a turn counts as good."""
        self._progress = Progress(sessions=sessions, turns=turns)
        self._objective_s = objective_s
        self.forget()

    def forget(self) -> None:
        """Count from here on: what is under way goes on, what has been answered never was."""
        now = self._progress
        self._progress = Progress(sessions=now.sessions, turns=now.turns, active=now.active, thinking=now.thinking)
        self._good = 0
        self._waits: list[float] = []
        self._rates: list[float] = []
        self._ttft: list[float] = []
        self._durations: list[float] = []
        self._session_s: dict[str, float] = {}
        self._problems: dict[str, int] = {}

    def sent(self) -> None:
        self._change(active=1)

    def returned(self) -> None:
        self._change(active=-1)

    def thinks(self) -> None:
        self._change(thinking=1)

    def thought(self) -> None:
        self._change(thinking=-1)

    def retried(self) -> None:
        self._change(retries=1)

    def failed(self, problem: str) -> None:
        self._problems[problem] = self._problems.get(problem, 0) + 1
        self._change(errors=1)

    def answered(self, usage: Usage | None, *, reusable: int, duration_s: float, ttft_s: float | None) -> None:
        """Count a turn. ``reusable``: tokens of its prompt that its session has had in the engine before."""
        self._durations.append(duration_s)
        if ttft_s is not None:
            self._ttft.append(ttft_s)
        self._waits.append(duration_s if ttft_s is None else ttft_s)
        self._good += self._objective_s is not None and self._waits[-1] <= self._objective_s
        if usage is None:
            self._change(turns_done=1)
            return
        shared = min(reusable, usage.prompt_tokens)
        self._change(
            turns_done=1,
            prompt_tokens=usage.prompt_tokens,
            new_tokens=usage.prompt_tokens - shared,
            output_tokens=usage.completion_tokens,
        )
        if usage.cached_tokens is not None:
            short = shared - usage.cached_tokens
            before = self._progress
            self._progress = replace(
                before,
                cached_tokens=(before.cached_tokens or 0) + usage.cached_tokens,
                recomputed_tokens=(before.recomputed_tokens or 0) + (short if short > ROUNDING_TOKENS else 0),
            )

    def session_ended(self, session: str, duration_s: float, *, completed: bool, turns_per_s: float = 0.0) -> None:
        """Count a session. ``turns_per_s``: the turns it got, by the time that it waited for answers."""
        self._change(sessions_done=1)
        self._rates.append(turns_per_s)
        if completed:
            self._session_s[session] = duration_s

    def progress(self, elapsed_s: float) -> Progress:
        return replace(self._progress, elapsed_s=elapsed_s)

    def report(self, wall_s: float, *, ended_early: str | None = None) -> Report:
        end = self.progress(wall_s)
        return Report(
            wall_s=wall_s,
            output_tokens_per_s=end.output_tokens_per_s,
            turns=end.turns_done,
            errors=end.errors,
            retries=end.retries,
            prompt_tokens=end.prompt_tokens,
            new_tokens=end.new_tokens,
            output_tokens=end.output_tokens,
            cached_tokens=end.cached_tokens,
            hit_rate=end.hit_rate,
            recomputed_tokens=end.recomputed_tokens,
            preemptions=None,
            ttft_p50_s=quantile(self._ttft, 0.5),
            ttft_p95_s=quantile(self._ttft, 0.95),
            turn_p50_s=quantile(self._durations, 0.5),
            turn_p95_s=quantile(self._durations, 0.95),
            longest_wait_s=max(self._waits, default=None),
            useful_tokens_per_s=(end.new_tokens + end.output_tokens) / wall_s if wall_s > 0 else 0.0,
            turns_per_s=end.turns_done / wall_s if wall_s > 0 else 0.0,
            goodput_per_s=self._good / wall_s if self._objective_s is not None and wall_s > 0 else None,
            jobs=spread(list(self._session_s.values())),
            failed_sessions=end.sessions_done - len(self._session_s),
            fairness=jain(self._rates),
            session_s=dict(self._session_s),
            problems=dict(self._problems),
            ended_early=ended_early,
        )

    def _change(self, **by: int) -> None:
        now = self._progress
        self._progress = replace(now, **{name: getattr(now, name) + change for name, change in by.items()})


def hit_rate(cached: float | None, prompt: float) -> float | None:
    return None if cached is None or prompt <= 0 else cached / prompt
