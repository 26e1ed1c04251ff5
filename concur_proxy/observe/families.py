"""What one metric is, and the ways in which metrics are read from facts and tallies."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from concur_proxy.core.report import BackendSnapshot, GateSnapshot
from concur_proxy.model import AdmitWhy, BackendId, ColdLane, RefusalReason
from concur_proxy.observe.facts import EngineFacts, ProxyFacts, SharedFacts
from concur_proxy.observe.tallies import OTHER, Histogram, Served, Share, Spent, Tallies, Work

Samples = Iterable[tuple[tuple[str, ...], float]]
"""Label values and value."""
Read = Callable[[ProxyFacts, Tallies], Samples]
ReadHistograms = Callable[[Tallies], Iterable[tuple[tuple[str, ...], Histogram]]]
T = TypeVar("T")
Reason = TypeVar("Reason", AdmitWhy, RefusalReason)
BACKEND = ("backend",)
SERVED = ("backend", "kind")


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: what it is called and where its samples come from. ``unit`` is empty for plain counts."""

    name: str
    unit: str
    help: str
    labels: tuple[str, ...]
    read: Read

    @property
    def type(self) -> str:
        return "counter" if self.name.endswith("_total") else "gauge"


@dataclass(frozen=True, slots=True)
class HistogramFamily:
    """One histogram; its unit is seconds."""

    name: str
    help: str
    labels: tuple[str, ...]
    read: ReadHistograms
    type: str = "histogram"
    unit: str = "seconds"


@dataclass(frozen=True, slots=True)
class Chapter:
    """Metrics that belong together, with what is to be said of them all."""

    title: str
    about: str
    families: tuple[Family | HistogramFamily, ...]


# one sample


def one(read: Callable[[GateSnapshot], float]) -> Read:
    """Make one sample of the whole gate."""
    return lambda facts, _: [((), read(facts.gate))]


def fact(read: Callable[[ProxyFacts], float | None]) -> Read:
    """Make one sample of what is known of the proxy, none where it is not."""
    return lambda facts, _: () if (value := read(facts)) is None else [((), value)]


# one sample of each of something


def each(reasons: Iterable[Reason], read: Callable[[GateSnapshot], Mapping[Reason, int]]) -> Read:
    """Make one sample of each reason, zeros included: what has not happened yet is known."""
    return lambda facts, _: (((reason.value,), read(facts.gate).get(reason, 0)) for reason in reasons)


def places(read: Callable[[BackendSnapshot], float | None]) -> Read:
    """Make one sample of each backend of the gate that has a value."""
    return lambda facts, _: _known(facts.gate.backends, read)


def engines(read: Callable[[EngineFacts], float | None]) -> Read:
    """Make one sample of each engine that has a value."""
    return lambda facts, _: _known(facts.engines, read)


def spent(read: Callable[[Spent], float | None]) -> Read:
    """Make one sample of each backend that reported tokens."""
    return lambda _, tallies: _known(tallies.spent, read)


def work(read: Callable[[Work], float | None]) -> Read:
    """Make one sample of each backend whose answers told what was cached."""
    return lambda _, tallies: _known(tallies.work, read)


def shares(of: Callable[[Tallies], Mapping[str, Share]], read: Callable[[Share], float]) -> Read:
    """Make one sample of each model, or of each tenant."""
    return lambda _, tallies: (((name,), read(share)) for name, share in of(tallies).items() if _is_shown(name, share))


def share_tokens(of: Callable[[Tallies], Mapping[str, Share]]) -> Read:
    """Make a sample of each kind of tokens for each model, or for each tenant."""

    def read(_: ProxyFacts, tallies: Tallies) -> Samples:
        for name, share in of(tallies).items():
            if _is_shown(name, share):
                yield (name, "prompt"), share.prompt
                yield (name, "cached"), share.cached
                yield (name, "completion"), share.completion

    return read


def _is_shown(name: str, share: Share) -> bool:
    return name != OTHER or share.requests > 0


def _known(backends: Mapping[BackendId, T], read: Callable[[T], float | None]) -> Samples:
    values = ((backend, read(item)) for backend, item in backends.items())
    return (((backend,), value) for backend, value in values if value is not None)


def finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


# histograms


