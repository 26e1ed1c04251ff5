"""The whole proxy as a process, in front of embedded engines: what an operator does while agents run."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from concur_proxy.config import LawName
from concur_proxy.sim.server import EngineOptions, EngineServer
from tests.clients.stack import ProxyProcess
from tests.ports import free_port

PATIENCE_S = 20.0


@pytest.fixture(scope="module")
def engine() -> Iterator[str]:
    with EngineServer(EngineOptions(port=0, model="alpha", speed=4.0)) as server:
        yield server.url


def ask(
    url: str, session: str | None = None, *, model: str = "alpha", tokens: int = 2, **headers: str
) -> httpx.Response:
    named = {"x-session-id": session} if session else {}
    body = {"model": model, "max_tokens": tokens, "ignore_eos": True, "messages": [{"role": "user", "content": "hi"}]}
    return httpx.post(f"{url}/v1/chat/completions", json=body, headers={**named, **headers}, timeout=60)


def status(url: str) -> dict[str, Any]:
    answer: dict[str, Any] = httpx.get(f"{url}/concur/status").json()
    return answer


def change(url: str, **settings: Any) -> dict[str, Any]:
    answer = httpx.patch(f"{url}/concur/config", json=settings)
    assert answer.status_code == 200, answer.text
    changed: dict[str, Any] = answer.json()
    return changed


def wait_for(what: Any) -> Any:
    """Return the first true value of ``what()``."""
    deadline = time.monotonic() + PATIENCE_S
    while not (value := what()):
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.02)
    return value


@contextmanager
def long_turn(url: str, session: str) -> Iterator[None]:
    """Keep a turn of the session running."""
    body = {"model": "alpha", "max_tokens": 5000, "ignore_eos": True, "stream": True, "prompt": "hi"}
    with httpx.stream("POST", f"{url}/v1/completions", json=body, headers={"x-session-id": session}) as answer:
        assert answer.status_code == 200
        yield


def test_the_law_changes_while_sessions_live(engine: str) -> None:
    with ProxyProcess([engine]) as proxy:
        ask(proxy.url, "a")
        assert change(proxy.url, law="fixed", fixed={"window": 3})["law"] == "fixed"
        backend = wait_for(lambda: next((b for b in status(proxy.url)["backends"] if b["window"] == 3), None))
        assert backend["law"]["name"] == "fixed"
        assert backend["active"] == 1
        change(proxy.url, law="unlimited")
        wait_for(lambda: status(proxy.url)["backends"][0]["window"] is None)
        assert status(proxy.url)["sessions"]["idle"] == 1


def test_every_law_can_be_switched_to_and_no_session_is_lost(engine: str) -> None:
    with ProxyProcess([engine]) as proxy:
        ask(proxy.url, "a")
        for law in LawName:
            change(proxy.url, law=law.value)
            (backend,) = status(proxy.url)["backends"]
            assert backend["law"]["name"] == law.value
            assert backend["unit"] == backend["law"]["unit"]
            assert backend["active"] == 1
            assert ask(proxy.url, "a").status_code == 200
        assert status(proxy.url)["sessions"]["idle"] == 1


def test_a_share_of_the_window_as_its_upper_bound(engine: str) -> None:
    with ProxyProcess([engine], flags=["--window", "8"]) as proxy:
        assert change(proxy.url, window_max="50%")["window_max"] == 4
        backend = wait_for(lambda: next((b for b in status(proxy.url)["backends"] if b["window"] == 4), None))
        assert backend["window_max"] == 4
        shown = httpx.get(f"{proxy.url}/concur/config").json()
        assert change(proxy.url, **shown) == shown
        assert status(proxy.url)["backends"][0]["window_max"] == 4


def test_a_share_of_sessions_is_no_bound_of_tokens(engine: str) -> None:
    with ProxyProcess([engine], flags=["--window", "8"]) as proxy:
        change(proxy.url, window_max="50%")
        assert change(proxy.url, law="footprint")["window_max"] is None
        capacity = wait_for(lambda: status(proxy.url)["backends"][0]["capacity_tokens"])
        wait_for(lambda: status(proxy.url)["backends"][0]["window"] == pytest.approx(0.95 * capacity))
        assert change(proxy.url, law="fixed", window_max="50%")["window_max"] == 4


def test_connections_beyond_the_limit_are_refused(engine: str) -> None:
    with ProxyProcess([engine], env={"CONCUR_SERVER__MAX_CONNECTIONS": "2"}) as proxy:
        with long_turn(proxy.url, "first"), long_turn(proxy.url, "second"):
            answer = ask(proxy.url, "third")
            probes = {httpx.get(f"{proxy.url}{path}").status_code for path in ("/livez", "/readyz", "/metrics")}
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "queue_full")
        assert probes == {200}


def test_a_smaller_window_holds_and_a_larger_one_lets_in(engine: str) -> None:
    with ProxyProcess([engine], flags=["--window", "1"]) as proxy, ThreadPoolExecutor() as others:
        with long_turn(proxy.url, "first"):
            second = others.submit(ask, proxy.url, "second")
            wait_for(lambda: status(proxy.url)["held"] == 1)
            assert not second.done()
            change(proxy.url, fixed={"window": 2})
            answer = second.result(PATIENCE_S)
        assert answer.status_code == 200
        assert int(answer.headers["x-concur-queued-ms"]) > 0


@pytest.mark.parametrize("how", ["delete", "release", "final"])
def test_a_session_that_says_goodbye_makes_room(engine: str, how: str) -> None:
    with ProxyProcess([engine], flags=["--window", "1"]) as proxy, ThreadPoolExecutor() as others:
        headers = {"x-session-final": "true"} if how == "final" else {}
        assert ask(proxy.url, "first", **headers).status_code == 200
        if how == "delete":
            assert httpx.delete(f"{proxy.url}/concur/sessions/first").json() == {"ended": 1}
        elif how == "release":
            answer = httpx.post(f"{proxy.url}/programs/release", json={"program_id": "first"})
            assert answer.json() == {"program_id": "first", "released": True}
        assert status(proxy.url)["backends"][0]["active"] == 0
        assert others.submit(ask, proxy.url, "second").result(PATIENCE_S).status_code == 200


def test_a_name_in_any_script_names_a_session(engine: str) -> None:
    with ProxyProcess([engine]) as proxy:
        for name in ("café", "エージェント-1"):
            body = {"model": "alpha", "max_tokens": 1, "prompt": "hi"}
            httpx.post(f"{proxy.url}/v1/completions", json=body, headers={"x-session-id": name.encode()})
            assert httpx.get(f"{proxy.url}/concur/sessions").json()["sessions"][0]["id"] == name
            assert httpx.delete(f"{proxy.url}/concur/sessions/{name}").json() == {"ended": 1}


def test_an_engine_that_sheds_load_gets_every_turn_in_the_end() -> None:
    limits = EngineOptions(port=0, model="alpha", speed=5.0, max_queued=1, max_num_seqs=2, max_num_batched_tokens=512)
    with EngineServer(limits) as busy, ProxyProcess([busy.url], flags=["--law", "unlimited"]) as proxy:
        with ThreadPoolExecutor(14) as agents:
            answers = list(agents.map(lambda n: ask(proxy.url, f"s{n}", tokens=150), range(14)))
        assert [answer.status_code for answer in answers] == [200] * 14
        assert "concur_turns_requeued_total 0.0" not in httpx.get(f"{proxy.url}/metrics").text


def test_what_refused_clients_are_told_changes_everywhere(engine: str) -> None:
    with ProxyProcess([engine]) as proxy:
        change(proxy.url, retry_after_s=7)
        with ThreadPoolExecutor() as others, long_turn(proxy.url, "first"):
            change(proxy.url, law="fixed", fixed={"window": 1}, max_held=0)
            wait_for(lambda: status(proxy.url)["backends"][0]["window"] == 1)
            answer = others.submit(ask, proxy.url, "second").result(PATIENCE_S)
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")


def test_probes_may_ask_by_head(engine: str) -> None:
    with ProxyProcess([engine]) as proxy:
        for path in ("/livez", "/readyz", "/health", "/v1/models"):
            answer = httpx.head(f"{proxy.url}{path}")
            assert (answer.status_code, answer.content) == (200, b"")


def test_one_id_under_two_keys_is_two_sessions(engine: str) -> None:
    with ProxyProcess([engine]) as proxy:
        for key in ("one", "two"):
            ask(proxy.url, "same", authorization=f"Bearer {key}")
        assert status(proxy.url)["backends"][0]["active"] == 2
        mine = httpx.delete(f"{proxy.url}/concur/sessions/same", headers={"authorization": "Bearer one"})
        assert mine.json() == {"ended": 1}
        assert status(proxy.url)["backends"][0]["active"] == 1


def test_observing_holds_nothing_and_counts_what_it_would_have(engine: str) -> None:
    with ProxyProcess([engine], flags=["--window", "1", "--observe"]) as proxy:
        with long_turn(proxy.url, "first"):
            assert ask(proxy.url, "second").status_code == 200
        metrics = httpx.get(f"{proxy.url}/metrics").text
        assert 'concur_turns_admitted_total{why="observed"} 1.0' in metrics
        assert status(proxy.url)["mode"] == "observe"


def test_two_models_on_two_engines_each_go_to_their_own(engine: str) -> None:
    with (
        EngineServer(EngineOptions(port=0, model="beta", speed=4.0)) as other,
        ProxyProcess([engine, other.url]) as proxy,
    ):
        wait_for(lambda: {b["state"] for b in status(proxy.url)["backends"]} == {"up"})
        models = httpx.get(f"{proxy.url}/v1/models").json()["data"]
        assert {model["id"] for model in models} == {"alpha", "beta"}
        assert all("max_model_len" in model for model in models)
        for model, url in (("alpha", engine), ("beta", other.url)):
            answer = ask(proxy.url, model=model)
            assert answer.json()["model"] == model
            assert answer.headers["x-concur-backend"] == url.removeprefix("http://")
        unknown = ask(proxy.url, model="gamma")
        assert unknown.status_code == 404
        assert unknown.json()["error"]["code"] == "model_not_found"


def test_an_engine_that_is_down_at_the_start_and_comes_up(engine: str) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"

    class Late(ProxyProcess):
        def ready(self) -> bool:
            try:
                return httpx.get(f"{self.url}/livez").status_code == 200
            except httpx.TransportError:
                return False

    with Late([url]) as proxy:
        assert httpx.get(f"{proxy.url}/readyz").status_code == 503
        refused = ask(proxy.url, "a")
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "no_backend"
        assert "retry-after" in refused.headers
        with EngineServer(EngineOptions(port=port, model="alpha", speed=4.0)):
            wait_for(lambda: httpx.get(f"{proxy.url}/readyz").status_code == 200)
            assert ask(proxy.url, "a").status_code == 200


def test_it_is_ready_when_all_backends_have_been_asked(engine: str) -> None:
    """Else all sessions of the first moments would go to whichever answers first, and stay there."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        slow = f"127.0.0.1:{silent.getsockname()[1]}"
        with ProxyProcess([engine, f"http://{slow}"]) as proxy:
            known = {one["name"]: one["problem"] for one in status(proxy.url)["backends"]}
    assert known[slow] not in (None, "not probed yet")


def test_a_storm_of_new_sessions_never_overshoots_the_window(engine: str) -> None:
    with ProxyProcess([engine], flags=["--window", "3"]) as proxy, ThreadPoolExecutor(40) as agents:
        done, peak = threading.Event(), [0]

        def watch() -> None:
            while not done.is_set():
                peak[0] = max(peak[0], status(proxy.url)["backends"][0]["running"])

        watcher = threading.Thread(target=watch)
        watcher.start()
        answers = list(
            agents.map(lambda n: ask(proxy.url, f"s{n}", tokens=20, **{"x-session-final": "true"}), range(40))
        )
        done.set()
        watcher.join()
        assert [answer.status_code for answer in answers] == [200] * 40
        assert 1 <= peak[0] <= 3
        assert status(proxy.url)["turns"] == {
            "arrived": 40,
            "admitted": 40,
            "finished": 40,
            "refused": 0,
            "abandoned": 0,
        }
