"""All metrics: every name, its help text, its labels and its value stand here. docs/metrics.md says how to read them.

Labels come from fixed sets and from the operator's own backends, never from clients (invariant 9). What is not known
has no sample: unknown is not zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric

from concur_proxy import __version__
from concur_proxy.core.report import BackendSnapshot, GateSnapshot
from concur_proxy.model import AdmitWhy, BackendId, RefusalReason, TurnRecord
from concur_proxy.observe.facts import EngineFacts, ProxyFacts
from concur_proxy.observe.tallies import Histogram, Served, Spent, Tallies
from concur_proxy.observe.turnlog import TurnLog

Samples = Iterable[tuple[tuple[str, ...], float]]
"""Label values and value."""
Read = Callable[[ProxyFacts, Tallies], Samples]
T = TypeVar("T")
Reason = TypeVar("Reason", AdmitWhy, RefusalReason)
BACKEND = ("backend",)
SERVED = ("backend", "kind")


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: what it is called and where its samples come from."""

    name: str
    help: str
    labels: tuple[str, ...]
    read: Read


@dataclass(frozen=True, slots=True)
class HistogramFamily:
    name: str
    help: str
    read: Callable[[Served], Histogram]


def _total(read: Callable[[GateSnapshot], float]) -> Read:
    """Make one sample of the whole gate."""
    return lambda facts, _: [((), read(facts.gate))]


def _each(reasons: Iterable[Reason], read: Callable[[GateSnapshot], Mapping[Reason, int]]) -> Read:
    """Make one sample of each reason, zeros included: what has not happened yet is known."""
    return lambda facts, _: (((reason.value,), read(facts.gate).get(reason, 0)) for reason in reasons)


def _places(read: Callable[[BackendSnapshot], float | None]) -> Read:
    """Make one sample of each backend of the gate that has a value."""
    return lambda facts, _: _known(facts.gate.backends, read)


def _engines(read: Callable[[EngineFacts], float | None]) -> Read:
    """Make one sample of each engine that has a value."""
    return lambda facts, _: _known(facts.engines, read)


def _spent(read: Callable[[Spent], float | None]) -> Read:
    """Make one sample of each backend that reported tokens."""
    return lambda _, tallies: _known(tallies.spent, read)


def _known(backends: Mapping[BackendId, T], read: Callable[[T], float | None]) -> Samples:
    values = ((backend, read(item)) for backend, item in backends.items())
    return (((backend,), value) for backend, value in values if value is not None)


def _requests(_: ProxyFacts, tallies: Tallies) -> Samples:
    for (backend, kind, status, outcome), count in tallies.requests.items():
        yield (backend, kind, f"{status}xx", outcome), count


def _stale(facts: ProxyFacts, _: Tallies) -> Samples:
    return _known(facts.engines, lambda engine: engine.signals.age_s > facts.stale_after_s)


def _connections(facts: ProxyFacts, _: Tallies) -> Samples:
    for backend, engine in facts.engines.items():
        yield (backend, "busy"), engine.connections_open - engine.connections_idle
        yield (backend, "idle"), engine.connections_idle


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


COUNTERS = (
    Family(
        "concur_requests_total",
        "Requests answered, turns and others.",
        ("backend", "kind", "status", "outcome"),
        _requests,
    ),
    Family("concur_turns_arrived_total", "Turns that reached the gate.", (), _total(lambda g: g.arrived)),
    Family(
        "concur_turns_admitted_total",
        "Turns let through, by why; one that was put back in line counts again.",
        ("why",),
        _each(AdmitWhy, lambda g: g.admitted_by),
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
        _each(RefusalReason, lambda g: g.refused),
    ),
    Family(
        "concur_turns_abandoned_total",
        "Turns whose client left while they were held.",
        (),
        _total(lambda g: g.abandoned),
    ),
    Family(
        "concur_turns_requeued_total",
        "Turns put back in line because their backend was full or lost.",
        (),
        _total(lambda g: g.requeued),
    ),
    Family(
        "concur_session_pauses_total",
        "Sessions that lost their place between two turns and had to wait.",
        (),
        _total(lambda g: g.paused),
    ),
    Family(
        "concur_session_resumptions_total",
        "Paused sessions that got a place again.",
        (),
        _total(lambda g: g.resumed),
    ),
    Family(
        "concur_places_reclaimed_total",
        "Idle places taken back before their lease ended, because turns waited beside an engine with nothing to do.",
        (),
        _total(lambda g: g.reclaimed),
    ),
    Family(
        "concur_lease_expiries_total",
        "Idle sessions that lost their place because no turn came.",
        (),
        _total(lambda g: g.leases_expired),
    ),
    Family(
        "concur_session_ids_rejected_total",
        "Requests with a session id that is too long or not printable.",
        (),
        lambda _, t: [((), t.rejected_ids)],
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
        _engines(lambda e: e.connection_retries),
    ),
)

