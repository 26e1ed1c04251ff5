"""All metrics: every name, its help text, its labels and its value stand here. docs/metrics.md says how to read them.

Labels come from fixed sets and from the operator's own backends, never from clients (invariant 9). What is not known
has no sample: unknown is not zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric

from concur_proxy import __version__
from concur_proxy.model import BackendId, TurnRecord
from concur_proxy.observe.facts import BackendFacts, ProxyFacts
from concur_proxy.observe.tallies import Histogram, Served, Spent, Tallies
from concur_proxy.observe.turnlog import TurnLog

Samples = Iterable[tuple[tuple[str, ...], float]]
"""Label values and value."""
BACKEND = ("backend",)
SERVED = ("backend", "kind")


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: what it is called and where its samples come from."""

    name: str
    help: str
    labels: tuple[str, ...]
    read: Callable[[ProxyFacts, Tallies], Samples]


@dataclass(frozen=True, slots=True)
class HistogramFamily:
    name: str
    help: str
    read: Callable[[Served], Histogram]


def _backends(read: Callable[[BackendFacts], float | None]) -> Callable[[ProxyFacts, Tallies], Samples]:
    """Make one sample of each backend that has a value."""

    def samples(facts: ProxyFacts, _: Tallies) -> Samples:
        values = ((backend.backend, read(backend)) for backend in facts.backends)
        return (((name,), value) for name, value in values if value is not None)

    return samples


def _spent(read: Callable[[Spent], float | None]) -> Callable[[ProxyFacts, Tallies], Samples]:
    """Make one sample of each backend that reported tokens."""

    def samples(_: ProxyFacts, tallies: Tallies) -> Samples:
        values = ((backend, read(spent)) for backend, spent in tallies.spent.items())
        return (((name,), value) for name, value in values if value is not None)

    return samples


def _one(value: float) -> Samples:
    return [((), value)]


def _requests(_: ProxyFacts, tallies: Tallies) -> Samples:
    for (backend, kind, status, outcome), count in tallies.requests.items():
        yield (backend, kind, f"{status}xx", outcome), count


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


COUNTERS = (
    Family(
        "concur_requests_total",
        "Requests answered, turns and others.",
        ("backend", "kind", "status", "outcome"),
        _requests,
    ),
    Family("concur_turns_arrived_total", "Turns that reached the gate.", (), lambda f, _: _one(f.turns.arrived)),
    Family(
        "concur_turns_admitted_total",
        "Turns let through, by why.",
        ("why",),
        lambda f, _: (((why.value,), count) for why, count in f.turns.admitted.items()),
    ),
    Family(
        "concur_turns_finished_total",
        "Turns that gave their place back, by how they ended.",
        ("backend", "outcome"),
        lambda _, t: (((backend, outcome.value), count) for (backend, outcome), count in t.finished.items()),
    ),
    Family(
        "concur_turns_refused_total",
        "Turns that the gate refused, by why.",
        ("reason",),
        lambda f, _: (((reason.value,), count) for reason, count in f.turns.refused.items()),
    ),
    Family(
        "concur_turns_abandoned_total",
        "Turns whose client left while they were held.",
        (),
        lambda f, _: _one(f.turns.abandoned),
    ),
    Family(
        "concur_turns_requeued_total",
        "Turns put back in line because their backend was full or lost.",
        (),
        lambda f, _: _one(f.turns.requeued),
    ),
    Family(
        "concur_session_pauses_total",
        "Sessions that lost their place between two turns and had to wait.",
        (),
        lambda f, _: _one(f.sessions.pauses),
    ),
    Family(
        "concur_session_resumptions_total",
        "Paused sessions that got a place again.",
        (),
        lambda f, _: _one(f.sessions.resumptions),
    ),
    Family(
        "concur_lease_expiries_total",
        "Idle sessions that lost their place because no turn came.",
        (),
        lambda f, _: _one(f.sessions.lease_expiries),
    ),
    Family(
        "concur_session_ids_rejected_total",
        "Requests with a session id that is too long or not printable.",
        (),
        lambda _, t: _one(t.rejected_ids),
    ),
    Family("concur_prompt_tokens_total", "Prompt tokens in answers.", BACKEND, _spent(lambda s: s.prompt)),
    Family("concur_completion_tokens_total", "Generated tokens in answers.", BACKEND, _spent(lambda s: s.completion)),
    Family(
        "concur_measured_prompt_tokens_total",
        "Prompt tokens in answers that told how many were cached.",
        BACKEND,
        _spent(lambda s: s.measured),
    ),
    Family(
        "concur_cached_prompt_tokens_total",
        "Prompt tokens that the engine had in its cache.",
        BACKEND,
        _spent(lambda s: s.cached),
    ),
    Family(
        "concur_evicted_tokens_total",
        "Prompt tokens that should have been cached and were not (estimate).",
        BACKEND,
        lambda _, t: (((backend,), count) for backend, count in t.evicted.items()),
    ),
    Family(
        "concur_window_changes_total",
        "Changes of the window by direction.",
        ("backend", "direction"),
        lambda _, t: (((backend, direction), count) for (backend, direction), count in t.moves.items()),
    ),
    Family(
        "concur_scrapes_total",
        "Reads of an engine's metrics by result.",
        ("backend", "result"),
        lambda _, t: (((backend, "failed" if bad else "ok"), count) for (backend, bad), count in t.scrapes.items()),
    ),
    Family(
        "concur_connection_retries_total",
        "Requests sent again because a kept connection had died.",
        BACKEND,
        _backends(lambda b: b.connection_retries),
    ),
)

