import math

from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.core.signals import SignalTracker
from concur_proxy.engines.base import COUNTERS, EngineSample
from concur_proxy.model import BackendId, Outcome, SessionKey, TurnRecord, Usage


def turn(prompt, cached, completion=10):
    return TurnRecord(
        backend=BackendId("a"),
        session=SessionKey("", "s"),
        outcome=Outcome.COMPLETED,
        arrived_at=0.0,
        admitted_at=0.0,
        finished_at=1.0,
        usage=Usage(prompt, completion, cached),
    )


def test_before_anything_is_seen_all_is_unknown():
    signals = SignalTracker().take(now=5.0)
    assert signals.age_s == math.inf
    assert signals.kv_usage is signals.hit_rate is signals.preemptions is signals.interval_s is None
    assert signals.rejections == 0


def test_gauges_and_age_come_from_the_newest_sample():
    tracker = SignalTracker()
    tracker.sample(EngineSample(at=1.0, running=3, waiting=2, kv_usage_max=0.9, kv_usage_mean=0.5))
    tracker.sample(EngineSample(at=2.0, running=4, evictable_tokens=7))
    signals = tracker.take(now=4.5)
    assert (signals.running, signals.waiting, signals.evictable_tokens, signals.age_s) == (4, None, 7, 2.5)
    assert signals.kv_usage is None


def test_the_brake_goes_by_the_fullest_pool():
    tracker = SignalTracker()
    tracker.sample(EngineSample(at=1.0, kv_usage_max=0.9, kv_usage_mean=0.5))
    assert tracker.take(now=1.0).kv_usage == 0.9


def test_deltas_cover_everything_since_the_last_take_once():
    tracker = SignalTracker()
    tracker.sample(EngineSample(at=0.0, preemptions=10, prompt_tokens=100, steps=1))
    tracker.take(now=0.0)
    tracker.sample(EngineSample(at=1.0, preemptions=11, prompt_tokens=150, steps=5))
    tracker.sample(EngineSample(at=2.5, preemptions=13, prompt_tokens=300, steps=9))
    assert tracker.peek(now=3.0) == tracker.peek(now=3.0)
    signals = tracker.take(now=3.0)
    assert (signals.interval_s, signals.preemptions, signals.prompt_tokens, signals.steps) == (2.5, 3, 200, 8)
    again = tracker.take(now=3.0)
    assert again.interval_s is again.preemptions is again.prompt_tokens is again.steps is None
    assert again.age_s == 0.5


def test_hit_rate_is_that_of_the_interval():
    tracker = SignalTracker()
    tracker.sample(EngineSample(at=0.0, prefix_queries=1000, prefix_hits=1000))
    tracker.sample(EngineSample(at=1.0, prefix_queries=1100, prefix_hits=1025))
    assert tracker.take(now=1.0).hit_rate == 0.25
    tracker.sample(EngineSample(at=2.0, prefix_queries=1100, prefix_hits=1025))
    assert tracker.take(now=2.0).hit_rate is None


def test_turn_records_tell_the_hit_rate_where_the_engine_does_not():
    tracker = SignalTracker()
    tracker.record(turn(100, 80))
    tracker.record(turn(100, 40))
    tracker.record(turn(500, None))
    assert tracker.take(now=1.0).hit_rate == 0.6
    assert tracker.take(now=2.0).hit_rate is None


def test_the_engines_own_counters_go_before_turn_records():
    tracker = SignalTracker()
    tracker.sample(EngineSample(at=0.0, prefix_queries=0, prefix_hits=0))
    tracker.sample(EngineSample(at=1.0, prefix_queries=100, prefix_hits=10))
    tracker.record(turn(100, 90))
    assert tracker.take(now=1.0).hit_rate == 0.1


def test_counters_that_go_back_are_a_restart_and_give_no_deltas():
    tracker = SignalTracker()
    assert not tracker.sample(EngineSample(at=0.0, prompt_tokens=1000, preemptions=5))
    assert not tracker.sample(EngineSample(at=1.0, prompt_tokens=1100, preemptions=5))
    assert tracker.sample(EngineSample(at=2.0, prompt_tokens=40, preemptions=9))
    signals = tracker.take(now=2.0)
    assert signals.prompt_tokens is signals.preemptions is signals.interval_s is None
    assert not tracker.sample(EngineSample(at=3.0, prompt_tokens=100, preemptions=9))
    assert tracker.take(now=3.0).prompt_tokens == 60


def test_another_start_time_is_a_restart_even_where_counters_are_higher():
    tracker = SignalTracker()
    tracker.sample(EngineSample(at=0.0, prompt_tokens=10, started_at=100.0))
    assert tracker.sample(EngineSample(at=60.0, prompt_tokens=500, started_at=130.0))
    assert tracker.take(now=60.0).prompt_tokens is None


