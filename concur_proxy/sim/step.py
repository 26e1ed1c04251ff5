"""The nouns of the engine: what a step costs, what a request is, what a step computes and brings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from concur_proxy.sim.stats import EndReason


@dataclass(frozen=True, slots=True)
class StepCost:
    """Seconds that one step takes: ``a + b·tokens + c·decodes + d·context``."""

    a: float
    """Per step: the weights are read once, kernels are launched."""
    b: float
    """Per token computed, prompt or generated."""
    c: float
    """Per decoding request."""
    d: float
    """Per token of context that a decoding request reads back."""

    def seconds(self, tokens: int, decodes: int, context: int) -> float:
        return self.a + self.b * tokens + self.c * decodes + self.d * context

    def faster(self, speed: float) -> StepCost:
        """The same engine with all times divided by ``speed``."""
        return StepCost(self.a / speed, self.b / speed, self.c / speed, self.d / speed)


@dataclass(frozen=True, slots=True)
class EngineConfig:
    blocks: int
    """All blocks, the null block among them (``num_gpu_blocks``)."""
    cost: StepCost
    block_size: int = 16
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048

    def __post_init__(self) -> None:
        if not 1 <= self.max_num_seqs <= self.max_num_batched_tokens:
            raise ValueError("max_num_batched_tokens must be at least max_num_seqs, and that at least 1")

    @property
    def max_request_tokens(self) -> int:
        """The longest request, prompt and output, that fits when it runs alone."""
        return (self.blocks - 1) * self.block_size


@dataclass(slots=True, eq=False)
class Request:
    """One inference request. How much it will generate is known to the model behind the engine, not to the scheduler.

    ``hashes[i]`` identifies the tokens of block i and all before it, for every block that prompt and output fill. The
    sequence is read by index only, so it may be a session's list that grows later.
    """

    prompt_tokens: int
    output_tokens: int
    hashes: Sequence[int]
    arrived_at: float
    end: EndReason = EndReason.LENGTH
    computed: int = 0
    """Tokens whose KV is in ``blocks``."""
    generated: int = 0
    cached_tokens: int | None = None
    """Prompt tokens that the prefix cache had; None until the request is first scheduled."""
    preemptions: int = 0
    first_token_at: float | None = None
    last_token_at: float | None = None
    blocks: list[int] = field(default_factory=list)
    shared: int = 0
    """How many of ``blocks`` are registered in the pool."""
    running: bool = False

    @property
    def total(self) -> int:
        return self.prompt_tokens + self.generated


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one or several merged steps brought."""

    started_at: float
    ended_at: float
    steps: int
    emitted: Sequence[tuple[Request, int]]
    """Requests that got tokens, and how many."""
    finished: Sequence[Request]

    @property
    def duration(self) -> float:
        return self.ended_at - self.started_at


@dataclass(slots=True)
class Step:
    """A step under way: its batch, and when each of its merged parts ends."""

    started_at: float
    budget: int
    batch: list[tuple[Request, int]] = field(default_factory=list)
    tokens: int = 0
    decodes: int = 0
    context: int = 0
    ends_at: list[float] = field(default_factory=list)

    def split(self, done: int) -> tuple[Step, Step]:
        """Part merged decode steps into the first ``done`` and the others."""
        past = Step(
            self.started_at, self.budget, self.batch, self.tokens, self.decodes, self.context, self.ends_at[:done]
        )
        context = self.context + done * self.decodes
        rest = Step(past.ends_at[-1], self.budget, self.batch, self.tokens, self.decodes, context, self.ends_at[done:])
        return past, rest

    def add(self, request: Request, count: int) -> None:
        self.batch.append((request, count))
        self.budget -= count
        self.tokens += count
        if count == 1 and request.computed + 1 == request.total:
            self.decodes += 1
            self.context += request.computed
