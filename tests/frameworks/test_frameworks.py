"""Each framework drives agents through the proxy as its recipe says: sessions, hints, ends, and refusals."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.clients.agents.prepared import LLAMAINDEX, PYTHON, needs_frameworks
from tests.clients.stack import ProxyProcess, metric
from tests.frameworks import obey
from tests.frameworks.player import Player
from tests.frameworks.recipes import FRAMEWORKS, RECIPES, unnamed, with_header
from tests.rig.engine import PLUGIN, RigEngine
from tests.rig.environments import missing
from tests.rig.vllmsim.concur_vllmsim.settings import StepCosts

pytestmark = [pytest.mark.engine, needs_frameworks]

TASKS = ["How is the weather?", "How is the weather?", "Where is it warm?"]
"""The first two begin with the same messages."""
TURNS = obey.CALLS + 1
PATIENCE_S = 60.0
POLL_S = 0.02
LONG_LEASES = {"CONCUR_GATE__LEASE_MIN_S": "600"}
FULL = {**LONG_LEASES, "CONCUR_GATE__MAX_HELD": "0", "CONCUR_GATE__RETRY_AFTER_S": "1"}
"""One place, and nobody may wait for it."""
ENDLESS = 30_000
"""Tokens of an answer that takes a minute."""
REFUSED = "concur_turns_refused_total"


@pytest.fixture(scope="module")
def engine() -> Iterator[RigEngine]:
    if remedy := missing("vllm"):
        pytest.skip(remedy)
    path = f"{PLUGIN}:{Path(obey.__file__).parent}"
    flags = ("--middleware", "obey.Obey", "--tool-strict-level", "parameter")
    costs = StepCosts(step=0.002, token=1e-6)
    room = {"kv_tokens": 2 * ENDLESS // 16 * 16, "max_len": ENDLESS + 1000}
    with RigEngine("vllm", costs=costs, **room, extra_flags=flags, environment={"PYTHONPATH": path}) as engine:
        yield engine


@pytest.fixture(scope="module")
def proxy(engine: RigEngine) -> Iterator[str]:
    with ProxyProcess([engine.url], env=LONG_LEASES) as proxy:
        yield proxy.url


@pytest.fixture(scope="module")
def full(engine: RigEngine) -> Iterator[str]:
    with ProxyProcess([engine.url], flags=["--window", "1"], env=FULL) as proxy:
        yield proxy.url


@pytest.fixture(scope="module", params=FRAMEWORKS)
def framework(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def player(framework: str, engine: RigEngine) -> Iterator[Player]:
    with Player(LLAMAINDEX if framework == "llamaindex" else PYTHON, engine.model) as player:
        yield player


def sessions(url: str, search: str = "") -> dict[str, dict[str, Any]]:
    """What the proxy tells of its sessions, by their ids."""
    listed = httpx.get(f"{url}/concur/sessions", params={"limit": 1000, "search": search}).json()
    return {session["id"]: session for session in listed["sessions"]}


def test_runs_that_name_themselves_are_sessions_until_their_end(proxy: str, framework: str, player: Player) -> None:
    names = [f"{framework}-{number}" for number in range(len(TASKS))]
    assert all(player.play(proxy, RECIPES[framework], "run", *zip(TASKS, names, strict=True)))
    found = sessions(proxy, framework)
    assert {name: (each["rule"], each["turns"]) for name, each in found.items()} == dict.fromkeys(
        names, ("operator", TURNS)
    )
    player.play(proxy, RECIPES["end"], "end", *((name,) for name in names))
    assert not sessions(proxy, framework)


def test_runs_that_name_nothing_are_told_apart(proxy: str, framework: str, player: Player) -> None:
    before = sessions(proxy)
    assert all(player.play(proxy, unnamed(RECIPES[framework]), "run", *((task, "") for task in TASKS)))
    found = [each for name, each in sessions(proxy).items() if name not in before]
    assert [each["turns"] for each in found] == [TURNS] * len(TASKS)
    assert {each["rule"].split("-")[0] for each in found} == {"lineage"}


def test_headers_of_the_run_reach_the_proxy(proxy: str, framework: str, player: Player) -> None:
    program = with_header(RECIPES[framework], "X-Parent-Session-ID", "chief")
    player.play(proxy, program, "run", (TASKS[0], f"{framework}-child"))
    assert sessions(proxy, framework)[f"{framework}-child"]["parent"] == "chief"

    program = with_header(RECIPES[framework], "X-Session-Final", "true")
    player.play(proxy, program, "run", (TASKS[0], f"{framework}-final"))
    assert f"{framework}-final" not in sessions(proxy, framework)


@contextmanager
def no_place_left(url: str, model: str) -> Iterator[None]:
    """A stream that ends with the context has the only place."""
    endless = {"model": model, "prompt": "I stay.", "max_tokens": ENDLESS, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{url}/v1/completions", json=endless, timeout=PATIENCE_S) as stream:
        lines = stream.iter_lines()  # kept: without it the stream is closed
        next(lines)
        yield


def wait_for_a_refusal(url: str, seen: float) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while metric(url, REFUSED) == seen:
        assert time.monotonic() < deadline, "nobody was refused"
        time.sleep(POLL_S)


def test_a_refused_run_tries_again_until_there_is_a_place(
    full: str, engine: RigEngine, framework: str, player: Player
) -> None:
    name, refused = f"{framework}-late", metric(full, REFUSED)
    with no_place_left(full, engine.model):
        player.begin(full, RECIPES[framework], "run", (TASKS[0], name))
        wait_for_a_refusal(full, refused)
    assert all(player.result())
    assert sessions(full)[name]["turns"] == TURNS
    player.play(full, RECIPES["end"], "end", (name,))
