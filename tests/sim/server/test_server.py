"""The embedded engine over real sockets, in a process of its own."""

import asyncio
import base64
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

from concur_proxy.errors import ConfigError
from concur_proxy.sim import tokens
from concur_proxy.sim.server import EngineOptions, EngineServer, build_app, run

TOOL = {
    "type": "function",
    "function": {"name": "read_file", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}},
}
HI = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def fast():
    """Steps of well under a millisecond."""
    with EngineServer(EngineOptions(port=0, speed=200, model="tiny", seed=7)) as server:
        yield server


@pytest.fixture(scope="module")
def slow():
    """Real time, one request at a time, 15 ms a token: what is sent stays until it is aborted."""
    with EngineServer(EngineOptions(port=0, max_num_seqs=1, model="tiny", max_queued=2)) as server:
        yield server


@pytest.fixture
def client(fast):
    with httpx.Client(base_url=fast.url, timeout=20) as client:
        yield client


def chat(client: httpx.Client, **fields) -> dict:
    response = client.post("/v1/chat/completions", json={"model": "tiny", "messages": HI, **fields})
    assert response.status_code == 200, response.text
    return response.json()


def metrics(url: str) -> dict[str, float]:
    page = httpx.get(f"{url}/metrics")
    assert page.headers["content-type"].startswith("text/plain")
    samples = [sample for family in text_string_to_metric_families(page.text) for sample in family.samples]
    return {sample.name: sample.value for sample in samples if not {"le", "reason"} & set(sample.labels)}


def wait_until(url: str, condition: Callable[[dict[str, float]], bool]) -> dict[str, float]:
    """Read the metrics until they are as wanted."""
    deadline = time.monotonic() + 10
    while not condition(now := metrics(url)):
        assert time.monotonic() < deadline, now
    return now


def events(text: str) -> list[dict]:
    lines = text.split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]


# ---------------------------------------------------------------------- answers


def test_a_chat_that_is_not_streamed(client):
    body = chat(client, max_tokens=12, ignore_eos=True)
    assert (body["object"], body["model"]) == ("chat.completion", "tiny")
    (choice,) = body["choices"]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["role"] == "assistant"
    assert tokens.count(choice["message"]["content"]) == 12
    assert body["usage"]["completion_tokens"] == 12
    assert body["usage"]["total_tokens"] == body["usage"]["prompt_tokens"] + 12


def test_a_stream_says_the_same_one_chunk_a_token(client):
    fields = {"max_tokens": 9, "seed": 4, "ignore_eos": True}
    whole = chat(client, **fields)
    body = {"messages": HI, "stream": True, "stream_options": {"include_usage": True}, **fields}
    response = client.post("/v1/chat/completions", json=body)
    assert response.headers["content-type"].startswith("text/event-stream")
    opening, *parts, usage = events(response.text)
    assert opening["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert len(parts) == 9
    assert (
        "".join(part["choices"][0]["delta"]["content"] for part in parts) == whole["choices"][0]["message"]["content"]
    )
    assert [part["choices"][0]["finish_reason"] for part in parts] == [None] * 8 + ["length"]
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 9
    assert {part["object"] for part in (opening, *parts, usage)} == {"chat.completion.chunk"}
    assert len({part["id"] for part in (opening, *parts, usage)}) == 1


def test_a_stream_without_usage_has_none(client):
    response = client.post("/v1/chat/completions", json={"messages": HI, "stream": True, "max_tokens": 2})
    assert all("usage" not in part for part in events(response.text))


def test_a_growing_conversation_hits_the_theoretical_maximum(client):
    messages = [{"role": "system", "content": "rules " * 60}, {"role": "user", "content": "start"}]
    known = 0
    for length in (20, 33, 7, 64):
        body = chat(client, messages=messages, max_tokens=length, ignore_eos=True)
        assert body["usage"]["prompt_tokens_details"]["cached_tokens"] == known // 16 * 16
        known = body["usage"]["total_tokens"] - 1
        messages.append({"role": "assistant", "content": body["choices"][0]["message"]["content"]})
        messages.append({"role": "user", "content": "go on " * length})
    assert known > 200


def test_a_conversation_with_tool_calls_hits_as_well(client):
    messages = [{"role": "user", "content": "look around " * 20}]
    known = 0
    for _ in range(3):
        body = chat(client, messages=messages, tools=[TOOL], tool_choice="required", max_tokens=40, ignore_eos=True)
        assert body["usage"]["prompt_tokens_details"]["cached_tokens"] == known // 16 * 16
        known = body["usage"]["total_tokens"] - 1
        (choice,) = body["choices"]
        assert choice["finish_reason"] == "tool_calls"
        (call,) = choice["message"]["tool_calls"]
        assert json.loads(call["function"]["arguments"])["path"]
        messages += [choice["message"], {"role": "tool", "tool_call_id": call["id"], "content": "found " * 30}]


def test_several_choices_share_one_prompt(client):
    body = chat(client, messages=[{"role": "user", "content": "choose " * 50}], n=3, max_tokens=10, ignore_eos=True)
    said = [choice["message"]["content"] for choice in body["choices"]]
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
    assert len(set(said)) == 3
    assert body["usage"]["completion_tokens"] == 30
    assert body["usage"]["prompt_tokens"] < 120
    stream = {"messages": HI, "n": 2, "max_tokens": 5, "ignore_eos": True, "stream": True}
    parts = events(client.post("/v1/chat/completions", json=stream).text)
    assert sorted(part["choices"][0]["index"] for part in parts) == [0] * 6 + [1] * 6


def test_text_completions_go_on_where_the_prompt_ended(client):
    prompt = "once upon a time " * 10 + "x"
    for streamed in (False, True):
        body = {"prompt": prompt, "max_tokens": 30, "ignore_eos": True, "stream": streamed}
        response = client.post("/v1/completions", json=body)
        text = "".join(
            part["choices"][0]["text"] for part in ([response.json()] if not streamed else events(response.text))
        )
        assert tokens.count(prompt + text) == tokens.count(prompt) + 30
    body = client.post("/v1/completions", json={"prompt": prompt + text + " and", "max_tokens": 1}).json()
    most = (tokens.count(prompt) + 29) // 16 * 16
    assert most - 16 <= body["usage"]["prompt_tokens_details"]["cached_tokens"] <= most
    assert (body["object"], body["id"][:5]) == ("text_completion", "cmpl-")


def test_several_text_prompts_are_answered_in_one_go(client):
    body = client.post("/v1/completions", json={"prompt": ["abcd", "efghijkl"], "n": 2, "max_tokens": 3}).json()
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]
    assert body["usage"]["prompt_tokens"] == 3


