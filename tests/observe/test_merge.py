"""Pages of several processes as one."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Gauge, Histogram
from prometheus_client import Counter as Counted
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read

from concur_proxy.observe.merge import merge

NAMES = st.text('ab {}"\\\n=,#\r\x0b\x0c\x1c\x85\u2028', min_size=1, max_size=6)


def registry(counts: dict[str, int]) -> CollectorRegistry:
    made = CollectorRegistry()
    counter = Counted("turns", "Turns. # HELP", ["who"], registry=made)
    histogram = Histogram("wait_seconds", "Waits.", registry=made)
    Gauge("up", "Up.", registry=made).set(1)
    for who, count in counts.items():
        counter.labels(who).inc(count)
        histogram.observe(count, {"trace_id": "ab"})
    return made


def samples(page: str, reader=read) -> Counter:
    return Counter(
        (sample.name, tuple(sorted(sample.labels.items())), sample.value)
        for family in reader(page)
        for sample in family.samples
        if not sample.name.endswith("_created")
    )


@given(st.lists(st.dictionaries(NAMES, st.integers(0, 9), max_size=3), min_size=1, max_size=3))
def test_nothing_is_lost_and_each_sample_says_whose_it_is(workers):
    registries = list(map(registry, workers))
    for write, reader in ((generate_latest, read), (openmetrics, read_openmetrics)):
        pages = {str(number): write(each).decode() for number, each in enumerate(registries)}
        merged = merge(pages)
        assert samples(merged, reader) == Counter(
            {
                (name, tuple(sorted((*labels, ("worker", worker)))), value): count
                for worker, page in pages.items()
                for (name, labels, value), count in samples(page, reader).items()
            }
        )
        assert merged.count("# TYPE up ") == 1
        assert merged.endswith("# EOF\n") == (write is openmetrics)


def test_exemplars_stay_with_their_buckets():
    page = openmetrics(registry({"a": 1})).decode()
    kept = [
        sample.exemplar.labels
        for family in read_openmetrics(merge({"0": page, "1": page}))
        for sample in family.samples
        if sample.exemplar
    ]
    assert kept == [{"trace_id": "ab"}] * 2
