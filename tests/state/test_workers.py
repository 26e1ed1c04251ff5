"""``serve --workers``: several processes behind one port, refused without what they need to share."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from typer.testing import CliRunner

from concur_proxy.cli import app
from concur_proxy.errors import ConfigError
from concur_proxy.sim.server import EngineOptions, EngineServer
from tests.clients.stack import ProxyProcess, children, metric
from tests.state.redis import PATIENCE_S, RedisServer, needs_redis


def test_workers_that_knew_nothing_of_each_other_are_refused_with_the_remedy() -> None:
    result = CliRunner().invoke(app, ["serve", "--backend", "http://localhost:1", "--workers", "2"])
    assert isinstance(result.exception, ConfigError)
    assert "--state redis://" in result.exception.message


def test_workers_and_a_child_engine_are_refused() -> None:
    flags = ["serve", "--vllm", "m", "--workers", "2", "--state", "redis://localhost:6379"]
    result = CliRunner().invoke(app, flags)
    assert isinstance(result.exception, ConfigError)
    assert "--vllm" in result.exception.message


def ask(url: str, session: str) -> httpx.Response:
    body = {"model": "alpha", "max_tokens": 4, "ignore_eos": True, "messages": [{"role": "user", "content": "hi"}]}
    return httpx.post(f"{url}/v1/chat/completions", json=body, headers={"x-session-id": session}, timeout=60)


@needs_redis
@pytest.mark.service
@pytest.mark.slow
def test_three_workers_serve_the_turns_of_each_session_and_one_that_dies_is_replaced() -> None:
    options = EngineOptions(port=0, model="alpha", speed=4.0)
    with RedisServer() as redis, EngineServer(options) as engine:
        flags = ["--workers", "3", "--state", redis.url, "--window", "4"]
        with ProxyProcess([engine.url], flags=flags) as proxy, ThreadPoolExecutor(8) as clients:
            workers = children(proxy.pid)
            assert len(workers) == 3
            answers = [clients.submit(ask, proxy.url, f"s{number % 8}") for number in range(48)]
            assert Counter(answer.result().status_code for answer in answers) == {200: 48}
            os.kill(workers[0], signal.SIGKILL)
            deadline = time.monotonic() + PATIENCE_S
            while len(set(children(proxy.pid)) - {workers[0]}) < 3:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert ask(proxy.url, "s0").status_code == 200


@needs_redis
@pytest.mark.service
def test_a_proxy_is_ready_when_it_has_its_share_so_that_no_first_turn_waits_for_it() -> None:
    with (
        RedisServer() as redis,
        EngineServer(EngineOptions(port=0, model="alpha", speed=4.0)) as engine,
        ProxyProcess([engine.url], flags=["--state", redis.url, "--window", "4"]) as proxy,
    ):
        assert metric(proxy.url, "concur_window") == 4
