"""What /metrics says of what has happened."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from concur_proxy import __version__
from concur_proxy.core.report import BackendSnapshot, GateSnapshot
from concur_proxy.model import (
    AdmitWhy,
    BackendId,
    Outcome,
    PoolId,
    RefusalReason,
    SessionKey,
    Signals,
    TurnRecord,
    Usage,
)
from concur_proxy.observe.facts import EngineFacts, ProxyFacts
from concur_proxy.observe.metrics import COUNTERS, GAUGES, HISTOGRAMS, NAMES, Metrics
from concur_proxy.observe.tallies import SECONDS
from concur_proxy.observe.turnlog import TurnLog
from concur_proxy.windows.base import Unit

GPU = BackendId("gpu:8000")
PLACES = BackendSnapshot(
    id=GPU,
    pool=PoolId("default"),
    up=True,
    unit=Unit.SESSIONS,
    window=12.5,
    minimum=1,
    maximum=math.inf,
    hard=True,
    active=5,
    running=4,
    idle=2,
    held=4,
    footprint_tokens=40_000,
    capacity_tokens=131_072,
    cached_tokens=0,
    expected_cached_tokens=0,
)
GATE = GateSnapshot(
    arrived=20,
    admitted=12,
    running=4,
    finished={},
    held=4,
    refused={RefusalReason.QUEUE_TIMEOUT: 1},
    abandoned=3,
    admitted_by={AdmitWhy.WINDOW: 10, AdmitWhy.WARM: 2},
    requeued=7,
    paused=6,
    resumed=5,
    reclaimed=8,
    leases_expired=1,
    sessions=9,
    backends={GPU: PLACES},
)
ENGINE = EngineFacts(
    signals=Signals(age_s=0.75, running=3, waiting=0, kv_usage=0.25, hit_rate=0.9),
    connections_open=5,
    connections_idle=2,
    connection_retries=1,
)
FACTS = ProxyFacts(law="aimd", mode="enforce", stale_after_s=10, gate=GATE, engines={GPU: ENGINE})
TURN = TurnLog(
    request_id="r",
    method="POST",
    path="/v1/chat/completions",
    kind="chat",
    status=200,
    outcome="completed",
    total_s=1.5,
    session=SessionKey("n", "chosen-by-client"),
    backend=GPU,
    queued_s=0.05,
    first_token_s=0.2,
    usage=Usage(prompt_tokens=100, completion_tokens=20, cached_tokens=80),
)
RECORD = TurnRecord(
    backend=GPU,
    session=SessionKey("n", "s"),
    outcome=Outcome.COMPLETED,
    arrived_at=0,
    admitted_at=0,
    finished_at=1,
    usage=Usage(100, 20, 30),
    expected_cached_tokens=90,
)


def samples(metrics: Metrics, facts: ProxyFacts = FACTS) -> dict[tuple[str, ...], float]:
    """Read the page as Prometheus does; keys are name and label values in alphabetic order of the labels."""
    found = {}
    for family in text_string_to_metric_families(metrics.render(facts).decode()):
        for sample in family.samples:
            found[sample.name, *(value for _, value in sorted(sample.labels.items()))] = sample.value
    return found


def ours(found) -> set[str]:
    names = set()
    for name, *_ in found:
        if name.startswith("concur_"):
            names.add(re.sub(r"_(bucket|sum|count)$", "", name))
    return names


def test_every_metric_has_samples_once_everything_has_happened():
    metrics = Metrics()
    metrics.turn(TURN)
    metrics.record(RECORD)
    metrics.scraped(GPU, failed=True)
    metrics.window_moved(GPU, 10.0, 12.0)
    assert ours(samples(metrics)) == set(NAMES)


def test_facts_are_shown_as_they_are():
    found = samples(Metrics())
    for key, value in {
        ("concur_build_info", __version__): 1,
        ("concur_policy_info", "aimd", "enforce"): 1,
        ("concur_turns_arrived_total",): 20,
        ("concur_turns_admitted_total", "window"): 10,
        ("concur_turns_admitted_total", "warm"): 2,
        ("concur_turns_admitted_total", "forced"): 0,
        ("concur_turns_refused_total", "queue_timeout"): 1,
        ("concur_turns_refused_total", "no_backend"): 0,
        ("concur_turns_abandoned_total",): 3,
        ("concur_turns_requeued_total",): 7,
        ("concur_turns_held",): 4,
        ("concur_turns_running", GPU): 4,
        ("concur_sessions_known",): 9,
        ("concur_session_pauses_total",): 6,
        ("concur_session_resumptions_total",): 5,
        ("concur_places_reclaimed_total",): 8,
        ("concur_lease_expiries_total",): 1,
        ("concur_backend_up", GPU): 1,
        ("concur_sessions_active", GPU): 5,
        ("concur_sessions_idle", GPU): 2,
        ("concur_window", GPU, "sessions"): 12.5,
        ("concur_window_min", GPU): 1,
        ("concur_window_max", GPU): math.inf,
        ("concur_window_hard", GPU): 1,
        ("concur_footprint_tokens", GPU): 40_000,
        ("concur_capacity_tokens", GPU): 131_072,
        ("concur_kv_usage_ratio", GPU): 0.25,
        ("concur_engine_hit_ratio", GPU): 0.9,
        ("concur_engine_running", GPU): 3,
        ("concur_engine_waiting", GPU): 0,
        ("concur_signal_age_seconds", GPU): 0.75,
        ("concur_signal_stale", GPU): 0,
        ("concur_upstream_connections", GPU, "busy"): 3,
        ("concur_upstream_connections", GPU, "idle"): 2,
        ("concur_connection_retries_total", GPU): 1,
    }.items():
        assert found[key] == value, key


def test_what_is_unknown_has_no_sample():
    gate = replace(GATE, backends={GPU: replace(PLACES, capacity_tokens=None)})
    blind = replace(FACTS, gate=gate, engines={GPU: EngineFacts(Signals(age_s=math.inf))})
    found = samples(Metrics(), blind)
    for name in ("capacity_tokens", "kv_usage_ratio", "engine_hit_ratio", "engine_running", "signal_age_seconds"):
        assert (f"concur_{name}", GPU) not in found
    assert ("concur_turn_hit_ratio", GPU) not in found
    assert found["concur_signal_stale", GPU] == 1


def test_requests_are_counted_by_what_is_fixed():
    metrics = Metrics()
    metrics.turn(TURN)
    metrics.turn(TURN)
    metrics.turn(replace(TURN, status=404, outcome="unknown_path", kind="other", backend=None, usage=None))
    found = samples(metrics)
    assert found["concur_requests_total", GPU, "chat", "completed", "2xx"] == 2
    assert found["concur_requests_total", "", "other", "unknown_path", "4xx"] == 1
    assert found["concur_completion_tokens_total", GPU] == 40
    assert not any("chosen-by-client" in key for key in found)


def test_durations_fall_into_buckets():
    metrics = Metrics()
    for queued in (0.0, 0.01, 0.011, 10_000.0):
        metrics.turn(replace(TURN, queued_s=queued))
    metrics.turn(replace(TURN, queued_s=None))
    found = samples(metrics)
    key = ("concur_queue_wait_seconds_bucket", GPU, "chat")
    assert [found[*key, end] for end in ("0.01", "0.025", "600.0", "+Inf")] == [2, 3, 3, 4]
    assert found["concur_queue_wait_seconds_count", GPU, "chat"] == 4
    assert found["concur_queue_wait_seconds_sum", GPU, "chat"] == pytest.approx(10_000.021)
    assert found["concur_request_duration_seconds_count", GPU, "chat"] == 5
    assert len([key for key in found if key[0] == "concur_queue_wait_seconds_bucket"]) == len(SECONDS) + 1


def test_what_never_waits_has_no_waiting_times():
    metrics = Metrics()
    metrics.turn(replace(TURN, kind="embeddings", queued_s=None, first_token_s=None))
    found = samples(metrics)
    assert found["concur_request_duration_seconds_count", GPU, "embeddings"] == 1
    assert ("concur_queue_wait_seconds_count", GPU, "embeddings") not in found


def test_only_answers_that_tell_cached_tokens_count_for_the_hit_rate():
    metrics = Metrics()
    metrics.turn(TURN)
    metrics.turn(replace(TURN, usage=Usage(prompt_tokens=1000, completion_tokens=1)))
    found = samples(metrics)
    assert found["concur_prompt_tokens_total", GPU] == 1100
    assert found["concur_measured_prompt_tokens_total", GPU] == 100
    assert found["concur_cached_prompt_tokens_total", GPU] == 80
    assert found["concur_turn_hit_ratio", GPU] == pytest.approx(0.8)


def test_the_recent_hit_rate_forgets():
    metrics = Metrics()
    for cached in [100] * 300 + [0] * 300:
        metrics.turn(replace(TURN, usage=Usage(100, 1, cached)))
    found = samples(metrics)
    assert found["concur_turn_hit_ratio", GPU] < 0.01
    assert found["concur_cached_prompt_tokens_total", GPU] / found["concur_measured_prompt_tokens_total", GPU] == 0.5


def test_what_should_have_been_cached_counts_as_evicted():
    metrics = Metrics()
    metrics.record(RECORD)
    metrics.record(replace(RECORD, usage=Usage(100, 20, 95)))
    metrics.record(replace(RECORD, usage=Usage(100, 20), outcome=Outcome.CANCELLED))
    metrics.record(replace(RECORD, expected_cached_tokens=None))
    found = samples(metrics)
    assert found["concur_evicted_tokens_total", GPU] == 60
    assert found["concur_turns_finished_total", GPU, "completed"] == 3
    assert found["concur_turns_finished_total", GPU, "cancelled"] == 1


def test_ids_that_were_passed_over_are_counted():
    metrics = Metrics()
    metrics.turn(TURN)
    metrics.turn(replace(TURN, session_rejected=True))
    assert samples(metrics)["concur_session_ids_rejected_total",] == 1


def test_scrapes_are_counted_by_result():
    metrics = Metrics()
    for failed in (True, False, True):
        metrics.scraped(GPU, failed=failed)
    found = samples(metrics)
    assert found["concur_scrapes_total", GPU, "failed"] == 2
    assert found["concur_scrapes_total", GPU, "ok"] == 1


def test_changes_of_a_window_are_counted_by_direction():
    metrics = Metrics()
    for before, after in ((8.0, 10.0), (10.0, 5.0), (5.0, 6.0)):
        metrics.window_moved(GPU, before, after)
    for _ in range(2):
        found = samples(metrics)
    assert found["concur_window_changes_total", GPU, "up"] == 2
    assert found["concur_window_changes_total", GPU, "down"] == 1


def test_names_have_the_prefix_and_their_unit():
    assert len(set(NAMES)) == len(NAMES)
    assert all(name.startswith("concur_") for name in NAMES)
    assert all(family.name.endswith("_total") for family in COUNTERS)
    assert not any(family.name.endswith("_total") for family in GAUGES)
    assert all(family.name.endswith("_seconds") for family in HISTOGRAMS)


def test_the_page_is_what_prometheus_expects():
    assert Metrics.content_type.startswith("text/plain; version=0.0.4")
    assert "process_resident_memory_bytes" in Metrics().render(FACTS).decode()
