"""Examinations over real sockets: of canned engines, of the embedded one, and of a proxy before it."""

from __future__ import annotations

import asyncio
import time

import httpx
import pytest
from rich.console import Console
from typer.testing import CliRunner

from concur_proxy.cli import app
from concur_proxy.doctor.examination import Permissions, examine
from concur_proxy.doctor.patience import closes_after
from concur_proxy.doctor.report import render
from concur_proxy.errors import ConcurError
from concur_proxy.sim.server import EngineOptions, EngineServer
from tests.clients.stack import ProxyProcess
from tests.doctor.patients import HEALTHY, Patient, serving

PATIENCE_S = 20.0
SOON = Permissions(apart_s=0.01)
SHORT = {"CONCUR_UPSTREAM__KEEPALIVE_S": "0.3"}
QUEUED = HEALTHY.replace('waiting{engine="0"} 0', 'waiting{engine="0"} 4')


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch):
    """Nobody waits for seconds to see that a connection stays open."""
    monkeypatch.setattr("concur_proxy.doctor.examination.KEEPALIVE_S", 0.3)


def codes(url, permissions=SOON):
    return {finding.code for finding in examine(url, permissions).findings}


def test_a_healthy_engine_gets_no_finding():
    with serving(Patient()) as patient:
        examination = examine(patient.url, SOON)
    assert examination.findings == ()
    assert examination.healthy
    assert examination.looked_at == (f"{patient.url}: vllm",)
    assert patient.seen.count("/v1/completions") == 2


@pytest.mark.parametrize(
    ("patient", "wanted"),
    [
        (Patient(metrics=None), {"metrics-off", "capacity-unknown"}),
        (Patient(models=()), {"no-model"}),
        (Patient(cached=None), {"cached-tokens-untold"}),
        (Patient(refuses=500), {"no-answer"}),
        (Patient(metrics=HEALTHY.replace('"True"', '"False"')), {"prefix-caching-off"}),
        (Patient(metrics=HEALTHY.replace('enable_prefix_caching="True",', ""), cached=0), {"prefix-caching-off"}),
        (Patient(metrics=HEALTHY.replace('kv_cache_size_tokens="16384"', 'x="y"')), {"capacity-unknown"}),
        (Patient(metrics=QUEUED), {"few-seats"}),
        (Patient(metrics=QUEUED, info={"vllm_config": {"scheduler_config": {"max_num_seqs": 256}}}), set()),
        (Patient(metrics=HEALTHY.replace('enable_prefix_caching="True",', ""), info={"disable_radix_cache": True}),
         {"prefix-caching-off"}),
        (Patient(closes_after_s=0.05), {"keepalive-short"}),
    ],
)  # fmt: skip
def test_an_ill_engine_is_found_out(patient, wanted):
    with serving(patient):
        assert codes(patient.url) == wanted


def test_nothing_is_sent_where_that_is_not_wanted():
    with serving(Patient(cached=None)) as patient:
        assert codes(patient.url, Permissions(sends=False, apart_s=0.01)) == set()
    assert "/v1/completions" not in patient.seen


def test_an_engine_with_a_key_is_asked_with_it():
    with serving(Patient(key="k")) as patient:
        assert codes(patient.url, Permissions(api_key="k", apart_s=0.01)) == set()
        assert "models-unknown" in codes(patient.url)


def test_a_proxy_and_its_engines_are_looked_at_together():
    with serving(Patient(cached=None)) as ill, ProxyProcess([ill.url], flags=["--observe"], env=SHORT) as proxy:
        found = {(finding.code, finding.about) for finding in examine(proxy.url, SOON).findings}
        lost = ill.url.removeprefix("http://")
        assert found == {("cached-tokens-untold", lost), ("observes", "proxy")}


def test_the_embedded_engine_is_healthy_alone_and_behind_the_proxy():
    with (
        EngineServer(EngineOptions(port=0, model="alpha", speed=20.0)) as engine,
        ProxyProcess([engine.url], env=SHORT) as proxy,
    ):
        deadline = time.monotonic() + PATIENCE_S
        while httpx.get(f"{proxy.url}/concur/status").json()["backends"][0]["signals"]["stale"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert examine(engine.url, SOON).findings == ()
        assert examine(proxy.url, SOON).findings == ()


def test_few_seats_are_seen_against_the_window():
    info = {"max_running_requests": 4}
    with (
        serving(Patient(info=info)) as patient,
        ProxyProcess([patient.url], flags=["--window", "8"], env=SHORT) as proxy,
    ):
        (finding,) = examine(proxy.url, SOON).findings
    assert finding.code == "few-seats"
    assert "below the window of 8 sessions" in finding.what


def test_a_proxy_that_tells_nothing_is_no_engine():
    token = {**SHORT, "CONCUR_SERVER__ADMIN_TOKEN": "t"}
    with serving(Patient()) as patient, ProxyProcess([patient.url], env=token) as proxy:
        with pytest.raises(ConcurError, match="answered 401: Management calls need"):
            examine(proxy.url, SOON)
        assert codes(proxy.url, Permissions(token="t", apart_s=0.01)) == set()


@pytest.mark.parametrize(
    ("patient", "status", "said"),
    [
        (Patient(), 0, "nothing to find fault with"),
        (Patient(cached=None), 1, "--enable-prompt-tokens-details"),
        (None, 2, "no answer from"),
    ],
)
def test_the_exit_status_tells(patient, status, said):
    if patient is None:
        with serving(Patient()) as gone:
            pass
        result = CliRunner().invoke(app, ["doctor", gone.url])
    else:
        with serving(patient):
            result = CliRunner().invoke(app, ["doctor", patient.url])
    assert result.exit_code == status
    assert said in " ".join(result.output.split())


def test_the_worst_comes_first():
    with serving(Patient(metrics=None, refuses=500)) as patient:
        console = Console(width=200)
        with console.capture() as captured:
            console.print(render(examine(patient.url, SOON)))
    shown = captured.get()
    assert shown.index("wrong  ") < shown.index("missing  ")
    assert shown.rstrip().endswith("1 wrong, 2 missing")


def test_how_long_a_connection_is_kept():
    async def go(url):
        return await closes_after(url, longest_s=0.2)

    with serving(Patient(closes_after_s=0.05)) as hasty:
        assert asyncio.run(go(hasty.url)) < 0.2
    with serving(Patient()) as patient:
        assert asyncio.run(go(patient.url)) is None
    assert asyncio.run(go(patient.url)) is None  # nobody there any more