def test_the_same_seed_gives_the_same_bytes_in_another_process(client):
    def said(url):
        body = {"messages": HI, "stream": True, "max_tokens": 40}
        parts = events(httpx.post(f"{url}/v1/chat/completions", json=body).text)
        return [part["choices"] for part in parts]

    first = said(str(client.base_url).rstrip("/"))
    with EngineServer(EngineOptions(port=0, speed=200, model="tiny", seed=7)) as twin:
        assert said(twin.url) == first
    with EngineServer(EngineOptions(port=0, speed=200, model="tiny", seed=8, cached_tokens=False)) as other:
        assert said(other.url) != first
        usage = httpx.post(f"{other.url}/v1/chat/completions", json={"messages": HI}).json()["usage"]
        assert usage["prompt_tokens_details"] is None


def test_an_answer_is_named_after_the_clients_request(client):
    response = client.post(
        "/v1/chat/completions", json={"messages": HI, "max_tokens": 1}, headers={"x-request-id": "r7"}
    )
    assert response.json()["id"] == "chatcmpl-r7"


def test_a_salt_keeps_two_clients_caches_apart(client):
    messages = [{"role": "user", "content": "the same " * 40}]
    cached = [
        chat(client, messages=messages, max_tokens=1, cache_salt=salt)["usage"]["prompt_tokens_details"][
            "cached_tokens"
        ]
        for salt in ("a", "b", "a")
    ]
    assert cached[:2] == [0, 0]
    assert cached[2] > 0


def test_the_official_client_works_unchanged(fast):
    with openai.OpenAI(base_url=f"{fast.url}/v1", api_key="none") as client:
        answer = client.chat.completions.create(model="tiny", messages=HI, max_tokens=8)
        assert answer.usage.completion_tokens <= 8
        with client.chat.completions.create(
            model="tiny", messages=HI, max_tokens=30, stream=True, tools=[TOOL], tool_choice="required"
        ) as stream:
            parts = [part for part in stream if part.choices]
        calls = [call for part in parts for call in part.choices[0].delta.tool_calls or ()]
        assert calls[0].function.name == "read_file"
        assert json.loads("".join(call.function.arguments for call in calls))["path"]
        assert parts[-1].choices[0].finish_reason == "tool_calls"
        vectors = client.embeddings.create(model="tiny", input=["a", "b", "a"]).data
        assert vectors[0].embedding == vectors[2].embedding != vectors[1].embedding
        assert sum(value**2 for value in vectors[0].embedding) == pytest.approx(1, rel=1e-5)
        assert client.models.list().data[0].model_dump()["max_model_len"] > 10_000
        with pytest.raises(openai.NotFoundError, match="does not exist"):
            client.chat.completions.create(model="other", messages=HI)
        with pytest.raises(openai.BadRequestError, match="context length"):
            client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "x" * 200_000}])


