"""Agents of real frameworks that send no id: each lands in a session of its own, with all of its turns."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.agents.engine import CALLS, ToolEngine
from tests.clients.agents.prepared import PYTHON, needs_frameworks
from tests.clients.stack import ProxyProcess

HERE = Path(__file__).parent / "agents"

TASKS = ["Read the first book.", "Read the second book.", *(["Read the third book."] * 4)]
"""The last four are samples of one task: they begin with the same messages."""
TURNS = 2 * (CALLS + 1)


@pytest.fixture(scope="module")
def proxy() -> Iterator[str]:
    with ToolEngine() as engine, ProxyProcess([engine.url]) as proxy:
        yield proxy.url


def sessions(python: str, framework: str, url: str) -> list[list[str]]:
    command = [python, str(HERE / "run.py"), framework, f"{url}/v1", *TASKS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    told: list[list[str]] = json.loads(done.stdout.splitlines()[-1])
    return told


def check(told: list[list[str]]) -> None:
    assert [len(turns) for turns in told] == [TURNS] * len(TASKS)
    assert [len(set(turns)) for turns in told] == [1] * len(TASKS), "an agent's turns are one session"
    assert len({turns[0] for turns in told}) == len(TASKS), "no two agents share one"


@pytest.mark.parametrize("framework", ["plain", "plain-streamed", "anthropic"])
def test_loops_on_the_official_clients(proxy: str, framework: str) -> None:
    check(sessions(sys.executable, framework, proxy))


@needs_frameworks
@pytest.mark.parametrize("framework", ["openai-agents", "openai-agents-responses", "langgraph"])
def test_frameworks(proxy: str, framework: str) -> None:
    check(sessions(PYTHON, framework, proxy))
