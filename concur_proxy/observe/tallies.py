"""What is counted while requests are served: the cheapest thing that a scrape can make metrics of.

``prometheus_client``'s own counters and histograms take five times as long per request, mostly for locks that one event
loop does not need. All keys come from fixed sets and from the operator's backends; models and tenants are bounded, and
what is beyond the bound is counted as ``OTHER``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import accumulate
from typing import cast

from concur_proxy.model import BackendId, Outcome, RefusalReason, TurnRecord, Usage
from concur_proxy.observe.turnlog import TurnLog, sampled_trace

SECONDS = (
    *(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
    *(25.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1200.0, 1800.0),
)
"""Upper ends of buckets: from a cache hit to an agent's longest turn."""

LAG_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""The same for delays of the event loop."""

RECENT = 0.98
"""Weight of a turn against the next one in the recent hit rate: the last 50 turns count."""

NO_BACKEND = BackendId("")
"""Where requests that never reached a backend are counted."""

OTHER = "other"
"""Where models and tenants beyond the bound are counted."""

MAX_MODELS = 100
"""Names of models that metrics carry; engines list more where they load an adapter for each customer."""

_REFUSALS = frozenset(reason.value for reason in RefusalReason)


class Histogram:
    __slots__ = ("_counts", "_ends", "exemplars", "total")

    def __init__(self, ends: tuple[float, ...] = SECONDS) -> None:
        self._ends = ends
        self._counts = [0] * (len(ends) + 1)
        self.total = 0.0
        self.exemplars: dict[int, tuple[str, float]] = {}
        """Trace id and value of the newest traced observation in each bucket."""

    def observe(self, seconds: float, trace: str = "") -> None:
        bucket = 0
        for end in self._ends:  # most are short, and a loop here is compiled
            if seconds <= end:
                break
            bucket += 1
        self._counts[bucket] += 1
        self.total += seconds
        if trace:
            self.exemplars[bucket] = trace, seconds

    @property
    def count(self) -> int:
        return sum(self._counts)

    def buckets(self) -> list[tuple[str, float]]:
        """Return upper end and cumulative count of each bucket, as the exposition format has them."""
        ends = [*(str(end) for end in self._ends), "+Inf"]
        return list(zip(ends, accumulate(self._counts), strict=True))


class Served:
    """How long all requests of one kind took on one backend."""

    __slots__ = ("duration", "engine_first_token", "first_token", "queued")

    def __init__(self) -> None:
        self.duration = Histogram()
        self.queued = Histogram()
        self.first_token = Histogram()
        self.engine_first_token = Histogram()


class Lane:
    """How long the turns of one lane waited, and how many were refused."""

    __slots__ = ("refused", "waited")

    def __init__(self) -> None:
        self.waited = Histogram()
        self.refused = 0


class Share:
    """What the requests of one model or tenant took."""

    __slots__ = ("cached", "completion", "prompt", "queued_s", "refused", "requests")

    def __init__(self) -> None:
        self.requests = 0
        self.refused = 0
        self.queued_s = 0.0
        self.prompt = 0
        self.cached = 0
        self.completion = 0

    def add(self, turn: TurnLog) -> None:
        self.requests += 1
        if turn.outcome in _REFUSALS:
            self.refused += 1
        if turn.queued_s is not None:
            self.queued_s += turn.queued_s
        usage = turn.usage
        if usage is not None:
            self.prompt += usage.prompt_tokens
            self.cached += usage.cached_tokens or 0
            self.completion += usage.completion_tokens


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


class Work:
    """What finished turns cost one backend, where answers told how much was cached."""

    __slots__ = ("computed", "evicted", "expected", "recently_expected", "recently_measured", "useful")

    def __init__(self) -> None:
        self.computed = 0
        """Tokens prefilled and generated."""
        self.useful = 0
        """Those that an undisturbed cache would have needed, too."""
        self.expected = 0
        """Prompt tokens that an undisturbed cache would have had."""
        self.evicted = 0
        """Those of them that were not there, and so were computed again."""
        self.recently_measured = 0.0
        self.recently_expected = 0.0

    def add(self, usage: Usage, cached: int, expected: int | None) -> None:
        computed = max(0, usage.prompt_tokens - cached) + usage.completion_tokens
        evicted = 0 if expected is None else max(0, expected - cached)
        self.computed += computed
        self.useful += max(0, computed - evicted)
        self.expected += expected or 0
        self.evicted += evicted
        self.recently_measured = RECENT * self.recently_measured + usage.prompt_tokens
        self.recently_expected = RECENT * self.recently_expected + cached + evicted

    @property
    def recent_expected_hit_rate(self) -> float | None:
        """The hit rate that an undisturbed cache would have given the last turns; None before the first that told."""
        return self.recently_expected / self.recently_measured if self.recently_measured else None


class Tallies:
    """Everything that is counted as it happens. ``max_tenants``: how many are told apart; 0: none.

    What is counted for every turn stands in plain dicts, which compiled code reads and writes five times as fast as
    those that fill themselves.
    """

    __slots__ = (
        "cold",
        "finished",
        "hot",
        "lag",
        "max_tenants",
        "models",
        "moves",
        "rejected_ids",
        "requests",
        "scrapes",
        "served",
        "spent",
        "tenants",
        "thinking",
        "work",
    )

    def __init__(self, max_tenants: int = 0) -> None:
        self.max_tenants = max_tenants
        self.requests: dict[tuple[BackendId, str, int, str], int] = {}
        """By backend, kind, first digit of the status, and outcome."""
        self.served: dict[tuple[BackendId, str], Served] = {}
        """By backend and kind."""
        self.hot = Lane()
        self.cold = Lane()
        self.spent: dict[BackendId, Spent] = {}
        self.work: dict[BackendId, Work] = {}
        self.thinking: dict[BackendId, Histogram] = {}
        """Time between an answer and the session's next turn."""
        self.models: dict[str, Share] = {OTHER: Share()}
        self.tenants: dict[str, Share] = {}
        self.rejected_ids = 0
        self.finished: dict[tuple[BackendId, Outcome], int] = {}
        self.scrapes: Counter[tuple[BackendId, bool]] = Counter()
        """By backend and whether they failed."""
        self.moves: Counter[tuple[BackendId, str]] = Counter()
        """Changes of windows by backend and direction."""
        self.lag = Histogram(LAG_SECONDS)

    def learn_models(self, names: Iterable[str]) -> None:
        """Tell models apart that engines list, as many as the bound allows."""
        for name in names:
            if len(self.models) <= MAX_MODELS:
                self.models.setdefault(name, Share())

    def turn(self, turn: TurnLog) -> None:
        """Count an answered request."""
        backend = turn.backend or NO_BACKEND
        trace = sampled_trace(turn.traceparent) if turn.traceparent else ""
        counted = (backend, turn.kind, turn.status // 100, turn.outcome)
        self.requests[counted] = self.requests.get(counted, 0) + 1
        if turn.session_rejected:
            self.rejected_ids += 1
        served = self._served(backend, turn.kind)
        served.duration.observe(turn.total_s, trace)
        queued_s = turn.queued_s
        if queued_s is not None:
            served.queued.observe(queued_s, trace)
            lane = self.cold if turn.cold else self.hot
            if turn.outcome in _REFUSALS:
                lane.refused += 1
            else:
                lane.waited.observe(queued_s)
        if turn.first_token_s is not None:
            served.first_token.observe(turn.first_token_s, trace)
            served.engine_first_token.observe(max(0.0, turn.first_token_s - (queued_s or 0.0)))
        if turn.usage is not None:
            self._spent(backend).add(turn.usage)
        if turn.model is not None:
            (self.models.get(turn.model) or self.models[OTHER]).add(turn)
        if self.max_tenants:
            self._tenant(turn.tenant).add(turn)

    def forget(self, backend: BackendId) -> None:
        """A backend is gone for good: what was counted of it goes, too, as backends come without end (invariant 9)."""
        self.spent.pop(backend, None)
        self.work.pop(backend, None)
        self.thinking.pop(backend, None)
        for counted in (self.requests, self.served, self.finished, self.scrapes, self.moves):
            _forget(cast("dict[tuple[object, ...], object]", counted), backend)

    def _tenant(self, name: str) -> Share:
        share = self.tenants.get(name)
        if share is None:
            if len(self.tenants) >= self.max_tenants:
                name = OTHER
            share = self.tenants.setdefault(name, Share())
        return share

    def record(self, record: TurnRecord) -> None:
        """Count a turn that gave its lease back."""
        counted = (record.backend, record.outcome)
        self.finished[counted] = self.finished.get(counted, 0) + 1
        usage = record.usage
        if usage is not None and usage.cached_tokens is not None:
            self._work(record.backend).add(usage, usage.cached_tokens, record.expected_cached_tokens)
        if record.think_s is not None:
            self._thinking(record.backend).observe(record.think_s)

    def _served(self, backend: BackendId, kind: str) -> Served:
        served = self.served.get((backend, kind))
        if served is None:
            served = self.served[backend, kind] = Served()
        return served

    def _spent(self, backend: BackendId) -> Spent:
        spent = self.spent.get(backend)
        if spent is None:
            spent = self.spent[backend] = Spent()
        return spent

    def _work(self, backend: BackendId) -> Work:
        work = self.work.get(backend)
        if work is None:
            work = self.work[backend] = Work()
        return work

    def _thinking(self, backend: BackendId) -> Histogram:
        thinking = self.thinking.get(backend)
        if thinking is None:
            thinking = self.thinking[backend] = Histogram()
        return thinking


def _forget(counted: dict[tuple[object, ...], object], backend: BackendId) -> None:
    for key in [key for key in counted if key[0] == backend]:
        del counted[key]