# ---------------------------------------------------------------------- other paths


def test_embeddings_come_as_numbers_or_packed(client):
    body = {"input": "abc", "model": "tiny"}
    plain = client.post("/v1/embeddings", json=body).json()
    packed = client.post("/v1/embeddings", json={**body, "encoding_format": "base64"}).json()
    raw = base64.b64decode(packed["data"][0]["embedding"])
    assert list(struct.unpack(f"{len(raw) // 4}f", raw)) == pytest.approx(plain["data"][0]["embedding"])
    assert plain["usage"]["prompt_tokens"] == 1


def test_tokens_are_counted_as_a_chat_counts_them(client):
    counted = client.post("/tokenize", json={"messages": HI}).json()
    assert counted["count"] == len(counted["tokens"]) == chat(client, max_tokens=1)["usage"]["prompt_tokens"]
    assert counted["max_model_len"] > 10_000
    assert client.post("/tokenize", json={"prompt": "abcdefg"}).json()["count"] == 2


def test_health_version_and_models(client):
    assert client.get("/health").status_code == 200
    assert client.head("/health").status_code == 200
    assert client.get("/version").json()["version"]
    (model,) = client.get("/v1/models").json()["data"]
    assert model["id"] == "tiny"


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/chat/completions", b"{", 400),
        ("POST", "/v1/chat/completions", b'{"messages": []}', 400),
        ("POST", "/v1/chat/completions", b'{"model": "x", "messages": [{"role": "user", "content": "a"}]}', 404),
        ("POST", "/v1/completions", b'{"prompt": 3}', 400),
        ("POST", "/v1/embeddings", b"[]", 400),
        ("POST", "/tokenize", b"{}", 400),
        ("GET", "/v1/chat/completions", b"", 405),
        ("POST", "/v1/models", b"", 405),
        ("GET", "/nothing", b"", 404),
    ],
)
def test_errors_have_openais_shape(client, method, path, body, status):
    response = client.request(method, path, content=body)
    assert response.status_code == status
    error = response.json()["error"]
    assert error["code"] == status
    assert error["message"]
    assert error["type"]


def test_a_reset_empties_the_cache(client):
    messages = [{"role": "user", "content": "remember " * 40}]
    for _ in range(2):
        body = chat(client, messages=messages, max_tokens=1)
    assert body["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    assert client.post("/reset_prefix_cache").json() == {"success": True}
    assert chat(client, messages=messages, max_tokens=1)["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_a_megabyte_of_prompt_is_served():
    options = EngineOptions(port=0, speed=1000, profile="qwen3-32b-8xh100", kv_tokens=600_000, max_model_len=500_000)
    with EngineServer(options) as server:
        body = {"messages": [{"role": "user", "content": "long " * 200_000}], "max_tokens": 2}
        usage = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=20).json()["usage"]
        assert usage["prompt_tokens"] > 250_000


# ---------------------------------------------------------------------- clients that leave, and load


def send(url: str, body: dict) -> socket.socket:
    """Send a request on a connection of its own and leave the answer unread."""
    raw = json.dumps(body).encode()
    port = httpx.URL(url).port
    connection = socket.create_connection(("127.0.0.1", port), timeout=10)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(raw)}\r\n\r\n".encode()
    connection.sendall(head + raw)
    return connection


LONG = {"messages": HI, "max_tokens": 20_000, "ignore_eos": True}


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
def test_a_client_that_leaves_ends_its_request_running_or_waiting(slow, streamed):
    running = send(slow.url, {**LONG, "stream": streamed})
    wait_until(slow.url, lambda now: now["vllm:num_requests_running"] == 1)
    waiting = send(slow.url, {**LONG, "stream": streamed})
    busy = wait_until(slow.url, lambda now: now["vllm:num_requests_waiting"] == 1)
    assert busy["vllm:kv_cache_usage_perc"] > 0
    waiting.close()
    left = wait_until(slow.url, lambda now: now["vllm:num_requests_waiting"] == 0)
    assert left["vllm:num_requests_running"] == 1
    running.close()
    idle = wait_until(slow.url, lambda now: now["vllm:num_requests_running"] == 0)
    assert idle["vllm:kv_cache_usage_perc"] == 0


