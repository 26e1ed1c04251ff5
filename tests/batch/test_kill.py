"""The proxy is killed again and again; a batch goes on where it was."""

from __future__ import annotations

import itertools
import os
import signal
from pathlib import Path
from random import Random

import pytest

from concur_proxy.bench.proxy_process import ProxyProcess
from concur_proxy.sim.server import EngineOptions, EngineServer
from tests.batch.stores import sqlite
from tests.batch.test_client import chat, client_of, content, submit, wait
from tests.clients.stack import ended

LINES, KILLS = 1000, 20
PATIENCE_S = 120.0
MODEL = "alpha"
SPEED = 4.0
"""Slow enough that the batch is still under way when it is looked at."""


def proxy_of(engine: str, store: Path) -> ProxyProcess:
    return ProxyProcess(
        [engine],
        flags=["--log-level", "warning"],
        env={"CONCUR_BATCH__STORE": str(store), "CONCUR_BATCH__MAX_RUNNING": "8"},
    )


def kill(proxy: ProxyProcess) -> None:
    pid = proxy.pid
    os.kill(pid, signal.SIGKILL)
    assert ended(pid)
    proxy.close()


def progress(store: Path) -> tuple[str, int]:
    """What the store holds of its one batch."""
    with sqlite(store) as stores, stores.database.transaction() as t:
        (row,) = t.rows("SELECT status, completed FROM batches")
        return row["status"], row["completed"]


@pytest.mark.slow
def test_every_line_is_answered_once_however_often_the_proxy_is_killed(tmp_path: Path) -> None:
    store, chance = tmp_path / "batches.db", Random(5)
    named = [{"X-Session-ID": f"s{n % 300}"} if n % 3 else {} for n in range(LINES)]
    lines = [chat(n, f"task {n}", tokens=20, headers=headers) for n, headers in enumerate(named)]
    with EngineServer(EngineOptions(port=0, model=MODEL, speed=SPEED)) as engine:
        proxy = proxy_of(engine.url, store)
        with client_of(proxy, "k") as client:
            batch = submit(client, lines).id
        seen = []
        for number in range(KILLS):
            with client_of(proxy, "k") as client:
                target = LINES * number / KILLS + chance.uniform(1, LINES / KILLS / 2)
                while (now := client.batches.retrieve(batch)).request_counts.completed < target:
                    assert now.status in {"validating", "in_progress"}
            kill(proxy)
            seen.append(progress(store))
            proxy = proxy_of(engine.url, store)
        with proxy, client_of(proxy, "k") as client:
            done = wait(client, batch, patience_s=PATIENCE_S)
            answers = content(client, done.output_file_id)
    assert [status for status, _ in seen] == ["in_progress"] * KILLS
    assert all(0 < before <= after for (_, before), (_, after) in itertools.pairwise(seen))
    assert (done.status, done.error_file_id) == ("completed", None)
    assert done.request_counts is not None
    assert (done.request_counts.total, done.request_counts.completed) == (LINES, LINES)
    assert [answer["custom_id"] for answer in answers] == [f"id {n}" for n in range(LINES)]
    assert all(answer["response"]["status_code"] == 200 for answer in answers)


def test_a_batch_that_was_just_taken_is_not_forgotten(tmp_path: Path) -> None:
    store = tmp_path / "batches.db"
    with EngineServer(EngineOptions(port=0, model=MODEL, speed=50.0)) as engine:
        proxy = proxy_of(engine.url, store)
        with client_of(proxy, "k") as client:
            batch = submit(client, [chat(n) for n in range(90)]).id
        kill(proxy)
        with proxy_of(engine.url, store) as proxy, client_of(proxy, "k") as client:
            answers = content(client, wait(client, batch).output_file_id)
    assert [answer["custom_id"] for answer in answers] == [f"id {n}" for n in range(90)]
