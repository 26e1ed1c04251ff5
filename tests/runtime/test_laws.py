"""Each law behind a real proxy in front of an engine: what it goes by reaches it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from concur_proxy.sim.server import EngineOptions, EngineServer
from tests.clients.stack import ProxyProcess
from tests.runtime.test_serving import status, wait_for


@pytest.fixture(scope="module")
def engine() -> Iterator[str]:
    with EngineServer(EngineOptions(port=0, model="alpha", speed=20.0)) as server:
        yield server.url


def stream(url: str, session: int) -> int:
    body = {"model": "alpha", "max_tokens": 2, "stream": True, "prompt": "hello " * 50}
    return httpx.post(
        f"{url}/v1/completions", json=body, headers={"x-session-id": f"s{session}"}, timeout=60
    ).status_code


@pytest.mark.parametrize(
    ("law", "knows"),
    [
        ("eviction", "congestion"),
        ("pid", "latency_s"),
        ("footprint", "capacity_tokens"),
        ("gradient", "short_s_per_token"),
    ],
)
def test_a_law_learns_from_traffic_and_metrics(engine: str, law: str, knows: str) -> None:
    with ProxyProcess([engine], flags=["--law", law]) as proxy, ThreadPoolExecutor(4) as agents:
        assert set(agents.map(lambda session: stream(proxy.url, session), range(12))) == {200}
        wait_for(lambda: status(proxy.url)["backends"][0]["law"][knows] is not None)
        backend = status(proxy.url)["backends"][0]
        assert backend["law"]["name"] == law
        assert backend["unit"] == ("tokens" if law == "footprint" else "sessions")
        assert backend["window"] >= 1
        assert backend["reason"]
