"""The real Prometheus watches a live fleet: every panel has data, and alerts fire and clear with the faults we make."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import yaml

from concur_proxy.sim.server import EngineOptions, EngineServer
from tests.clients.stack import ProxyProcess
from tests.services.monitored import DCGM, Agents, Habits, Page, Prometheus, Relayed, in_a_hurry, until
from tests.state.redis import RedisServer, needs_redis

pytestmark = [
    pytest.mark.service,
    pytest.mark.slow,
    needs_redis,
    pytest.mark.skipif(
        not (shutil.which("prometheus") and shutil.which("promtool")),
        reason="prometheus is not installed here; install it with: .ci/services",
    ),
]

DASHBOARDS = sorted((Path(__file__).parents[2] / "deploy" / "grafana" / "dashboards").glob("*.json"))
OPTIONS = EngineOptions(port=0, model="m", kv_tokens=3200, speed=4.0)
MANY, FEW = 60.0, 2.0
"""Sessions on one engine: far more than its cache holds, and fewer."""


@dataclass
class Fleet:
    engines: list[EngineServer]
    metrics: Relayed
    proxy: ProxyProcess
    prometheus: Prometheus

    def change(self, **settings: object) -> None:
        httpx.patch(f"{self.proxy.url}/concur/config", json=settings).raise_for_status()

    def stop(self, number: int) -> None:
        self.engines[number].close()

    def start(self, number: int) -> None:
        port = self.engines[number].port
        self.engines[number] = EngineServer(EngineOptions(**{**options(), "port": port}))

    def expect(self, alert: str, *, firing: bool) -> None:
        word = "fire" if firing else "clear"
        until(lambda: (alert in self.prometheus.firing()) == firing, f"{alert} did not {word}")


def options() -> dict[str, object]:
    return {name: getattr(OPTIONS, name) for name in OPTIONS.__slots__}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Two engines, twelve agents, and a fixed window that fits their caches."""
    folder = tmp_path_factory.mktemp("fleet")
    with contextlib.ExitStack() as stack:
        engines = [EngineServer(OPTIONS), EngineServer(OPTIONS)]
        metrics = stack.enter_context(Relayed(engines[0].url))
        config = {
            "backends": [
                {"url": engines[0].url, "name": "gpu-0", "metrics_url": f"http://{metrics.target}/metrics"},
                {"url": engines[1].url, "name": "gpu-1"},
            ],
            "control": {
                "law": "fixed",
                "fixed": {"window": FEW},
                "window_max": 100,
                "scrape_interval_s": 0.2,
                "stale_after_s": 1.0,
            },
            "gate": {"order": "lanes", "hot_objective_s": 60},
            "sessions": {"tenant_header": "X-Tenant"},
            "metrics": {"max_tenants": 5},
        }
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
        proxy = stack.enter_context(ProxyProcess([], flags=["--config", str(folder / "config.yaml")]))
        gpus = stack.enter_context(Page(DCGM.encode))
        redis = RedisServer()
        stack.callback(redis.close)
        # Some panels are about replicas, if only of one.
        replica = stack.enter_context(
            ProxyProcess([engine.url for engine in engines], env={"CONCUR_STATE__URL": redis.url})
        )
        jobs = {
            "concur-proxy": f"127.0.0.1:{proxy.port}",
            "concur-replica": f"127.0.0.1:{replica.port}",
            "dcgm": gpus.target,
        }
        prometheus = stack.enter_context(Prometheus(folder, jobs, hurry=in_a_hurry))
        stack.enter_context(Agents(proxy.url, 12, Habits(words=250, think_s=0.02)))
        fleet = Fleet(engines, metrics, proxy, prometheus)
        yield fleet
        stack.close()
        for engine in fleet.engines:
            engine.close()


def targets() -> list[tuple[str, str, str]]:
    boards = [json.loads(path.read_text()) for path in DASHBOARDS]
    return [
        (board["title"], panel["title"], target["expr"])
        for board in boards
        for panel in board["panels"]
        for target in panel.get("targets", ())
    ]