def test_a_client_that_leaves_amid_its_own_request_leaves_nothing_behind(slow):
    connection = socket.create_connection(("127.0.0.1", httpx.URL(slow.url).port), timeout=10)
    connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
    connection.close()
    assert metrics(slow.url)["vllm:num_requests_running"] == 0


def test_an_engine_with_a_limit_sheds_load(slow):
    connections = [send(slow.url, LONG)]
    wait_until(slow.url, lambda now: now["vllm:num_requests_running"] == 1)
    connections += [send(slow.url, LONG) for _ in range(2)]
    wait_until(slow.url, lambda now: now["vllm:num_requests_waiting"] == 2)
    refused = httpx.post(f"{slow.url}/v1/chat/completions", json=LONG)
    assert refused.status_code == 503
    assert refused.json()["error"]["type"] == "ServiceUnavailableError"
    assert httpx.post(f"{slow.url}/reset_prefix_cache").json() == {"success": False}
    for connection in connections:
        connection.close()
    wait_until(slow.url, lambda now: now["vllm:num_requests_running"] + now["vllm:num_requests_waiting"] == 0)


def test_many_agents_at_once_leave_the_gauges_at_zero(fast):
    def agent(number):
        with httpx.Client(base_url=fast.url, timeout=30) as client:
            messages = [{"role": "user", "content": f"agent {number} " * 50}]
            made = 0
            for _ in range(5):
                body = chat(client, messages=messages, max_tokens=20, ignore_eos=True)
                made += body["usage"]["completion_tokens"]
                messages.append({"role": "assistant", "content": body["choices"][0]["message"]["content"]})
                messages.append({"role": "user", "content": "more " * 40})
            return made

    before = metrics(fast.url)["vllm:generation_tokens_total"]
    with ThreadPoolExecutor(16) as pool:
        made = sum(pool.map(agent, range(16)))
    after = metrics(fast.url)
    assert after["vllm:generation_tokens_total"] - before == made == 16 * 5 * 20
    assert after["vllm:num_requests_running"] == after["vllm:kv_cache_usage_perc"] == 0


# ---------------------------------------------------------------------- the process


def test_a_terminated_server_exits_with_0_even_with_a_request_under_way():
    with EngineServer(EngineOptions(port=0)) as server:
        connection = send(server.url, {**LONG, "stream": True})
        wait_until(server.url, lambda now: now["vllm:num_requests_running"] == 1)
        assert server.close() == 0
        connection.close()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", server.port), timeout=5)


def test_in_the_foreground_a_termination_is_a_clean_exit_too():
    code = (
        "from concur_proxy.sim.server import EngineOptions, run\n"
        "import socket, sys\n"
        "run(EngineOptions(port=int(sys.argv[1]), speed=100)); print('over')"
    )
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-c", code, str(port)], stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 20
    while True:
        try:
            assert httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
            break
        except httpx.TransportError:
            assert time.monotonic() < deadline
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=20)
    assert (process.returncode, said) == (0, "over\n")


def test_the_child_ends_when_its_parent_is_killed():
    code = (
        "from concur_proxy.sim.server import EngineOptions, EngineServer\n"
        "import sys; server = EngineServer(EngineOptions(port=0)); print(server.pid, flush=True); sys.stdin.read()"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    child = int(parent.stdout.readline())
    watch = os.pidfd_open(child)
    parent.kill()
    parent.communicate()
    ended, _, _ = select.select([watch], [], [], 10)
    os.close(watch)
    assert ended


def test_a_port_in_use_and_a_bad_profile_are_told(fast):
    taken = f"port: cannot listen on 127.0.0.1:{fast.port}: Address already in use; name another --port$"
    with pytest.raises(ConfigError, match=taken):
        run(EngineOptions(port=fast.port))
    with pytest.raises(ConfigError, match="profile"):
        EngineServer(EngineOptions(profile="abacus", port=0))
    with pytest.raises(ConfigError, match="profile"):
        build_app(EngineOptions(profile="abacus"))


def test_lifespan_starts_and_stops_the_engine():
    async def scenario():
        app = build_app(EngineOptions())
        inbox, sent = asyncio.Queue(), []

        async def send(message):
            sent.append(message["type"])

        for kind in ("lifespan.startup", "lifespan.shutdown"):
            inbox.put_nowait({"type": kind})
        await app({"type": "lifespan"}, inbox.get, send)
        return sent, len(asyncio.all_tasks())

    assert asyncio.run(scenario()) == (["lifespan.startup.complete", "lifespan.shutdown.complete"], 1)