def test_a_restart_is_told_once_also_where_a_counter_is_born_later():
    tracker = SignalTracker()
    tracker.sample(EngineSample(at=0.0, prompt_tokens=1000, preemptions=500))
    assert tracker.sample(EngineSample(at=1.0, prompt_tokens=10))
    assert not tracker.sample(EngineSample(at=2.0, prompt_tokens=20, preemptions=2))
    assert tracker.take(now=2.0).preemptions == 2


def test_a_counter_is_born_at_zero():
    tracker = SignalTracker()
    tracker.sample(EngineSample(at=0.0, prompt_tokens=10))
    tracker.sample(EngineSample(at=1.0, prompt_tokens=20, preemptions=2))
    assert tracker.take(now=1.0).preemptions == 2


def test_counters_after_a_page_without_any_are_not_taken_for_growth():
    tracker = SignalTracker()
    tracker.sample(EngineSample(at=0.0, running=3))
    tracker.sample(EngineSample(at=1.0, running=3, prompt_tokens=10**9))
    assert tracker.take(now=1.0).prompt_tokens is None


def test_a_counter_that_vanishes_for_one_page_comes_back_where_it_was():
    tracker = SignalTracker()
    tracker.sample(EngineSample(at=0.0, prompt_tokens=10, preemptions=500))
    tracker.sample(EngineSample(at=1.0, prompt_tokens=20))
    assert tracker.take(now=1.0).preemptions is None
    tracker.sample(EngineSample(at=2.0, prompt_tokens=30, preemptions=501))
    assert tracker.take(now=2.0).preemptions == 1


def test_capacity_is_kept_when_a_page_does_not_tell_it():
    tracker = SignalTracker()
    tracker.sample(EngineSample(at=0.0, capacity_tokens=5000))
    tracker.sample(EngineSample(at=1.0))
    assert tracker.take(now=1.0).capacity_tokens == 5000


def test_a_sample_that_is_not_newer_changes_nothing():
    tracker = SignalTracker()
    tracker.sample(EngineSample(at=2.0, running=2, prompt_tokens=10))
    assert not tracker.sample(EngineSample(at=1.0, running=1, prompt_tokens=5))
    assert tracker.take(now=2.0).running == 2


def test_refusals_are_told_at_once_and_not_again_by_the_engines_counter():
    tracker = SignalTracker()
    tracker.sample(EngineSample(at=0.0, rejections=100))
    tracker.refused()
    tracker.refused()
    assert tracker.take(now=0.5).rejections == 2
    tracker.sample(EngineSample(at=1.0, rejections=102))
    assert tracker.take(now=1.0).rejections == 0


def test_refusals_of_other_clients_come_on_top():
    tracker = SignalTracker()
    tracker.sample(EngineSample(at=0.0, rejections=100))
    tracker.refused()
    tracker.sample(EngineSample(at=1.0, rejections=105))
    assert tracker.take(now=1.0).rejections == 5
    tracker.refused()
    assert tracker.take(now=1.5).rejections == 1
    tracker.sample(EngineSample(at=2.0, rejections=106))
    assert tracker.take(now=2.0).rejections == 0


counters = st.one_of(st.none(), st.integers(0, 1000).map(float))
samples = st.lists(st.fixed_dictionaries(dict.fromkeys(COUNTERS, counters)), max_size=8)


@given(samples, st.lists(st.booleans(), min_size=8, max_size=8))
def test_deltas_are_never_negative_and_rates_are_shares(pages, takes):
    tracker = SignalTracker()
    for at, (fields, take) in enumerate(zip(pages, takes, strict=False)):
        tracker.sample(EngineSample(at=float(at), **fields))
        signals = tracker.take(now=float(at)) if take else tracker.peek(now=float(at))
        for name in ("preemptions", "requests", "rejections", "prompt_tokens", "generation_tokens", "steps"):
            assert (getattr(signals, name) or 0) >= 0
        assert signals.hit_rate is None or 0 <= signals.hit_rate <= 1


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=20))
def test_all_growth_is_handed_out_exactly_once(steps):
    tracker = SignalTracker()
    value, told, spans = 0, 0.0, 0.0
    tracker.sample(EngineSample(at=0.0, prompt_tokens=0))
    for at, (growth, take) in enumerate(steps, start=1):
        value += growth
        tracker.sample(EngineSample(at=float(at), prompt_tokens=value))
        if take:
            signals = tracker.take(now=float(at))
            told += signals.prompt_tokens or 0
            spans += signals.interval_s or 0
    last = tracker.take(now=100.0)
    assert told + (last.prompt_tokens or 0) == value
    assert spans + (last.interval_s or 0) == len(steps)
