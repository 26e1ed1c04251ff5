"""Counts what happens and renders all metrics of ``catalogue`` for Prometheus, in its text format or in OpenMetrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Exemplar

from concur_proxy.model import BackendId, TurnRecord
from concur_proxy.observe.catalogue import FAMILIES
from concur_proxy.observe.facts import ProxyFacts
from concur_proxy.observe.families import Family, HistogramFamily
from concur_proxy.observe.tallies import Histogram, Spent, Tallies
from concur_proxy.observe.turnlog import TurnLog


class Metrics:
    """``max_tenants``: how many tenants are told apart; 0: none."""

    def __init__(self, *, max_tenants: int = 0) -> None:
        self.tallies = Tallies(max_tenants)
        """What is counted as it happens."""
        self.turn: Callable[[TurnLog], None] = self.tallies.turn
        """Count an answered request."""
        self.record: Callable[[TurnRecord], None] = self.tallies.record
        """Count a turn that gave its lease back."""
        self.learn_models: Callable[[Iterable[str]], None] = self.tallies.learn_models
        """Tell models apart that an engine lists."""
        self.forget: Callable[[BackendId], None] = self.tallies.forget
        """Drop what was counted of a backend that is gone."""
        self.lagged: Callable[[float], None] = self.tallies.lag.observe
        """Count how many seconds late the event loop was."""
        self._facts: ProxyFacts | None = None
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def scraped(self, backend: BackendId, *, failed: bool) -> None:
        """Count a read of an engine's metrics."""
        self.tallies.scrapes[backend, failed] += 1

    def window_moved(self, backend: BackendId, before: float, after: float) -> None:
        """Count a change of a window."""
        self.tallies.moves[backend, "up" if after > before else "down"] += 1

    def spent(self, backend: BackendId) -> Spent:
        """Return the tokens that a backend's answers told of."""
        return self.tallies.spent.get(backend) or Spent()

    def recomputed(self, backend: BackendId) -> int:
        """Return the prompt tokens that should have been cached there and were not."""
        work = self.tallies.work.get(backend)
        return work.evicted if work is not None else 0

    def render(self, facts: ProxyFacts, accept: str = "") -> tuple[bytes, str]:
        """Return everything in a format that ``accept`` asks for, and the format's media type.

        OpenMetrics has trace ids beside the buckets of histograms.
        """
        self._facts = facts
        encode, media_type = choose_encoder(accept)
        return encode(self._registry), media_type

    def collect(self) -> Iterator[Metric]:
        """Yield all families: what makes this a collector of ``prometheus_client``."""
        if self._facts is None:
            return
        for family in FAMILIES:
            if isinstance(family, Family):
                yield _family(family, self._facts, self.tallies)
            else:
                yield _histograms(family, self.tallies)


def _family(family: Family, facts: ProxyFacts, tallies: Tallies) -> Metric:
    shape = CounterMetricFamily if family.type == "counter" else GaugeMetricFamily
    metric = shape(family.name, family.help, labels=family.labels, unit=_unit(family))
    for labels, value in family.read(facts, tallies):
        metric.add_metric(labels, value)
    return metric


def _unit(family: Family) -> str:
    """Return the unit where OpenMetrics lets one be told: at the end of the name."""
    return family.unit if family.name.removesuffix("_total").endswith(f"_{family.unit}") else ""


def _histograms(family: HistogramFamily, tallies: Tallies) -> Metric:
    metric = HistogramMetricFamily(family.name, family.help, labels=family.labels, unit=family.unit)
    for labels, histogram in family.read(tallies):
        metric.add_metric(labels, _buckets(histogram), histogram.total)
    return metric


def _buckets(histogram: Histogram) -> list[tuple[str, float] | tuple[str, float, Exemplar]]:
    traced = histogram.exemplars
    return [
        (end, count, Exemplar({"trace_id": traced[index][0]}, traced[index][1])) if index in traced else (end, count)
        for index, (end, count) in enumerate(histogram.buckets())
    ]