GAUGES = (
    Family("concur_build_info", "Version of the proxy; always 1.", ("version",), lambda _f, _t: [((__version__,), 1)]),
    Family("concur_policy_info", "Law and mode in force; 1.", ("law", "mode"), lambda f, _: [((f.law, f.mode), 1)]),
    Family("concur_backend_up", "1 while the backend takes turns, else 0.", BACKEND, _places(lambda b: b.up)),
    Family("concur_turns_held", "Turns that wait for a place.", (), _total(lambda g: g.held)),
    Family("concur_sessions_known", "Sessions that are remembered.", (), _total(lambda g: g.sessions)),
    Family("concur_turns_running", "Turns in flight.", BACKEND, _places(lambda b: b.running)),
    Family(
        "concur_sessions_active",
        "Sessions that hold a place: a turn in flight, or between two.",
        BACKEND,
        _places(lambda b: b.active),
    ),
    Family("concur_sessions_idle", "Sessions that hold a place between turns.", BACKEND, _places(lambda b: b.idle)),
    Family(
        "concur_window",
        "How much may be active, in the law's unit; +Inf where nothing is held.",
        ("backend", "unit"),
        lambda f, _: (((b.id, b.unit.value), b.window) for b in f.gate.backends.values()),
    ),
    Family("concur_window_min", "Lower bound of the window.", BACKEND, _places(lambda b: b.minimum)),
    Family("concur_window_max", "Upper bound of the window; +Inf for none.", BACKEND, _places(lambda b: b.maximum)),
    Family("concur_window_hard", "1 while every turn over the window is held.", BACKEND, _places(lambda b: b.hard)),
    Family(
        "concur_footprint_tokens",
        "KV tokens that active sessions occupy, shared prefixes once.",
        BACKEND,
        _places(lambda b: b.footprint_tokens),
    ),
    Family(
        "concur_capacity_tokens",
        "Tokens that the engine's KV cache holds.",
        BACKEND,
        _places(lambda b: b.capacity_tokens),
    ),
    Family(
        "concur_kv_usage_ratio",
        "Share of KV blocks that running requests hold, as the engine says.",
        BACKEND,
        _engines(lambda e: e.signals.kv_usage),
    ),
    Family(
        "concur_engine_hit_ratio",
        "Cached over processed prompt tokens in the last interval, as the engine counts.",
        BACKEND,
        _engines(lambda e: e.signals.hit_rate),
    ),
    Family(
        "concur_turn_hit_ratio",
        "Cached over all prompt tokens of about the last 50 turns, as their answers tell.",
        BACKEND,
        _spent(lambda s: s.recent_hit_rate),
    ),
    Family("concur_engine_running", "Requests that the engine runs.", BACKEND, _engines(lambda e: e.signals.running)),
    Family(
        "concur_engine_waiting", "Requests queued inside the engine.", BACKEND, _engines(lambda e: e.signals.waiting)
    ),
    Family(
        "concur_signal_age_seconds",
        "Age of the engine's newest sample.",
        BACKEND,
        _engines(lambda e: _finite(e.signals.age_s)),
    ),
    Family("concur_signal_stale", "1 while samples are too old to steer by.", BACKEND, _stale),
    Family(
        "concur_upstream_connections",
        "Connections to the backend that carry a request or wait for one.",
        ("backend", "state"),
        _connections,
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

    def window_moved(self, backend: BackendId, before: float, after: float) -> None:
        """Count a change of a window."""
        self._tallies.moves[backend, "up" if after > before else "down"] += 1

    def render(self, facts: ProxyFacts) -> bytes:
        """Return everything in Prometheus' text format."""
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