def served(read: Callable[[Served], Histogram]) -> ReadHistograms:
    """Make a histogram of each kind of requests on each backend."""
    return lambda tallies: (
        ((backend, kind), histogram)
        for (backend, kind), times in tallies.served.items()
        if (histogram := read(times)).count
    )


def lanes(tallies: Tallies) -> Iterator[tuple[tuple[str, ...], Histogram]]:
    yield ("hot",), tallies.hot.waited
    yield ("cold",), tallies.cold.waited


def thinking(tallies: Tallies) -> Iterator[tuple[tuple[str, ...], Histogram]]:
    yield from (((backend,), histogram) for backend, histogram in tallies.thinking.items())


def lag(tallies: Tallies) -> Iterator[tuple[tuple[str, ...], Histogram]]:
    yield (), tallies.lag


# samples with labels of their own


def requests(_: ProxyFacts, tallies: Tallies) -> Samples:
    for (backend, kind, status, outcome), count in tallies.requests.items():
        yield (backend, kind, f"{status}xx", outcome), count


def stale(facts: ProxyFacts, _: Tallies) -> Samples:
    return _known(facts.engines, lambda engine: engine.signals.age_s > facts.stale_after_s)


def replicas(read: Callable[[SharedFacts], float]) -> Read:
    """Make one sample of what replicas share; none where this proxy is the only one."""
    return lambda facts, _: [] if facts.shared is None else [((), read(facts.shared))]


def claims(facts: ProxyFacts, _: Tallies) -> Samples:
    if facts.shared is not None:
        yield ("in_time",), facts.shared.claims - facts.shared.claims_late
        yield ("late",), facts.shared.claims_late


def whole_windows(facts: ProxyFacts, _: Tallies) -> Samples:
    return [] if facts.shared is None else (((backend,), size) for backend, size in facts.shared.windows.items())


def connections(facts: ProxyFacts, _: Tallies) -> Samples:
    for backend, engine in facts.engines.items():
        yield (backend, "busy"), engine.connections_open - engine.connections_idle
        yield (backend, "idle"), engine.connections_idle


def relayed(facts: ProxyFacts, _: Tallies) -> Samples:
    for backend, engine in facts.engines.items():
        yield (backend, "sent"), engine.sent_bytes
        yield (backend, "received"), engine.received_bytes


def moves(facts: ProxyFacts, tallies: Tallies) -> Samples:
    for backend in facts.gate.backends:
        for direction in ("up", "down"):
            yield (backend, direction), tallies.moves[backend, direction]


STATES = ("unknown", "up", "resting", "asleep", "warming", "draining", "lost")
"""Of a backend's health, as ``control/condition.py`` names them."""


def states(facts: ProxyFacts, _: Tallies) -> Samples:
    for backend, engine in facts.engines.items():
        for state in dict.fromkeys((*STATES, engine.state)):
            yield (backend, state), state == engine.state


def held_by_pool(facts: ProxyFacts, _: Tallies) -> Samples:
    held = {backend.pool: backend.held for backend in facts.gate.backends.values()}
    return (((pool,), count) for pool, count in held.items())


def hot_p99(facts: ProxyFacts, _: Tallies) -> Samples:
    return (((pool,), lane.p99_s) for pool, lane in facts.gate.hot_lanes.items() if lane.p99_s is not None)


def cold_lanes(facts: ProxyFacts, _: Tallies) -> Samples:
    states = list(ColdLane)
    return (((pool,), states.index(lane.cold_lane)) for pool, lane in facts.gate.hot_lanes.items())


def models(facts: ProxyFacts, tallies: Tallies) -> Samples:
    for backend, engine in facts.engines.items():
        pool = facts.gate.backends[backend].pool if backend in facts.gate.backends else ""
        for model in dict.fromkeys(name if name in tallies.models else OTHER for name in engine.models):
            yield (backend, pool, model), 1


def law_values(facts: ProxyFacts, _: Tallies) -> Samples:
    for backend, engine in facts.engines.items():
        yield from (((backend, name), value) for name, value in engine.law_values.items())


def law_parameters(facts: ProxyFacts, _: Tallies) -> Samples:
    return (((name,), value) for name, value in facts.law_parameters.items())
