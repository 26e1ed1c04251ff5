"""What is counted while requests are served: the cheapest thing that a scrape can make metrics of.

``prometheus_client``'s own counters and histograms take five times as long per request, mostly for locks that one event
loop does not need.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from itertools import accumulate

from concur_proxy.observe.turnlog import TurnLog

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 60.0, 120.0, 300.0, 600.0)
"""Upper ends of buckets: from a cache hit to the longest wait."""


class Histogram:
    __slots__ = ("_counts", "total")

    def __init__(self) -> None:
        self._counts = [0] * (len(SECONDS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(SECONDS, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Return upper end and cumulative count of each bucket, as the exposition format has them."""
        ends = [*(str(end) for end in SECONDS), "+Inf"]
        return list(zip(ends, accumulate(self._counts), strict=True))


class Served:
    """All requests of one kind on one backend."""

    __slots__ = ("duration", "first_token", "queued")

    def __init__(self) -> None:
        self.duration = Histogram()
        self.queued = Histogram()
        self.first_token = Histogram()


class Tokens:
    """What engines reported in usage, of one backend."""

    __slots__ = ("cached", "completion", "measured", "prompt")

    def __init__(self) -> None:
        self.prompt = 0
        self.completion = 0
        self.measured = 0
        """Prompt tokens of answers that told how many of them were cached."""
        self.cached = 0


NO_BACKEND = ""
"""Label of requests that never reached a backend."""


class Tallies:
    """Everything that is counted per request; keys come from fixed sets and the operator's backends only."""

    __slots__ = ("requests", "served", "tokens")

    def __init__(self) -> None:
        self.requests: defaultdict[tuple[str, str, int, str], int] = defaultdict(int)
        """By backend, kind, first digit of the status, and outcome."""
        self.served: defaultdict[tuple[str, str], Served] = defaultdict(Served)
        """By backend and kind."""
        self.tokens: defaultdict[str, Tokens] = defaultdict(Tokens)
        """By backend."""

    def add(self, turn: TurnLog) -> None:
        backend = turn.backend or NO_BACKEND
        self.requests[backend, turn.kind, turn.status // 100, turn.outcome] += 1
        served = self.served[backend, turn.kind]
        served.duration.observe(turn.total_s)
        if turn.queued_s is not None:
            served.queued.observe(turn.queued_s)
        if turn.first_token_s is not None:
            served.first_token.observe(turn.first_token_s)
        if turn.usage is not None:
            tokens = self.tokens[backend]
            tokens.prompt += turn.usage.prompt_tokens
            tokens.completion += turn.usage.completion_tokens
            if turn.usage.cached_tokens is not None:
                tokens.measured += turn.usage.prompt_tokens
                tokens.cached += turn.usage.cached_tokens