GAUGES = (
    Family("concur_build_info", "Version of the proxy; always 1.", ("version",), lambda _f, _t: [((__version__,), 1)]),
    Family("concur_policy_info", "Law and mode in force; 1.", ("law", "mode"), lambda f, _: [((f.law, f.mode), 1)]),
    Family("concur_backend_up", "1 while the backend takes turns, else 0.", BACKEND, _backends(lambda b: b.up)),
    Family("concur_turns_held", "Turns that wait for a place.", (), lambda f, _: _one(f.turns.held)),
    Family("concur_sessions_known", "Sessions that are remembered.", (), lambda f, _: _one(f.sessions.known)),
    Family(
        "concur_sessions_paused",
        "Sessions that lost their place and wait for one.",
        (),
        lambda f, _: _one(f.sessions.paused),
    ),
    Family(
        "concur_sessions_active",
        "Sessions that hold a place: running and idle.",
        BACKEND,
        _backends(lambda b: b.running + b.idle),
    ),
    Family("concur_sessions_running", "Sessions with a turn in flight.", BACKEND, _backends(lambda b: b.running)),
    Family("concur_sessions_idle", "Sessions that hold a place between turns.", BACKEND, _backends(lambda b: b.idle)),
    Family(
        "concur_window",
        "How much may be active, in the law's unit; +Inf where nothing is held.",
        ("backend", "unit"),
        lambda f, _: (((b.backend, b.unit.value), b.window) for b in f.backends),
    ),
    Family("concur_window_min", "Lower bound of the window.", BACKEND, _backends(lambda b: b.window_min)),
    Family(
        "concur_window_max", "Upper bound of the window; +Inf for none.", BACKEND, _backends(lambda b: b.window_max)
    ),
    Family(
        "concur_footprint_tokens",
        "KV tokens that active sessions occupy, shared prefixes once.",
        BACKEND,
        _backends(lambda b: b.footprint_tokens),
    ),
    Family(
        "concur_capacity_tokens",
        "Tokens that the engine's KV cache holds.",
        BACKEND,
        _backends(lambda b: b.signals.capacity_tokens),
    ),
    Family(
        "concur_kv_usage_ratio",
        "Share of KV blocks that running requests hold, as the engine says.",
        BACKEND,
        _backends(lambda b: b.signals.kv_usage),
    ),
    Family(
        "concur_engine_hit_ratio",
        "Cached over processed prompt tokens in the last interval, as the engine counts.",
        BACKEND,
        _backends(lambda b: b.signals.hit_rate),
    ),
    Family(
        "concur_turn_hit_ratio",
        "Cached over all prompt tokens of about the last 50 turns, as their answers tell.",
        BACKEND,
        _spent(lambda s: s.recent_hit_rate),
    ),
    Family("concur_engine_running", "Requests that the engine runs.", BACKEND, _backends(lambda b: b.signals.running)),
    Family(
        "concur_engine_waiting", "Requests queued inside the engine.", BACKEND, _backends(lambda b: b.signals.waiting)
    ),
    Family(
        "concur_signal_age_seconds",
        "Age of the engine's newest sample.",
        BACKEND,
        _backends(lambda b: _finite(b.sample_age_s)),
    ),
    Family("concur_signal_stale", "1 while samples are too old to steer by.", BACKEND, _backends(lambda b: b.stale)),
    Family(
        "concur_upstream_connections",
        "Connections to the backend that carry a request or wait for one.",
        ("backend", "state"),
        lambda f, _: (
            sample
            for b in f.backends
            for sample in (
                ((b.backend, "busy"), b.connections_open - b.connections_idle),
                ((b.backend, "idle"), b.connections_idle),
            )
        ),
    ),
)

