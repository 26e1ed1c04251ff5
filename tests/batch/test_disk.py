"""The file of the store: a disk that is full for a while, and a second proxy that wants it."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import openai
import pytest
from openai import OpenAI

from concur_proxy.errors import BackendError
from concur_proxy.sim.server import EngineOptions, EngineServer
from tests.batch.test_client import MODEL, chat, client_of, content, submit, upload, wait
from tests.batch.test_hostile import MOST_BYTES, UPLOAD_BYTES, half_an_upload, takes, until_it
from tests.clients.stack import ProxyProcess, metric

PATIENCE_S = 60.0
FILE_BYTES, PROBE_BYTES = 30_000, 25_000
"""Both fit the store, but not both a probe and what a form that holds the file was promised."""
PURPOSE = b'\r\n--b\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--b--\r\n'
LINES = 100
SPEED = 4.0
"""Slow enough that the batch is still under way when the disk is full."""


def proxy_of(engine: str, store: Path, **env: str) -> ProxyProcess:
    env |= {"CONCUR_BATCH__STORE": str(store), "CONCUR_BATCH__MAX_RUNNING": "8"}
    return ProxyProcess([engine], flags=["--log-level", "warning"], env=env)


@contextmanager
def full_disk(proxy: ProxyProcess, store: Path) -> Iterator[None]:
    """No file of the proxy grows beyond what its log of transactions has now."""
    size = Path(f"{store}-wal").stat().st_size
    pid, before = proxy.pid, resource.prlimit(proxy.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


@dataclass(frozen=True)
class UnderWay:
    engine: EngineServer
    proxy: ProxyProcess
    client: OpenAI
    batch: str


@contextmanager
def batch_under_way(store: Path) -> Iterator[UnderWay]:
    """A batch some of whose lines have been answered."""
    engine = EngineServer(EngineOptions(port=0, model=MODEL, speed=SPEED))
    with engine, proxy_of(engine.url, store) as proxy, client_of(proxy, "k") as client:
        batch = submit(client, [chat(number, tokens=20) for number in range(LINES)]).id
        while client.batches.retrieve(batch).request_counts.completed < 10:
            time.sleep(0.02)
        yield UnderWay(engine, proxy, client, batch)


def until_log_says(proxy: ProxyProcess, words: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while words not in proxy.log():
        assert time.monotonic() < deadline, proxy.log()
        time.sleep(0.02)


def refused(client: OpenAI) -> None:
    with pytest.raises(openai.APIStatusError) as refusal:
        upload(client, [chat(0)])
    assert (refusal.value.status_code, refusal.value.code) == (503, "store_unavailable")
    assert refusal.value.response.headers["retry-after"]


def test_a_batch_goes_on_when_there_is_room_again(tmp_path: Path) -> None:
    store = tmp_path / "batches.db"
    with batch_under_way(store) as one:
        client, batch = one.client, one.batch
        with full_disk(one.proxy, store):
            refused(client)
            until_log_says(one.proxy, f"batch {batch} goes on later")
            assert client.batches.retrieve(batch).status == "in_progress", "what is known can still be asked for"
        done = wait(client, batch, patience_s=PATIENCE_S)
        answers = content(client, done.output_file_id)
    assert (done.status, done.error_file_id) == ("completed", None)
    assert [answer["custom_id"] for answer in answers] == [f"id {number}" for number in range(LINES)]


def test_an_upload_that_the_disk_cannot_take_leaves_nothing_behind(tmp_path: Path) -> None:
    store = tmp_path / "batches.db"
    with EngineServer(EngineOptions(port=0, model=MODEL)) as engine:
        proxy = proxy_of(engine.url, store, CONCUR_BATCH__MAX_BYTES=str(MOST_BYTES))
        with proxy, client_of(proxy, "k") as client, half_an_upload(proxy) as slow:
            until_it(False, client, PROBE_BYTES)
            with full_disk(proxy, store):
                slow.sendall(b"x" * FILE_BYTES + PURPOSE + b" " * (UPLOAD_BYTES - FILE_BYTES))
                assert slow.recv(100).startswith(b"HTTP/1.1 503 ")
                refused(client)
            assert takes(client), "what was promised to it is promised no more"


def test_a_second_proxy_is_refused_and_the_first_one_goes_on(tmp_path: Path) -> None:
    store = tmp_path / "batches.db"
    with batch_under_way(store) as one:
        client, batch = one.client, one.batch
        with pytest.raises(BackendError, match="another process uses it"):
            proxy_of(one.engine.url, store)
        done = wait(client, batch, patience_s=PATIENCE_S)
        assert client.batches.retrieve(batch).status == "completed"
        answers = content(client, done.output_file_id)
        assert metric(one.engine.url, "vllm:request_success_total") == LINES, "no line was sent twice"
    assert [answer["custom_id"] for answer in answers] == [f"id {number}" for number in range(LINES)]
