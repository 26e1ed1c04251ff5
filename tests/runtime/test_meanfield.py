"""The default law behind a real proxy in front of an engine: it learns, says what it goes by, and remembers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from concur_proxy.sim.server import EngineOptions, EngineServer
from tests.clients.stack import ProxyProcess
from tests.runtime.test_serving import status, wait_for


@pytest.fixture(scope="module")
def engine() -> Iterator[str]:
    with EngineServer(EngineOptions(port=0, model="alpha", speed=20.0)) as server:
        yield server.url


def talk(url: str, session: int) -> None:
    messages: list[dict[str, str]] = []
    for turn in range(4):
        messages.append({"role": "user", "content": f"question {turn} of {session} " * 30})
        body = {"model": "alpha", "max_tokens": 8, "messages": messages}
        answer = httpx.post(
            f"{url}/v1/chat/completions", json=body, headers={"x-session-id": f"s{session}"}, timeout=60
        ).json()
        messages.append(answer["choices"][0]["message"])


def law(url: str) -> dict[str, Any]:
    known: dict[str, Any] = status(url)["backends"][0]["law"]
    return known


def test_it_learns_from_traffic_and_remembers_after_a_restart(engine: str, tmp_path: Path) -> None:
    kept = tmp_path / "state.json"
    env = {"CONCUR_CONTROL__STATE_FILE": str(kept)}
    with ProxyProcess([engine], env=env) as proxy, ThreadPoolExecutor(6) as agents:
        list(agents.map(lambda session: talk(proxy.url, session), range(12)))
        wait_for(lambda: law(proxy.url)["turns"] >= 40)
        learned = law(proxy.url)
        backend = status(proxy.url)["backends"][0]
        assert (backend["law"]["name"], backend["unit"]) == ("meanfield", "tokens")
        assert backend["reason"]
        assert learned["output_tokens"] == pytest.approx(8, abs=1)
        assert 0.5 < learned["returning_share"] < 1.0  # no session has ended yet as far as anybody knows
        assert learned["observed_hit_rate"] > 0.8
    document = json.loads(kept.read_text())
    assert [state["law"] for state in document["backends"].values()] == ["meanfield"]
    with ProxyProcess([engine], env=env) as proxy:
        assert law(proxy.url)["new_tokens"] == pytest.approx(learned["new_tokens"])
    kept.write_text("{")
    with ProxyProcess([engine], env=env) as proxy:
        assert law(proxy.url)["turns"] == 0
        assert "is ignored" in proxy.log()