def test_every_query_of_every_panel_has_data(fleet: Fleet) -> None:
    missing = targets()

    def ask() -> bool:
        httpx.post(f"{fleet.proxy.url}/v1/chat/completions", json={"model": "nobody's"})
        missing[:] = [each for each in missing if not fleet.prometheus.query(filled(each[2]))]
        return not missing

    with contextlib.suppress(AssertionError):
        until(ask, "no data")
    assert missing == []


def filled(expr: str) -> str:
    """Return a panel's query as Grafana sends it."""
    return expr.replace("$__rate_interval", "5s").replace("$job", ".*").replace("$backend", ".*")


def test_buckets_of_histograms_lead_to_traces(fleet: Fleet) -> None:
    def traces() -> list[dict[str, str]]:
        return fleet.prometheus.exemplars("concur_request_duration_seconds_bucket")

    until(traces, "there are no exemplars")
    assert all(re.fullmatch(r"[0-9a-f]{32}", labels["trace_id"]) for labels in traces())


def test_thrashing_despite_control(fleet: Fleet) -> None:
    """Agents think for less than their contexts take to compute: nobody's place is taken for that time."""
    fleet.expect("ConcurThrashing", firing=False)
    fleet.change(fixed={"window": MANY})
    fleet.expect("ConcurThrashing", firing=True)
    fleet.change(fixed={"window": FEW})
    fleet.expect("ConcurThrashing", firing=False)


def test_a_window_on_its_bounds(fleet: Fleet) -> None:
    fleet.change(window_min=FEW, window_max=FEW)
    for alert in ("ConcurWindowAtMinimum", "ConcurWindowAtMaximum"):
        fleet.expect(alert, firing=True)
    fleet.change(window_min=1, window_max=100)
    for alert in ("ConcurWindowAtMinimum", "ConcurWindowAtMaximum"):
        fleet.expect(alert, firing=False)


def test_a_queue_that_is_old_and_a_hot_lane_that_waits(fleet: Fleet) -> None:
    fleet.change(fixed={"window": 1})
    for alert in ("ConcurQueueOld", "ConcurHotLaneBudgetBurns", "ConcurHotLaneBudgetBurnsFast"):
        fleet.expect(alert, firing=True)
    fleet.change(fixed={"window": MANY})
    for alert in ("ConcurQueueOld", "ConcurHotLaneBudgetBurns", "ConcurHotLaneBudgetBurnsFast"):
        fleet.expect(alert, firing=False)


def test_metrics_of_an_engine_that_break(fleet: Fleet) -> None:
    fleet.metrics.broken = True
    fleet.expect("ConcurScrapeStale", firing=True)
    fleet.metrics.broken = False
    fleet.expect("ConcurScrapeStale", firing=False)


def test_engines_that_go_away(fleet: Fleet) -> None:
    fleet.stop(1)
    fleet.expect("ConcurBackendDown", firing=True)
    assert "ConcurNoBackend" not in fleet.prometheus.firing()
    fleet.stop(0)
    for alert in ("ConcurNoBackend", "ConcurRefusing"):
        fleet.expect(alert, firing=True)
    for number in (0, 1):
        fleet.start(number)
    for alert in ("ConcurBackendDown", "ConcurNoBackend", "ConcurRefusing"):
        fleet.expect(alert, firing=False)


def test_a_proxy_that_stands_still(fleet: Fleet) -> None:
    os.kill(fleet.proxy.pid, signal.SIGSTOP)
    try:
        fleet.expect("ConcurProxyDown", firing=True)
    finally:
        os.kill(fleet.proxy.pid, signal.SIGCONT)
    fleet.expect("ConcurProxyDown", firing=False)


def test_a_proxy_that_stumbles(fleet: Fleet) -> None:
    def stumble() -> bool:
        os.kill(fleet.proxy.pid, signal.SIGSTOP)
        time.sleep(0.3)  # how long it lasts
        os.kill(fleet.proxy.pid, signal.SIGCONT)
        return "ConcurEventLoopLate" in fleet.prometheus.firing()

    until(stumble, "ConcurEventLoopLate did not fire")
    fleet.expect("ConcurEventLoopLate", firing=False)
