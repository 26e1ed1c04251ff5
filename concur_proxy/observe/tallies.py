"""What is counted while requests are served: the cheapest thing that a scrape can make metrics of.

``prometheus_client``'s own counters and histograms take five times as long per request, mostly for locks that one event
loop does not need. All keys come from fixed sets and from the operator's backends.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from itertools import accumulate

from concur_proxy.model import BackendId, Outcome, TurnRecord, Usage
from concur_proxy.observe.turnlog import TurnLog

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 60.0, 120.0, 300.0, 600.0)
"""Upper ends of buckets: from a cache hit to the longest wait."""

RECENT = 0.98
"""Weight of a turn against the next one in the recent hit rate: the last 50 turns count."""

NO_BACKEND = BackendId("")
"""Where requests that never reached a backend are counted."""


class Histogram:
    __slots__ = ("_counts", "total")

    def __init__(self) -> None:
        self._counts = [0] * (len(SECONDS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(SECONDS, seconds)] += 1
        self.total += seconds

    @property
    def count(self) -> int:
        return sum(self._counts)

    def buckets(self) -> list[tuple[str, float]]:
        """Return upper end and cumulative count of each bucket, as the exposition format has them."""
        ends = [*(str(end) for end in SECONDS), "+Inf"]
        return list(zip(ends, accumulate(self._counts), strict=True))


class Served:
    """How long all requests of one kind took on one backend."""

    __slots__ = ("duration", "first_token", "queued")

    def __init__(self) -> None:
        self.duration = Histogram()
        self.queued = Histogram()
        self.first_token = Histogram()


class Spent:
    """Tokens that one backend reported in the usage of its answers."""

    __slots__ = ("cached", "completion", "measured", "prompt", "recently_cached", "recently_measured")

    def __init__(self) -> None:
        self.prompt = 0
        self.completion = 0
        self.measured = 0
        """Prompt tokens of answers that told how many of them were cached."""
        self.cached = 0
        self.recently_measured = 0.0
        self.recently_cached = 0.0

    def add(self, usage: Usage) -> None:
        self.prompt += usage.prompt_tokens
        self.completion += usage.completion_tokens
        if usage.cached_tokens is not None:
            self.measured += usage.prompt_tokens
            self.cached += usage.cached_tokens
            self.recently_measured = RECENT * self.recently_measured + usage.prompt_tokens
            self.recently_cached = RECENT * self.recently_cached + usage.cached_tokens

    @property
    def recent_hit_rate(self) -> float | None:
        """Share of prompt tokens that were cached in the last turns, 0 to 1; None before the first that told."""
        return self.recently_cached / self.recently_measured if self.recently_measured else None


class Tallies:
    """Everything that is counted as it happens."""

    __slots__ = ("evicted", "finished", "moves", "rejected_ids", "requests", "scrapes", "served", "spent")

    def __init__(self) -> None:
        self.requests: Counter[tuple[BackendId, str, int, str]] = Counter()
        """By backend, kind, first digit of the status, and outcome."""
        self.served: defaultdict[tuple[BackendId, str], Served] = defaultdict(Served)
        """By backend and kind."""
        self.spent: defaultdict[BackendId, Spent] = defaultdict(Spent)
        self.rejected_ids = 0
        self.finished: Counter[tuple[BackendId, Outcome]] = Counter()
        self.evicted: Counter[BackendId] = Counter()
        """Prompt tokens that should have been cached and were not."""
        self.scrapes: Counter[tuple[BackendId, bool]] = Counter()
        """By backend and whether they failed."""
        self.moves: Counter[tuple[BackendId, str]] = Counter()
        """Changes of windows by backend and direction."""

    def turn(self, turn: TurnLog) -> None:
        """Count an answered request."""
        backend = turn.backend or NO_BACKEND
        self.requests[backend, turn.kind, turn.status // 100, turn.outcome] += 1
        self.rejected_ids += turn.session_rejected
        served = self.served[backend, turn.kind]
        served.duration.observe(turn.total_s)
        if turn.queued_s is not None:
            served.queued.observe(turn.queued_s)
        if turn.first_token_s is not None:
            served.first_token.observe(turn.first_token_s)
        if turn.usage is not None:
            self.spent[backend].add(turn.usage)

    def record(self, record: TurnRecord) -> None:
        """Count a turn that gave its lease back."""
        self.finished[record.backend, record.outcome] += 1
        usage, expected = record.usage, record.expected_cached_tokens
        if usage is not None and usage.cached_tokens is not None and expected is not None:
            self.evicted[record.backend] += max(0, expected - usage.cached_tokens)
