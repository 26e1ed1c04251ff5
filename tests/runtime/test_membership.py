"""The whole proxy as a process, while operators add, drain and remove engines under its sessions."""

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
from tests.runtime.test_serving import ask, long_turn, status, wait_for


@pytest.fixture(scope="module")
def engines() -> Iterator[tuple[str, str]]:
    options = EngineOptions(port=0, model="alpha", speed=4.0)
    with EngineServer(options) as one, EngineServer(options) as two:
        yield one.url, two.url


def names(url: str) -> dict[str, str]:
    return {backend["name"]: backend["state"] for backend in status(url)["backends"]}


def post(url: str, path: str, **kwargs: Any) -> httpx.Response:
    return httpx.post(f"{url}/concur/backends{path}", **kwargs)


def name_of(url: str) -> str:
    return url.removeprefix("http://")


def test_a_backend_is_added_takes_sessions_and_leaves_when_its_turns_have_ended(engines: tuple[str, str]) -> None:
    one, two = engines
    with ProxyProcess([one], flags=["--window", "1"]) as proxy, ThreadPoolExecutor() as others:
        wait_for(lambda: set(names(proxy.url).values()) == {"up"})
        with long_turn(proxy.url, "first"):
            held = others.submit(ask, proxy.url, "second")
            wait_for(lambda: status(proxy.url)["held"] == 1)
            added = post(proxy.url, "", json={"url": two, "name": "two"})
            assert (added.status_code, added.json()) == (201, {"name": "two", "state": "added"})
            assert held.result(20).headers["x-concur-backend"] == "two"
            assert post(proxy.url, "", json={"url": two}).status_code == 400
            assert httpx.delete(f"{proxy.url}/concur/backends/{name_of(one)}").status_code == 202
            wait_for(lambda: names(proxy.url)[name_of(one)] == "draining")
            assert ask(proxy.url, "second").headers["x-concur-backend"] == "two"
            assert names(proxy.url)[name_of(one)] == "draining"
        wait_for(lambda: names(proxy.url) == {"two": "up"})
        assert 'backend="' + name_of(one) not in httpx.get(f"{proxy.url}/metrics").text


def test_sessions_of_a_drained_backend_move_and_go_back_to_it_when_they_may(engines: tuple[str, str]) -> None:
    with ProxyProcess(engines) as proxy:
        wait_for(lambda: set(names(proxy.url).values()) == {"up"})
        home = ask(proxy.url, "s").headers["x-concur-backend"]
        away = next(name for name in names(proxy.url) if name != home)
        assert ask(proxy.url, "s").headers["x-concur-backend"] == home
        assert post(proxy.url, f"/{home}/drain").json() == {"name": home, "state": "draining"}
        assert names(proxy.url)[home] == "draining"
        assert ask(proxy.url, "s").headers["x-concur-backend"] == away
        assert post(proxy.url, f"/{home}/undrain").json()["state"] == "active"
        post(proxy.url, f"/{away}/drain")
        assert ask(proxy.url, "s").headers["x-concur-backend"] == home


def test_what_cannot_be_done_is_said(engines: tuple[str, str]) -> None:
    with ProxyProcess([engines[0]]) as proxy:
        wrong = post(proxy.url, "", json={"url": "ftp://x", "nam": "y"})
        assert wrong.status_code == 400
        assert "must be a URL" in wrong.text
        assert "did you mean name" in wrong.text
        for answer in (post(proxy.url, "/nobody/drain"), httpx.delete(f"{proxy.url}/concur/backends/nobody")):
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "backend_not_found")


def test_a_file_names_backends_and_replaces_all_of_them_without_a_failed_turn(
    engines: tuple[str, str], tmp_path: Path
) -> None:
    one, two = engines
    file = tmp_path / "backends.json"
    file.write_text(json.dumps([one]))
    env = {"CONCUR_FLEET__FILE": str(file), "CONCUR_FLEET__FILE_INTERVAL_S": "0.1"}
    with ProxyProcess([], env=env) as proxy, ThreadPoolExecutor(4) as agents:
        wait_for(lambda: names(proxy.url) == {name_of(one): "up"})
        refused = httpx.delete(f"{proxy.url}/concur/backends/{name_of(one)}")
        assert refused.status_code == 400
        assert "fleet.file" in refused.json()["error"]["message"]
        done = False

        def work(number: int) -> set[int]:
            answers = set()
            while not done:
                answers.add(ask(proxy.url, f"s{number}", tokens=20).status_code)
            return answers

        working = [agents.submit(work, number) for number in range(4)]
        file.write_text(json.dumps([two]))
        wait_for(lambda: names(proxy.url) == {name_of(two): "up"})
        done = True
        assert [one.result(20) for one in working] == [{200}] * 4


@pytest.mark.parametrize("drained", [False, True], ids=["at once", "drained meanwhile"])
def test_an_engine_that_comes_back_has_the_shared_prefix_before_its_first_session(drained: bool) -> None:
    system = "You are an agent that mends programs. " * 60
    body = {
        "model": "alpha",
        "max_tokens": 2,
        "messages": [{"role": "system", "content": system}, {"role": "user", "content": "hi"}],
    }

    def turn(url: str, session: str) -> httpx.Response:
        return httpx.post(f"{url}/v1/chat/completions", json=body, headers={"x-session-id": session}, timeout=60)

    options = EngineOptions(port=0, model="alpha", speed=4.0)
    with EngineServer(options) as one, EngineServer(options) as two:
        with ProxyProcess([one.url, two.url]) as proxy:
            wait_for(lambda: set(names(proxy.url).values()) == {"up"})
            for number in range(8):
                assert turn(proxy.url, f"s{number}").status_code == 200
            two.close()
            wait_for(lambda: names(proxy.url)[name_of(two.url)] == "lost")
            post(proxy.url, f"/{name_of(two.url)}/{'drain' if drained else 'undrain'}")
            with EngineServer(EngineOptions(port=two.port, model="alpha", speed=4.0)):
                wait_for(lambda: names(proxy.url)[name_of(two.url)] == ("draining" if drained else "up"))
                post(proxy.url, f"/{name_of(two.url)}/undrain")
                wait_for(lambda: names(proxy.url)[name_of(two.url)] == "up")
                post(proxy.url, f"/{name_of(one.url)}/drain")
                answer = turn(proxy.url, "new")
        assert answer.headers["x-concur-backend"] == name_of(two.url)
        usage = answer.json()["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] > 0.8 * usage["prompt_tokens"]
