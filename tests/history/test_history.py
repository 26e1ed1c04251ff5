"""A bounded day: what is kept, what is forgotten, and what thinning and adding up may not change."""

from __future__ import annotations

import math
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.history import Counters, History, Meter, Moment, Ring
from concur_proxy.history.history import INTERVAL_S, SPAN_S
from concur_proxy.history.moment import altogether, mean

COUNTS = st.floats(0, 1e6, width=32)
MOMENTS = st.tuples(COUNTS, COUNTS, COUNTS).map(
    lambda three: Moment(active=three[0], held=three[1], threshold=three[2])
)


def same(one: Moment, other: Moment) -> bool:
    return all(a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(one, other, strict=True))


@given(st.lists(st.tuples(st.floats(0.1, 100), MOMENTS), max_size=60), st.integers(1, 20), st.floats(0, 2000))
def test_a_ring_keeps_the_newest_in_order(steps, limit, after):
    ring, model, now = Ring(limit), deque(maxlen=limit), 0.0
    for step, moment in steps:
        now += step
        ring.add(now, moment)
        model.append((now, moment))
    kept = list(ring.between(after))
    wanted = [(at, moment) for at, moment in model if at > after]
    assert [at for at, _ in kept] == [at for at, _ in wanted]
    assert all(same(a, b) for (_, a), (_, b) in zip(kept, wanted, strict=True))
    assert len(ring) == len(model) <= limit


def test_time_does_not_go_back():
    ring = Ring(2)
    ring.add(1.0, Moment())
    with pytest.raises(ValueError, match="cannot follow"):
        ring.add(1.0, Moment())


@given(st.lists(MOMENTS, min_size=1, max_size=50), st.integers(1, 60))
def test_thinning_keeps_order_and_bounds(moments, points):
    ring = Ring(100)
    for number, moment in enumerate(moments, 1):
        ring.add(10.0 * number, moment)
    end = 10.0 * len(moments)
    thin = ring.thinned(0.0, end, points)
    times = [at for at, _ in thin]
    assert times == sorted(set(times))
    assert 1 <= len(thin) <= min(points, len(moments))
    assert times[-1] == end
    held = [moment.held for moment in moments]
    assert all(min(held) - 1 <= moment.held <= max(held) + 1 for _, moment in thin)
    if points >= len(moments):
        assert [moment.held for _, moment in thin] == held


def test_a_part_is_the_mean_of_what_is_known_in_it():
    ring = Ring(9)
    for at, usage in enumerate([0.25, math.nan, 0.75], 1):
        ring.add(float(at), Moment(kv_usage=usage, window_sessions=math.inf))
    ((at, moment),) = ring.thinned(0.0, 3.0, 1)
    assert (at, moment.kv_usage, moment.window_sessions) == (3.0, 0.5, math.inf)
    assert math.isnan(moment.held)


def test_backends_together_are_sums_and_a_weighted_usage():
    small = Moment(active=1, window_sessions=2, kv_usage=0.2, capacity_tokens=100, hit_tokens_per_s=0,
                   queried_tokens_per_s=10, congestion=1)  # fmt: skip
    large = small._replace(kv_usage=0.6, capacity_tokens=300, hit_tokens_per_s=30, queried_tokens_per_s=30)
    both = altogether([small, large])
    assert (both.active, both.window_sessions, both.capacity_tokens) == (2, 4, 400)
    assert both.kv_usage == pytest.approx(0.5)
    assert both.hit_rate == pytest.approx(0.75)
    assert math.isnan(both.congestion)
    assert math.isnan(altogether([small._replace(held=3), large._replace(held=3)]).held)
    assert same(altogether([small]), small)
    assert altogether([small, large._replace(window_sessions=math.inf)]).window_sessions == math.inf


def test_usage_where_a_cache_has_an_unknown_size():
    assert altogether([Moment(kv_usage=0.2, capacity_tokens=1), Moment(kv_usage=0.4)]).kv_usage == pytest.approx(0.3)
    assert math.isnan(altogether([Moment(), Moment()]).kv_usage)
    assert same(altogether([]), Moment())


def test_the_hit_rate_is_unknown_where_no_prompt_was_processed():
    assert math.isnan(Moment(queried_tokens_per_s=0, hit_tokens_per_s=0).hit_rate)
    assert math.isnan(Moment().hit_rate)
    assert mean([Moment(queried_tokens_per_s=90, hit_tokens_per_s=90), Moment(queried_tokens_per_s=10, hit_tokens_per_s=0)]).hit_rate == 0.9  # noqa: E501  # fmt: skip


def test_a_meter_tells_rates_and_forgets_a_time_with_a_restart():
    meter = Meter()
    assert math.isnan(meter.read(Counters(generated_tokens=100), now=5.0).generated)
    rates = meter.read(Counters(generated_tokens=150, prompt_tokens=9), now=15.0)
    assert rates.generated == 5.0
    assert math.isnan(rates.prompt)
    assert math.isnan(meter.read(Counters(generated_tokens=10), now=25.0).generated)
    assert meter.read(Counters(generated_tokens=20), now=35.0).generated == 1.0


def test_a_backend_that_is_gone_is_remembered_for_a_day_only():
    history = History(span_s=30.0, interval_s=10.0)
    history.record({"gone": Moment(active=1), "here": Moment(active=2)}, now=10.0)
    for now in (20.0, 30.0):
        history.record({"here": Moment(active=2)}, now=now)
    assert history.backends == ["gone", "here"]
    history.record({"here": Moment(active=2)}, now=40.0)
    assert history.backends == ["here"]
    assert history.ring("gone") is None
    assert [moment.active for _, moment in history.total.between(0.0)] == [2, 2, 2]


def test_backends_that_come_and_go_do_not_fill_the_memory():
    history = History(backends=3)
    for number in range(50):
        history.record({"stays": Moment(), f"pod-{number}": Moment()}, now=float(number + 1))
    assert history.backends == ["pod-48", "pod-49", "stays"]


def test_a_day_of_one_backend_takes_less_than_a_megabyte():
    history = History()
    for number in range(round(SPAN_S / INTERVAL_S) + 10):
        history.record({"a": Moment(active=1)}, now=INTERVAL_S * (number + 1))
    ring = history.ring("a")
    assert len(ring) == 8640
    assert sum(column.itemsize * len(column) for column in (ring._at, *ring._columns)) == 8640 * (8 + 4 * 16)
