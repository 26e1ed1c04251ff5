"""Prometheus itself reads the proxy's metrics."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from concur_proxy.fleet import warden
from concur_proxy.sim.server import EngineOptions, EngineServer
from tests.clients.stack import ProxyProcess
from tests.ports import free_port

pytestmark = [
    pytest.mark.service,
    pytest.mark.skipif(
        not (shutil.which("prometheus") and shutil.which("promtool")),
        reason="prometheus is not installed here; install it with: .ci/services",
    ),
]

PATIENCE_S = 30.0
POLL_S = 0.05
CONFIG = """
global:
  scrape_interval: 200ms
scrape_configs:
  - job_name: concur-proxy
    static_configs:
      - targets: ["127.0.0.1:{port}"]
"""


@pytest.fixture(scope="module")
def proxy() -> Iterator[ProxyProcess]:
    """A proxy that has answered one turn of a session."""
    with EngineServer(EngineOptions(port=0, model="m", speed=20.0)) as engine, ProxyProcess([engine.url]) as running:
        body = {"model": "m", "messages": [{"role": "user", "content": "Hello."}], "max_tokens": 3, "ignore_eos": True}
        answer = httpx.post(f"{running.url}/v1/chat/completions", json=body, headers={"X-Session-ID": "a"})
        assert answer.status_code == 200
        yield running


@pytest.fixture(scope="module")
def prometheus(proxy: ProxyProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder, port = tmp_path_factory.mktemp("prometheus"), free_port()
    (folder / "prometheus.yml").write_text(CONFIG.format(port=proxy.port))
    command = [
        "prometheus",
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    log = folder / "log"
    with (
        log.open("wb") as output,
        subprocess.Popen(
            warden.command(command, grace_s=10), stdin=subprocess.PIPE, stdout=output, stderr=output
        ) as process,
        httpx.Client(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        assert process.stdin is not None
        try:
            wait_until_ready(client, process, log)
            yield client
        finally:
            process.stdin.close()


def wait_until_ready(client: httpx.Client, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not answers(client):
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(POLL_S)


def answers(client: httpx.Client) -> bool:
    try:
        return client.get("/-/ready").status_code == 200
    except httpx.TransportError:
        return False


def value(prometheus: httpx.Client, query: str) -> float:
    """The value of a query, once Prometheus has scraped what it asks for."""
    deadline = time.monotonic() + PATIENCE_S
    while not (result := prometheus.get("/api/v1/query", params={"query": query}).json()["data"]["result"]):
        assert time.monotonic() < deadline, f"Prometheus knows nothing of {query}"
        time.sleep(POLL_S)
    return float(result[0]["value"][1])


def test_promtool_has_nothing_to_say_against_the_metrics(proxy: ProxyProcess) -> None:
    exposition = httpx.get(f"{proxy.url}/metrics").content
    checked = subprocess.run(["promtool", "check", "metrics"], input=exposition, capture_output=True, check=False)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ('up{job="concur-proxy"}', 1),
        ("sum(concur_turns_arrived_total)", 1),
        ("sum(concur_completion_tokens_total)", 3),
        ("sum(concur_turns_running)", 0),
        ("sum(concur_backend_up)", 1),
    ],
)
def test_prometheus_scrapes_what_happened(prometheus: httpx.Client, query: str, expected: float) -> None:
    assert value(prometheus, query) == expected
