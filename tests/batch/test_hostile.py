"""Clients that are careless, and moments that are bad, against the proxy as a process."""

from __future__ import annotations

import io
import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import openai
import pytest
from openai import OpenAI

from concur_proxy.sim.server import EngineOptions, EngineServer
from tests.batch.test_client import MODEL, chat, client_of, content, wait
from tests.batch.test_kill import kill
from tests.clients.stack import ProxyProcess

PATIENCE_S = 60.0
MOST_BYTES = 60_000
UPLOAD_BYTES = 40_000


@pytest.fixture(scope="module")
def engine() -> Iterator[str]:
    with EngineServer(EngineOptions(port=0, model=MODEL, speed=50.0)) as server:
        yield server.url


def proxy_of(engine: str, store: Path) -> ProxyProcess:
    return ProxyProcess([engine], env={"CONCUR_BATCH__STORE": str(store), "CONCUR_BATCH__MAX_BYTES": str(MOST_BYTES)})


@contextmanager
def half_an_upload(proxy: ProxyProcess) -> Iterator[socket.socket]:
    """A client that has sent a part of its file, and waits."""
    head = b"POST /v1/files HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n" % UPLOAD_BYTES
    form = b'--b\r\ncontent-disposition: form-data; name="file"; filename="f"\r\n\r\n' + b"x" * 1000
    with socket.create_connection(("127.0.0.1", proxy.port)) as slow:
        slow.sendall(head + b"content-type: multipart/form-data; boundary=b\r\n\r\n" + form)
        yield slow


def takes(client: OpenAI, size: int = UPLOAD_BYTES) -> bool:
    """Whether there is room for another upload."""
    try:
        file = client.files.create(file=("f", b"x" * size), purpose="batch")
    except openai.APIStatusError as error:
        if error.status_code == 413:
            return False
        raise
    client.files.delete(file.id)
    return True


def until_it(takes_it: bool, client: OpenAI, size: int = UPLOAD_BYTES) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while takes(client, size) != takes_it:
        assert time.monotonic() < deadline


def test_uploads_at_the_same_time_take_no_more_than_there_is(engine: str, tmp_path: Path) -> None:
    store = tmp_path / "batches.db"
    proxy = proxy_of(engine, store)
    with client_of(proxy, "k") as client:
        with half_an_upload(proxy):
            until_it(False, client)
        until_it(True, client)
        with half_an_upload(proxy):
            until_it(False, client)
            kill(proxy)
    with proxy_of(engine, store) as proxy, client_of(proxy, "k") as client:
        assert takes(client), "what a killed proxy had promised is promised no more"


def test_a_file_as_some_editors_write_it(engine: str, tmp_path: Path) -> None:
    """With a byte order mark, and lines that end as on Windows."""
    text = "\r\n".join(json.dumps(chat(number)) for number in range(3)) + "\r\n\r\n"
    with proxy_of(engine, tmp_path / "batches.db") as proxy, client_of(proxy, "k") as client:
        sent = io.BytesIO(text.encode("utf-8-sig"))
        file = client.files.create(file=("a.jsonl", sent), purpose="batch")
        batch = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
        done = wait(client, batch.id)
        assert done.status == "completed", done.errors
        assert [answer["custom_id"] for answer in content(client, done.output_file_id)] == ["id 0", "id 1", "id 2"]
