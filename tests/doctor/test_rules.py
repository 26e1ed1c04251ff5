"""Each rule: what it finds, what it says to do, and that it is silent where all is well."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from concur_proxy.admin.reports import BackendReport, SessionState, SignalsReport, StatusReport
from concur_proxy.doctor import engines, proxies
from concur_proxy.doctor.engines import Seen
from concur_proxy.doctor.facts import EngineFacts, Limits, Warmth
from concur_proxy.doctor.findings import Weight
from concur_proxy.engines.base import EngineSample

DOCUMENT = Path(__file__).parents[2] / "docs" / "doctor.md"
SAMPLE = EngineSample(at=1.0, running=3, waiting=0, kv_usage_max=0.3, capacity_tokens=16384, asleep=False)
FULL = replace(SAMPLE, waiting=5, running=8)
WELL = EngineFacts(
    name="gpu",
    url="http://gpu",
    kind="vllm",
    samples=(SAMPLE,) * 3,
    limits=Limits(prefix_caching=True, max_running=256),
    model="m",
    warmth=Warmth(prompt_tokens=600, tells=True, cached_tokens=512),
)
UNSURE = Limits()
BACKEND = BackendReport(
    name="gpu",
    url="http://gpu",
    state="up",
    engine="vllm",
    unit="sessions",
    window=16,
    window_min=1,
    window_max=None,
    running=0,
    idle=0,
    held=0,
    footprint_tokens=0,
    capacity_tokens=16384,
    keepalive_s=4,
    signals=SignalsReport(age_s=0.5, stale=False),
)
PROXY = StatusReport(
    version="1",
    uptime_s=60,
    mode="enforce",
    law="meanfield",
    held=0,
    sessions={SessionState.IDLE: 3},
    turns={"admitted": 100},
    backends=[BACKEND],
)


def test_nothing_is_said_of_the_healthy():
    assert engines.judge(Seen(WELL, window_sessions=16, capacity_known=True)) == []
    assert engines.judge(Seen(WELL)) == []
    assert proxies.judge(PROXY) == []


def engine(**facts):
    return Seen(replace(WELL, **facts))


@pytest.mark.parametrize(
    ("seen", "code", "weight", "remedy"),
    [
        (engine(metrics_problem="/metrics is missing (404)", samples=(), limits=Limits(prefix_caching=True)),
         "metrics-off", Weight.MISSING, "without --disable-log-stats"),
        (engine(kind="sglang", metrics_problem="404"), "metrics-off", Weight.MISSING, "--enable-metrics"),
        (engine(kind=None, metrics_problem="404"), "metrics-off", Weight.MISSING, "llama-server with --metrics"),
        (engine(samples=(replace(SAMPLE, asleep=True),)), "asleep", Weight.WRONG, "/wake_up"),
        (engine(models_problem="/v1/models answers 500", model=None), "models-unknown", Weight.WRONG, "/v1/models"),
        (engine(model=None), "no-model", Weight.WRONG, "load one"),
        (engine(limits=Limits(prefix_caching=False)), "prefix-caching-off", Weight.WRONG, "--enable-prefix-caching"),
        (engine(kind="sglang", limits=Limits(prefix_caching=False)),
         "prefix-caching-off", Weight.WRONG, "without --disable-radix-cache"),
        (engine(limits=UNSURE, warmth=Warmth(None, 600, tells=True)), "prefix-caching-off", Weight.WRONG, "prefix"),
        (engine(warmth=Warmth(None, 600)), "cached-tokens-untold", Weight.MISSING, "--enable-prompt-tokens-details"),
        (engine(kind="sglang", warmth=Warmth(None, 600)),
         "cached-tokens-untold", Weight.MISSING, "--enable-cache-report"),
        (engine(warmth=Warmth("/v1/completions answers 500")), "no-answer", Weight.WRONG, "--no-requests"),
        (engine(samples=(replace(SAMPLE, capacity_tokens=None),)), "capacity-unknown", Weight.MISSING, "kv_tokens"),
        (Seen(replace(WELL, limits=Limits(True, 8)), window_sessions=16.5),
         "few-seats", Weight.WRONG, "--max-num-seqs"),
        (engine(kind="sglang", limits=UNSURE, samples=(FULL,) * 3),
         "few-seats", Weight.WRONG, "--max-running-requests"),
        (engine(closes_after_s=2.0), "keepalive-short", Weight.WRONG, "upstream.keepalive_s below 2.0"),
    ],
)  # fmt: skip
def test_what_ails_an_engine_is_found_with_its_remedy(seen, code, weight, remedy):
    (found,) = [finding for finding in engines.judge(seen) if finding.code == code]
    assert (found.about, found.weight) == ("gpu", weight)
    assert remedy in found.remedy
    assert {finding.code for finding in engines.judge(seen)} <= {code, "capacity-unknown"}


@pytest.mark.parametrize(
    "seen",
    [
        Seen(replace(WELL, limits=Limits(True, 16)), window_sessions=16.7),  # a part of a session is no session
        engine(samples=(FULL, SAMPLE, FULL)),  # it waited in moments only
        engine(limits=UNSURE, samples=(FULL, FULL, replace(FULL, running=9))),  # more can run
        engine(limits=UNSURE, samples=(replace(FULL, kv_usage_max=0.97),) * 3),  # it waits for room in the cache
        engine(closes_after_s=5.0),
        engine(kind="none", metrics_problem="no metrics are read of this engine"),
        Seen(replace(WELL, samples=(replace(SAMPLE, capacity_tokens=None),)), capacity_known=True),
        engine(limits=UNSURE, warmth=None),
    ],
)
def test_what_only_looks_like_it_is_passed_over(seen):
    assert engines.judge(seen) == []


def proxy(**fields):
    return PROXY.model_copy(update=fields)


def behind(**fields):
    return proxy(backends=[BACKEND.model_copy(update=fields)])


@pytest.mark.parametrize(
    ("status", "code", "weight", "remedy"),
    [
        (proxy(mode="observe"), "observes", Weight.NOTE, "gate.mode"),
        (proxy(law="unlimited"), "unlimited", Weight.NOTE, "control.law"),
        (proxy(backends=[]), "no-backend", Weight.WRONG, "--backend"),
        (proxy(sessions={}), "no-sessions", Weight.WRONG, "X-Session-ID"),
        (behind(state="lost", problem="connection refused"), "backend-down", Weight.WRONG, "http://gpu"),
        (behind(state="draining"), "backend-down", Weight.NOTE, "/concur/backends/gpu/undrain"),
        (behind(signals=SignalsReport(age_s=60, stale=True)), "metrics-stale", Weight.WRONG, "metrics_url"),
        (behind(signals=SignalsReport(age_s=None, stale=True)), "metrics-stale", Weight.WRONG, "metrics_url"),
        (behind(connection_retries=5), "connections-closed", Weight.WRONG, "upstream.keepalive_s below 4"),
        (behind(hard=True, held=9, window=8, window_max=8), "capped", Weight.NOTE, "control.window_max"),
    ],
)
def test_what_ails_a_proxy_is_found_with_its_remedy(status, code, weight, remedy):
    (found,) = proxies.judge(status)
    assert (found.code, found.weight) == (code, weight)
    assert remedy in found.remedy


@pytest.mark.parametrize(
    "status",
    [
        proxy(sessions={}, turns={"admitted": 3}),
        behind(connection_retries=1),
        behind(engine="none", signals=SignalsReport(age_s=None, stale=True)),
        behind(hard=True, held=0, window=8, window_max=8),
        behind(hard=True, held=9, window=5, window_max=8),
    ],
)
def test_a_proxy_is_not_blamed_for_what_is_meant_to_be(status):
    assert proxies.judge(status) == []


def test_every_rule_is_shown_at_work():
    """The table above has each code of each rule."""
    source = {name for module in (engines, proxies) for name in _codes(module)}
    shown = {
        mark.args[1][row][1] for mark in _marks() for row in range(len(mark.args[1])) if len(mark.args[1][row]) == 4
    }
    assert source == shown


def test_every_finding_is_documented():
    rows = re.findall(r"^\| (`[^|]+`) \| (?:wrong|missing|note)", DOCUMENT.read_text(), flags=re.MULTILINE)
    assert {code for row in rows for code in re.findall(r"`([a-z-]+)`", row)} == {*KNOWN, "not-asked"}


def _codes(module):
    return {
        name for rule in module.RULES for name in rule.__code__.co_consts if isinstance(name, str) and name in KNOWN
    }


def _marks():
    tests = (test_what_ails_an_engine_is_found_with_its_remedy, test_what_ails_a_proxy_is_found_with_its_remedy)
    return [mark for test in tests for mark in test.pytestmark]


KNOWN = {
    "metrics-off", "asleep", "models-unknown", "no-model", "prefix-caching-off", "no-answer", "cached-tokens-untold",
    "capacity-unknown", "few-seats", "keepalive-short", "observes", "unlimited", "no-backend", "no-sessions",
    "backend-down", "metrics-stale", "connections-closed", "capped",
}  # fmt: skip
