"""What an engine counts about itself, with the meanings that vLLM gives its own counters."""

from __future__ import annotations

import enum
from bisect import bisect_left
from dataclasses import dataclass, field

LATENCY_BUCKETS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0,
    640.0, 2560.0,
)  # fmt: skip
GAP_BUCKETS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
REQUEST_BUCKETS = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
)  # fmt: skip
TOKEN_BUCKETS = (1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0)


class EndReason(enum.Enum):
    """Why a request ended by itself; the value is vLLM's label ``finished_reason``."""

    STOP = "stop"
    LENGTH = "length"


class Histogram:
    """Counts of observations per bucket; ``bounds`` are the inclusive upper ends, a last bucket has none."""

    __slots__ = ("bounds", "buckets", "count", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        self.count = 0
        self.sum = 0.0

    def bucket(self, value: float) -> int:
        """Return which bucket a value belongs to."""
        return bisect_left(self.bounds, value)

    def observe(self, value: float, times: int = 1) -> None:
        self.buckets[bisect_left(self.bounds, value)] += times
        self.count += times
        self.sum += value * times


@dataclass(slots=True)
class EngineStats:
    """Counters since the engine started. Tokens are counted when vLLM counts them, which is noted at each."""

    prompt_tokens: int = 0
    """Of requests whose first token came out, cached or not."""
    cached_tokens: int = 0
    """The part of ``prompt_tokens`` that came from the prefix cache."""
    generation_tokens: int = 0
    prefix_queries: int = 0
    """Prompt tokens looked up in the prefix cache, when a request is first scheduled."""
    prefix_hits: int = 0
    preemptions: int = 0
    rejections: int = 0
    """Requests turned away because too many waited."""
    steps: int = 0
    """All steps; ``iteration_tokens`` has only those that brought a token."""
    scheduled_tokens: int = 0
    """Tokens computed in all steps: recomputed ones count again."""
    busy_s: float = 0.0
    """Sum of the steps' durations."""
    ended: dict[EndReason, int] = field(default_factory=lambda: dict.fromkeys(EndReason, 0))
    iteration_tokens: Histogram = field(default_factory=lambda: Histogram(TOKEN_BUCKETS))
    """Per step with output: computed prompt tokens of the requests that got their first token, and tokens generated."""
    first_token_s: Histogram = field(default_factory=lambda: Histogram(LATENCY_BUCKETS))
    gap_s: Histogram = field(default_factory=lambda: Histogram(GAP_BUCKETS))
    """Time between two tokens of one request."""
    queue_s: Histogram = field(default_factory=lambda: Histogram(REQUEST_BUCKETS))
    """Arrival to first scheduling."""
    request_s: Histogram = field(default_factory=lambda: Histogram(REQUEST_BUCKETS))
    """Arrival to last token."""
