"""What /metrics says of what has happened."""

from __future__ import annotations

import math
import platform
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from concur_proxy import __version__
from concur_proxy.control.condition import State
from concur_proxy.core.report import BackendSnapshot, GateSnapshot, HotLane
from concur_proxy.model import (
    AdmitWhy,
    BackendId,
    ColdLane,
    Outcome,
    PoolId,
    RefusalReason,
    SessionKey,
    Signals,
    TurnRecord,
    Usage,
)
from concur_proxy.observe.catalogue import FAMILIES, NAMES
from concur_proxy.observe.facts import EngineFacts, ProxyFacts, SharedFacts
from concur_proxy.observe.families import STATES
from concur_proxy.observe.metrics import Metrics
from concur_proxy.observe.tallies import MAX_MODELS, SECONDS
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
    cache_tokens=100_000,
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
    held_paused=3,
    longest_wait_s=12.5,
    hot_lanes={PoolId("default"): HotLane(ColdLane.HELD, 2.5)},
    cold_lane_changes={ColdLane.HELD: 2},
)
ENGINE = EngineFacts(
    signals=Signals(age_s=0.75, running=3, waiting=0, kv_usage=0.25, hit_rate=0.9, preemptions=2, rejections=0),
    state="resting",
    models=("m",),
    law_values={"congestion": 0.5},
    set_by_operator=True,
    connections_open=5,
    connections_idle=2,
    connection_retries=1,
    sent_bytes=300,
    received_bytes=4000,
)
FACTS = ProxyFacts(
    law="aimd",
    mode="enforce",
    stale_after_s=10,
    gate=GATE,
    engines={GPU: ENGINE},
    law_parameters={"usage_high": 0.5},
    requests_open=11,
    background_leases=1,
    lineage_sessions=7,
    lineage_bytes=9000,
    repeats={"sent_again": 3, "resumed": 2, "over_budget": 1},
    shared=SharedFacts(up=True, leads=True, replicas=3, claims=9, claims_late=2, moved=4, windows={GPU: 30.0}),
)
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
TRACE = "0af7651916cd43dd8448eb211c80319c"
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
    model="m",
    tenant="acme",
)
RECORD = TurnRecord(
    backend=GPU,
    session=SessionKey("n", "s"),
    outcome=Outcome.COMPLETED,
    arrived_at=0,
    admitted_at=0,
    finished_at=1,
    think_s=7.5,
    usage=Usage(100, 20, 30),
    expected_cached_tokens=90,
)


def page(metrics: Metrics, facts: ProxyFacts = FACTS, accept: str = "") -> str:
    return metrics.render(facts, accept)[0].decode()


def samples(metrics: Metrics, facts: ProxyFacts = FACTS) -> dict[tuple[str, ...], float]:
    """Read the page as Prometheus does; keys are name and label values in alphabetic order of the labels."""
    found = {}
    for family in text_string_to_metric_families(page(metrics, facts)):
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
    metrics = Metrics(max_tenants=1)
    metrics.learn_models(["m"])
    metrics.turn(TURN)
    metrics.record(RECORD)
    metrics.scraped(GPU, failed=True)
    metrics.window_moved(GPU, 10.0, 12.0)
    metrics.lagged(0.002)
    assert ours(samples(metrics)) == set(NAMES)