HISTOGRAMS = (
    HistogramFamily("concur_request_duration_seconds", "From a request's arrival to the end.", lambda s: s.duration),
    HistogramFamily("concur_queue_wait_seconds", "Time that turns waited in the gate.", lambda s: s.queued),
    HistogramFamily(
        "concur_time_to_first_token_seconds",
        "From arrival to the first byte of generated text, the wait in the gate included.",
        lambda s: s.first_token,
    ),
)

NAMES = tuple(family.name for family in (*COUNTERS, *GAUGES, *HISTOGRAMS))


class Metrics:
    """Counts what happens and, together with the facts of the moment, renders it for Prometheus."""

    content_type = CONTENT_TYPE_PLAIN_0_0_4

    def __init__(self) -> None:
        self._tallies = Tallies()
        self.turn: Callable[[TurnLog], None] = self._tallies.turn
        """Count an answered request."""
        self.record: Callable[[TurnRecord], None] = self._tallies.record
        """Count a turn that gave its lease back."""
        self._facts: ProxyFacts | None = None
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def scraped(self, backend: BackendId, *, failed: bool) -> None:
        """Count a read of an engine's metrics."""
        self._tallies.scrapes[backend, failed] += 1

    def render(self, facts: ProxyFacts) -> bytes:
        """Return everything in Prometheus' text format."""
        for backend in facts.backends:
            self._tallies.windows(backend.backend, backend.windows)
        self._facts = facts
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield all families: what makes this a collector of ``prometheus_client``."""
        if self._facts is None:
            return
        for family in COUNTERS:
            counter = CounterMetricFamily(family.name, family.help, labels=family.labels)
            yield _filled(counter, family.read(self._facts, self._tallies))
        for family in GAUGES:
            gauge = GaugeMetricFamily(family.name, family.help, labels=family.labels)
            yield _filled(gauge, family.read(self._facts, self._tallies))
        for shape in HISTOGRAMS:
            yield self._histogram(shape)

    def _histogram(self, shape: HistogramFamily) -> Metric:
        family = HistogramMetricFamily(shape.name, shape.help, labels=SERVED)
        for (backend, kind), served in self._tallies.served.items():
            histogram = shape.read(served)
            if histogram.count:
                family.add_metric((backend, kind), histogram.buckets(), histogram.total)
        return family


def _filled(family: CounterMetricFamily | GaugeMetricFamily, samples: Samples) -> Metric:
    for labels, value in samples:
        family.add_metric(labels, value)
    return family
