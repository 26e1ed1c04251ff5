"""OpenAI's own client against the proxy as a process, in front of the embedded engine."""

from __future__ import annotations

import io
import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI
from openai.types import Batch

from concur_proxy.sim.server import EngineOptions, EngineServer
from tests.batch.stores import CHAT, sqlite
from tests.clients.served import Served
from tests.clients.stack import ProxyProcess

PATIENCE_S = 30.0
POLL_S = 0.02
MODEL = "alpha"
ENDED = {"completed", "failed", "expired", "cancelled"}
UPLOAD_LIMIT = 60_000


@pytest.fixture(scope="module")
def engine() -> Iterator[str]:
    with EngineServer(EngineOptions(port=0, model=MODEL, speed=50.0)) as server:
        yield server.url


@pytest.fixture(scope="module")
def proxy(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    store = tmp_path_factory.mktemp("store") / "batches.db"
    env = {
        "CONCUR_BATCH__STORE": str(store),
        "CONCUR_BATCH__MAX_FILE_BYTES": str(UPLOAD_LIMIT),
        "CONCUR_BATCH__MAX_LINES": "100",
        "CONCUR_SERVER__MAX_BODY_BYTES": "4096",
    }
    with ProxyProcess([engine], env=env) as running:
        yield running


@pytest.fixture(scope="module")
def client(proxy: ProxyProcess) -> Iterator[OpenAI]:
    with client_of(proxy, "one") as one:
        yield one


def client_of(proxy: ProxyProcess, key: str) -> OpenAI:
    return OpenAI(base_url=f"{proxy.url}/v1", api_key=key, max_retries=0)


def chat(number: int, text: str = "hi", *, tokens: int = 2, **fields: Any) -> dict[str, Any]:
    body = {"model": MODEL, "max_tokens": tokens, "ignore_eos": True, "messages": [{"role": "user", "content": text}]}
    return {"custom_id": f"id {number}", "method": "POST", "url": CHAT, "body": body, **fields}


def upload(client: OpenAI, lines: list[dict[str, Any]], **more: Any) -> str:
    data = "\n".join(json.dumps(line) for line in lines).encode()
    return client.files.create(file=("in.jsonl", io.BytesIO(data)), purpose="batch", **more).id


def submit(client: OpenAI, lines: list[dict[str, Any]], **more: Any) -> Batch:
    terms = {"endpoint": CHAT, "completion_window": "24h", **more}
    return client.batches.create(input_file_id=upload(client, lines), **terms)


def wait(client: OpenAI, batch: str, *states: str, patience_s: float = PATIENCE_S) -> Batch:
    deadline = time.monotonic() + patience_s
    while (now := client.batches.retrieve(batch)).status not in (states or ENDED):
        assert time.monotonic() < deadline, now
        time.sleep(POLL_S)
    return now


def content(client: OpenAI, file: str | None) -> list[dict[str, Any]]:
    assert file is not None
    return [json.loads(line) for line in client.files.content(file).text.splitlines()]


def test_a_batch_from_its_file_to_its_answers(client: OpenAI) -> None:
    batch = submit(client, [chat(number, f"hello {number}") for number in range(20)], metadata={"night": "ly"})
    assert (batch.object, batch.status, batch.errors, batch.metadata) == ("batch", "validating", None, {"night": "ly"})
    assert batch.expires_at == batch.created_at + 86_400
    done = wait(client, batch.id)
    assert done.status == "completed"
    assert done.request_counts is not None
    assert done.usage is not None
    assert (done.request_counts.total, done.request_counts.completed, done.request_counts.failed) == (20, 20, 0)
    assert (done.model, done.error_file_id, done.usage.output_tokens) == (MODEL, None, 40)
    times = [done.created_at, done.in_progress_at, done.finalizing_at, done.completed_at]
    assert times == sorted(time for time in times if time is not None)
    answers = content(client, done.output_file_id)
    assert [answer["custom_id"] for answer in answers] == [f"id {number}" for number in range(20)]
    assert all(answer["response"]["body"]["object"] == "chat.completion" for answer in answers)
    assert all(answer["error"] is None for answer in answers)


def test_files_as_objects(client: OpenAI) -> None:
    kept = {"anchor": "created_at", "seconds": 7200}
    file = upload(client, [chat(1)], expires_after=kept)
    found = client.files.retrieve(file)
    assert (found.object, found.purpose, found.filename, found.status) == ("file", "batch", "in.jsonl", "processed")
    assert found.expires_at == found.created_at + 7200
    assert len(client.files.content(file).read()) == found.bytes
    assert client.files.delete(file).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(file)
    with pytest.raises(openai.NotFoundError):
        client.files.content(file)


def test_lists_come_in_pages(proxy: ProxyProcess) -> None:
    with client_of(proxy, "pages") as own:
        files = [upload(own, [chat(1)]) for _ in range(5)]
        assert [file.id for file in own.files.list(limit=2)] == files[::-1]
        assert [file.id for file in own.files.list(limit=2, order="asc")] == files
        assert [file.id for file in own.files.list(after=files[2])] == files[1::-1]
        assert [file.id for file in own.files.list(purpose="batch_output")] == []
        batches = [own.batches.create(input_file_id=file, endpoint=CHAT, completion_window="24h").id for file in files]
        page = own.batches.list(limit=2)
        assert (page.has_more, [batch.id for batch in page.data]) == (True, batches[:2:-1])
        assert [batch.id for batch in own.batches.list(limit=2)] == batches[::-1]


def test_another_key_sees_nothing(client: OpenAI, proxy: ProxyProcess) -> None:
    batch = submit(client, [chat(1)])
    done = wait(client, batch.id)
    with client_of(proxy, "two") as other:
        assert other.files.list().data == other.batches.list().data == []
        for refused in (
            lambda: other.files.retrieve(batch.input_file_id),
            lambda: other.files.content(done.output_file_id or ""),
            lambda: other.files.delete(batch.input_file_id),
            lambda: other.batches.retrieve(batch.id),
            lambda: other.batches.cancel(batch.id),
            lambda: other.batches.list(after=batch.id),
            lambda: other.files.list(after=batch.input_file_id),
            lambda: other.batches.create(input_file_id=batch.input_file_id, endpoint=CHAT, completion_window="24h"),
        ):
            with pytest.raises(openai.NotFoundError):
                refused()


def test_an_input_that_is_not_in_order_fails_with_its_lines(client: OpenAI) -> None:
    failed = wait(client, submit(client, [chat(1), chat(1), chat(2, url="/v1/x")]).id)
    assert (failed.status, failed.output_file_id, failed.failed_at is not None) == ("failed", None, True)
    assert failed.errors is not None
    errors = [(error.code, error.line, error.param) for error in failed.errors.data or []]
    assert errors == [("duplicate_custom_id", 2, "custom_id"), ("url_mismatch", 3, "url")]
    many = wait(client, submit(client, [chat(number) for number in range(101)]).id)
    assert many.errors is not None
    assert [error.code for error in many.errors.data or []] == ["too_many_tasks"]


def test_errors_of_lines_are_in_the_error_file(client: OpenAI) -> None:
    unknown = chat(2)
    unknown["body"]["model"] = "nobody's"
    done = wait(client, submit(client, [chat(1), unknown, chat(3)]).id)
    assert done.status == "completed"
    assert done.request_counts is not None
    assert (done.request_counts.completed, done.request_counts.failed) == (2, 1)
    assert [answer["custom_id"] for answer in content(client, done.output_file_id)] == ["id 1", "id 3"]
    (error,) = content(client, done.error_file_id)
    assert (error["custom_id"], error["response"]["status_code"], error["error"]) == ("id 2", 404, None)
    assert error["response"]["body"]["error"]["code"] == "model_not_found"


def test_other_endpoints(client: OpenAI) -> None:
    line = {"custom_id": "e", "method": "POST", "url": "/v1/embeddings", "body": {"model": MODEL, "input": "hi"}}
    done = wait(client, submit(client, [line], endpoint="/v1/embeddings").id)
    (answer,) = content(client, done.output_file_id)
    assert answer["response"]["body"]["data"][0]["object"] == "embedding"


def test_uploads_have_a_limit_of_their_own(client: OpenAI, proxy: ProxyProcess) -> None:
    large = b"x" * (UPLOAD_LIMIT - 1000)
    assert client.files.create(file=("large", large), purpose="batch").bytes == len(large)
    for size in (UPLOAD_LIMIT + 1, UPLOAD_LIMIT * 10):
        with pytest.raises(openai.APIStatusError) as caught:
            client.files.create(file=("larger", b"x" * size), purpose="batch")
        assert caught.value.status_code == 413
        assert "batch.max_file_bytes" in caught.value.message
    posted = httpx.post(f"{proxy.url}/v1/batches", content=b"x" * 10_000)
    assert (posted.status_code, posted.json()["error"]["code"]) == (413, "body_too_large")


def test_forms_that_are_not_in_order_leave_no_file(client: OpenAI, proxy: ProxyProcess) -> None:
    before = len(client.files.list().data)
    with pytest.raises(openai.BadRequestError) as caught:
        client.files.create(file=("a", b"x"), purpose="vision")
    assert caught.value.param == "purpose"
    key = {"authorization": "Bearer one"}
    for sent in (
        {"json": {}},
        {"data": {"purpose": "batch"}},
        {"files": {"other": b"x"}, "data": {"purpose": "batch"}},
    ):
        assert httpx.post(f"{proxy.url}/v1/files", headers=key, **sent).status_code == 400
    assert len(client.files.list().data) == before


def test_requests_that_cannot_be_served_name_the_parameter(client: OpenAI) -> None:
    file = upload(client, [chat(1)])
    for changes, param in (
        ({"completion_window": "soon"}, "completion_window"),
        ({"endpoint": "/v1/moderations"}, "endpoint"),
        ({"metadata": {"a": "x" * 600}}, "metadata"),
    ):
        terms: Any = {"input_file_id": file, "endpoint": CHAT, "completion_window": "24h", **changes}
        with pytest.raises(openai.BadRequestError) as caught:
            client.batches.create(**terms)
        assert caught.value.param == param
    done = wait(client, submit(client, [chat(1)]).id)
    with pytest.raises(openai.BadRequestError):
        client.batches.cancel(done.id)
    with pytest.raises(openai.BadRequestError):
        client.batches.create(input_file_id=done.output_file_id or "", endpoint=CHAT, completion_window="24h")


def test_where_it_is_off_the_answer_says_how_it_is_switched_on(engine: str) -> None:
    with ProxyProcess([engine]) as plain, client_of(plain, "k") as asking:
        for ask in (asking.files.list, asking.batches.list, lambda: asking.batches.retrieve("batch_1")):
            with pytest.raises(openai.NotFoundError) as caught:
                ask()
            assert caught.value.code == "batch_off"
            assert "CONCUR_BATCH__STORE" in caught.value.message


class Gate:
    """What a slow engine has been asked, and whether it may answer."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.changed = threading.Condition()
        self.asked: list[dict[str, Any]] = []
        self.left = 0

    def wait_for(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.asked) >= count, PATIENCE_S), self.asked


class SlowHandler(BaseHTTPRequestHandler):
    """Answers when the gate opens; notes who comes, and who leaves before."""

    gate: Gate
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.reply({"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with self.gate.changed:
            self.gate.asked.append({"headers": {k.lower(): v for k, v in self.headers.items()}, "body": body})
            self.gate.changed.notify_all()
        while not self.gate.open.wait(POLL_S):
            self.connection.setblocking(False)
            try:
                gone = not self.connection.recv(1)
            except BlockingIOError:
                gone = False
            finally:
                self.connection.setblocking(True)
            if gone:
                with self.gate.changed:
                    self.gate.left += 1
                    self.gate.changed.notify_all()
                self.close_connection = True
                return
        self.reply({"object": "chat.completion", "usage": {"prompt_tokens": 1, "completion_tokens": 1}})

    def reply(self, fields: dict[str, Any]) -> None:
        body = json.dumps(fields).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class SlowEngine(Served):
    def __init__(self) -> None:
        self.gate = Gate()
        self.handler = type("Handler", (SlowHandler,), {"gate": self.gate})


@pytest.fixture
def slow() -> Iterator[SlowEngine]:
    with SlowEngine() as server:
        yield server
        server.gate.open.set()


def slow_proxy(slow: SlowEngine, tmp_path: Path, **env: str) -> ProxyProcess:
    names = {"CONCUR_BATCH__STORE": str(tmp_path / "batches.db"), "CONCUR_CONTROL__LAW": "unlimited", **env}
    return ProxyProcess([slow.url], env=names)


def test_a_cancelled_batch_keeps_what_it_has(slow: SlowEngine, tmp_path: Path) -> None:
    with slow_proxy(slow, tmp_path, CONCUR_BATCH__MAX_RUNNING="2") as proxy, client_of(proxy, "k") as client:
        batch = submit(client, [chat(number) for number in range(6)])
        slow.gate.wait_for(2)
        with pytest.raises(openai.BadRequestError):
            client.files.delete(batch.input_file_id)
        assert client.batches.cancel(batch.id).status in {"cancelling", "cancelled"}
        done = wait(client, batch.id)
        assert (done.status, done.output_file_id) == ("cancelled", None)
        assert done.cancelling_at is not None
        assert done.cancelled_at is not None
        errors = content(client, done.error_file_id)
        assert [error["custom_id"] for error in errors] == [f"id {number}" for number in range(6)]
        assert {error["error"]["code"] for error in errors} == {"batch_cancelled"}
        with slow.gate.changed:
            assert slow.gate.changed.wait_for(lambda: slow.gate.left == 2, PATIENCE_S)
        assert len(slow.gate.asked) == 2
        assert client.batches.cancel(batch.id).status == "cancelled"
        assert client.files.delete(batch.input_file_id).deleted


def test_a_batch_that_takes_too_long_expires(slow: SlowEngine, tmp_path: Path) -> None:
    with slow_proxy(slow, tmp_path, CONCUR_BATCH__MAX_RUNNING="1") as proxy, client_of(proxy, "k") as client:
        done = wait(client, submit(client, [chat(1), chat(2)], completion_window="1s").id)
        assert (done.status, done.output_file_id) == ("expired", None)
        assert done.expired_at is not None
        assert done.request_counts is not None
        assert (done.request_counts.completed, done.request_counts.failed) == (0, 0)
        assert [e["error"]["code"] for e in content(client, done.error_file_id)] == ["batch_expired"] * 2


def test_lines_of_one_session_go_one_after_another_with_their_owners_key(slow: SlowEngine, tmp_path: Path) -> None:
    with slow_proxy(slow, tmp_path) as proxy, client_of(proxy, "secret") as client:
        lines = [chat(number, headers={"X-Session-ID": f"s{number % 2}"}) for number in range(8)]
        batch = submit(client, [*lines, chat(8)])
        slow.gate.wait_for(3)
        first = slow.gate.asked[:]
        assert sorted(asked["headers"].get("x-session-id", "") for asked in first) == ["", "s0", "s1"]
        slow.gate.open.set()
        done = wait(client, batch.id)
        assert [answer["custom_id"] for answer in content(client, done.output_file_id)] == [f"id {n}" for n in range(9)]
        for session in ("s0", "s1"):
            ids = [a["headers"]["x-request-id"] for a in slow.gate.asked if a["headers"].get("x-session-id") == session]
            assert ids == sorted(ids)
            assert len(ids) == 4
        assert {asked["headers"]["authorization"] for asked in slow.gate.asked} == {"Bearer secret"}
        assert not any(name.startswith("x-concur") for asked in slow.gate.asked for name in asked["headers"])


def test_interactive_turns_have_their_share_while_a_batch_waits(slow: SlowEngine, tmp_path: Path) -> None:
    env = {"CONCUR_GATE__ORDER": "lanes", "CONCUR_GATE__HOT_SHARE": "0.5", "CONCUR_CONTROL__LAW": "fixed"}
    with slow_proxy(slow, tmp_path, CONCUR_CONTROL__FIXED__WINDOW="2", **env) as proxy, client_of(proxy, "k") as client:
        batch = submit(client, [chat(number) for number in range(5)])
        slow.gate.wait_for(1)
        asking = threading.Thread(target=ask, args=(proxy.url,))
        asking.start()
        slow.gate.wait_for(2)
        assert ["batch" in asked["headers"]["x-request-id"] for asked in slow.gate.asked] == [True, False]
        slow.gate.open.set()
        asking.join()
        assert wait(client, batch.id).status == "completed"


def ask(url: str) -> None:
    assert httpx.post(f"{url}{CHAT}", json=chat(9)["body"], timeout=PATIENCE_S).status_code == 200


def test_who_leaves_during_an_upload_leaves_nothing(tmp_path: Path, engine: str) -> None:
    store = tmp_path / "batches.db"
    with ProxyProcess([engine], env={"CONCUR_BATCH__STORE": str(store)}) as proxy:
        head = b"POST /v1/files HTTP/1.1\r\nhost: x\r\ncontent-length: 9000000\r\n"
        form = b'--b\r\ncontent-disposition: form-data; name="file"; filename="f"\r\n\r\n' + b"x" * 600_000
        with socket.create_connection(("127.0.0.1", proxy.port)) as leaving:
            leaving.sendall(head + b"content-type: multipart/form-data; boundary=b\r\n\r\n" + form)
        with client_of(proxy, "k") as client:
            wait(client, submit(client, [chat(1)]).id)
        assert "Traceback" not in proxy.log()
    with sqlite(store) as stores, stores.database.transaction() as t:
        assert t.rows("SELECT * FROM files WHERE whole = 0") == []
        assert t.rows("SELECT * FROM chunks WHERE file NOT IN (SELECT id FROM files)") == []