def test_facts_are_shown_as_they_are():
    metrics = Metrics()
    metrics.learn_models(["m"])
    found = samples(metrics)
    for key, value in {
        ("concur_build_info", "false", platform.python_version(), __version__): 1,
        ("concur_turns_held_paused",): 3,
        ("concur_pool_turns_held", "default"): 4,
        ("concur_longest_wait_seconds",): 12.5,
        ("concur_requests_open",): 11,
        ("concur_background_leases",): 1,
        ("concur_window_set_by_operator", GPU): 1,
        ("concur_law_value", GPU, "congestion"): 0.5,
        ("concur_law_parameter", "usage_high"): 0.5,
        ("concur_cache_tokens", GPU): 100_000,
        ("concur_backend_state", GPU, "resting"): 1,
        ("concur_backend_state", GPU, "up"): 0,
        ("concur_model_info", GPU, "m", "default"): 1,
        ("concur_engine_preemptions", GPU): 2,
        ("concur_engine_rejections", GPU): 0,
        ("concur_relay_bytes_total", GPU, "sent"): 300,
        ("concur_relay_bytes_total", GPU, "received"): 4000,
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
    for family in FAMILIES:
        assert family.name.startswith("concur_")
        assert family.name.removesuffix("_total").endswith(f"_{family.unit}" if family.unit else ""), family.name
        assert family.help.endswith(".")


def test_the_page_is_what_prometheus_expects():
    text, media_type = Metrics().render(FACTS)
    assert media_type.startswith("text/plain; version=0.0.4")
    assert "process_resident_memory_bytes" in text.decode()


def test_the_wait_in_the_gate_is_no_work_of_the_engine():
    metrics = Metrics()
    metrics.turn(replace(TURN, queued_s=9.0, first_token_s=9.5))
    found = samples(metrics)
    assert found["concur_time_to_first_token_seconds_sum", GPU, "chat"] == 9.5
    assert found["concur_engine_first_token_seconds_sum", GPU, "chat"] == 0.5


def test_lanes_have_their_own_waiting_times_and_refusals():
    metrics = Metrics()
    metrics.turn(TURN)
    metrics.turn(replace(TURN, cold=True, queued_s=70.0))
    metrics.turn(replace(TURN, outcome="queue_full", status=429, backend=None, queued_s=0.0))
    found = samples(metrics)
    assert [found["concur_lane_wait_seconds_count", lane] for lane in ("hot", "cold")] == [1, 1]
    assert [found["concur_lane_refusals_total", lane] for lane in ("hot", "cold")] == [1, 0]
    assert found["concur_lane_wait_seconds_sum", "cold"] == 70.0


def test_work_is_parted_into_useful_and_repeated():
    metrics = Metrics()
    metrics.record(RECORD)  # 70 of 100 prefilled, 60 of them again, 20 generated
    found = samples(metrics)
    assert found["concur_computed_tokens_total", GPU] == 90
    assert found["concur_useful_tokens_total", GPU] == 30
    assert found["concur_evicted_tokens_total", GPU] == metrics.recomputed(GPU) == 60
    assert found["concur_expected_cached_tokens_total", GPU] == 90
    assert found["concur_expected_hit_ratio", GPU] == 0.9


@given(st.lists(st.tuples(*(st.integers(0, 500),) * 3, st.none() | st.integers(0, 700)), min_size=1))
def test_all_work_is_useful_or_repeated(turns):
    metrics = Metrics()
    for prompt, completion, cached, expected in turns:
        usage = Usage(prompt, completion, min(cached, prompt))
        told = None if expected is None else min(expected, prompt)
        metrics.record(replace(RECORD, usage=usage, expected_cached_tokens=told))
    found = samples(metrics)
    useful, repeated = (found[f"concur_{name}_tokens_total", GPU] for name in ("useful", "evicted"))
    assert found["concur_computed_tokens_total", GPU] == useful + repeated
    assert min(useful, repeated) >= 0


def test_models_that_no_engine_lists_count_as_other():
    metrics = Metrics()
    metrics.learn_models(["m", *(f"adapter-{n}" for n in range(2 * MAX_MODELS))])
    for name in ("m", "chosen-by-client", "adapter-199"):
        metrics.turn(replace(TURN, model=name))
    found = samples(metrics)
    assert found["concur_model_requests_total", "m"] == 1
    assert found["concur_model_requests_total", "other"] == 2
    assert found["concur_model_tokens_total", "other", "cached"] == 160
    assert len([key for key in found if key[0] == "concur_model_requests_total"]) == MAX_MODELS + 1


def test_tenants_are_told_apart_where_somebody_asked_for_them_up_to_a_bound():
    quiet, metrics = Metrics(), Metrics(max_tenants=2)
    for name in ("a", "b", "c", "d", "a"):
        quiet.turn(replace(TURN, tenant=name))
        metrics.turn(replace(TURN, tenant=name))
    found = samples(metrics)
    counts = {key[1]: value for key, value in found.items() if key[0] == "concur_tenant_requests_total"}
    assert counts == {"a": 2, "b": 1, "other": 2}
    assert found["concur_tenant_queue_wait_seconds_total", "a"] == pytest.approx(0.1)
    assert not any("tenant" in key[0] for key in samples(quiet))


def test_a_traced_turn_leaves_its_trace_beside_the_bucket_that_it_fell_into():
    metrics = Metrics()
    metrics.turn(replace(TURN, traceparent=f"00-{TRACE}-b7ad6b7169203331-01"))
    metrics.turn(replace(TURN, total_s=0.3, traceparent=f"00-{TRACE[::-1]}-b7ad6b7169203331-00"))
    text, media_type = metrics.render(FACTS, OPENMETRICS)
    assert media_type.startswith("application/openmetrics-text")
    found = [
        (sample.labels["le"], sample.exemplar.labels["trace_id"], sample.exemplar.value)
        for family in openmetrics(text.decode())
        for sample in family.samples
        if sample.name == "concur_request_duration_seconds_bucket" and sample.exemplar
    ]
    assert found == [("2.5", TRACE, 1.5)]
    assert TRACE not in page(metrics)


@pytest.mark.parametrize(
    "traceparent",
    [
        "nonsense",
        f"00-{TRACE.upper()}-b7ad6b7169203331-01",
        f"ff-{TRACE}-b7ad6b7169203331-01",
        f"00-{'0' * 32}-b7ad6b7169203331-01",
        f'00-{TRACE}-b7ad6b7169203331-01"}} 1\n',
    ],
)
def test_what_is_no_trace_context_leaves_none(traceparent):
    metrics = Metrics()
    metrics.turn(replace(TURN, traceparent=traceparent))
    assert "trace_id" not in page(metrics, accept=OPENMETRICS)


def test_the_states_are_those_of_the_control_loop():
    assert set(STATES) >= {state.value for state in State}


def test_the_page_does_not_grow_with_what_clients_choose():
    def size(turns: int) -> int:
        metrics = Metrics(max_tenants=3)
        for n in range(turns):
            turn = replace(TURN, session=SessionKey("n", f"s-{n}"), model=f"m-{n}", tenant=f"t-{n}", request_id=str(n))
            metrics.turn(turn)
        return len(samples(metrics))

    assert size(10) == size(1000)
