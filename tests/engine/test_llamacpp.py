"""llama.cpp's own server, straight and through the proxy: the same answers, errors and counts, and nothing lost."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from concur_proxy.bench.player import PlayOptions, play
from concur_proxy.bench.vocabulary import learn
from concur_proxy.bench.workloads import SyntheticAgents
from tests.clients.stack import ProxyProcess, metric
from tests.rig import llamacpp
from tests.rig.engine import LlamaEngine

pytestmark = pytest.mark.engine

PATIENCE_S = 60.0
JSON = {"content-type": "application/json"}
CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "Say something."}], "max_tokens": 6, "temperature": 0}
WORK = ("llamacpp:requests_processing", "llamacpp:requests_deferred")
GENERATED = "llamacpp:tokens_predicted_total"
LONG = 100_000
OWN = {"id", "created", "timings", "completed_at", "created_at"}
"""Fields that are new in each answer."""


@pytest.fixture(scope="module")
def engine() -> Iterator[LlamaEngine]:
    if remedy := llamacpp.missing():
        pytest.skip(remedy)
    with LlamaEngine(slots=4, kv_tokens=131_072) as running:
        yield running


@pytest.fixture(scope="module")
def proxy(engine: LlamaEngine) -> Iterator[ProxyProcess]:
    with ProxyProcess([engine.url]) as running:
        yield running


@pytest.fixture(scope="module")
def both(engine: LlamaEngine, proxy: ProxyProcess) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    """One client for the engine, one for the proxy in front of it."""
    with (
        httpx.Client(base_url=engine.url, timeout=PATIENCE_S) as straight,
        httpx.Client(base_url=proxy.url, timeout=PATIENCE_S) as proxied,
    ):
        yield straight, proxied


def shape(value: Any) -> Any:
    """What is left of an answer when its own numbers and names are taken out."""
    if isinstance(value, dict):
        return {name: shape(inner) for name, inner in value.items() if name not in OWN | {"prompt_tokens_details"}}
    return [shape(inner) for inner in value] if isinstance(value, list) else value


def events(http: httpx.Client, body: dict[str, Any]) -> list[dict[str, Any]]:
    with http.stream("POST", "/v1/chat/completions", json={**body, "stream": True}) as response:
        assert response.status_code == 200
        lines = [line for line in response.read().decode().split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def until(wanted: int, engine: LlamaEngine) -> None:
    """Wait for the engine to have so many requests."""
    deadline = time.monotonic() + PATIENCE_S
    while (now := metric(engine.url, *WORK)) != wanted:
        assert time.monotonic() < deadline, f"the engine has {now:g} requests, not {wanted}"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", CHAT),
        ("/v1/completions", {"model": "tiny", "prompt": "Say", "max_tokens": 6, "temperature": 0}),
        ("/tokenize", {"content": "some text"}),
    ],
)
def test_answers_are_the_same(both: tuple[httpx.Client, httpx.Client], path: str, body: dict[str, Any]) -> None:
    straight, proxied = (http.post(path, json=body) for http in both)
    assert straight.status_code == proxied.status_code == 200
    assert shape(proxied.json()) == shape(straight.json())


@pytest.mark.parametrize("options", [{}, {"stream_options": {"include_usage": True}}])
def test_streams_are_the_same(both: tuple[httpx.Client, httpx.Client], options: dict[str, Any]) -> None:
    straight, proxied = (events(http, {**CHAT, **options}) for http in both)
    assert shape(proxied) == shape(straight)
    assert any(event.get("usage") for event in proxied) is bool(options)


def test_json_follows_its_schema(both: tuple[httpx.Client, httpx.Client]) -> None:
    schema = {"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}
    asked = {"type": "json_schema", "json_schema": {"name": "thing", "schema": schema}}
    body = {**CHAT, "response_format": asked, "max_tokens": 60}
    straight, proxied = (http.post("/v1/chat/completions", json=body).json() for http in both)
    assert shape(proxied) == shape(straight)
    assert proxied["choices"][0]["message"]["content"].lstrip().startswith("{")


def test_tools_are_answered_alike(both: tuple[httpx.Client, httpx.Client]) -> None:
    parameters = {"type": "object", "properties": {"at": {"type": "integer"}}, "required": ["at"]}
    tools = [{"type": "function", "function": {"name": "look", "parameters": parameters}}]
    body = {**CHAT, "tools": tools, "max_tokens": 30}
    straight, proxied = (http.post("/v1/chat/completions", json=body) for http in both)
    assert straight.status_code == proxied.status_code == 200
    assert shape(proxied.json()) == shape(straight.json())


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", b'{"messages": ['),
        ("/v1/chat/completions", b"{}"),
        ("/v1/chat/completions", json.dumps({**CHAT, "messages": "hello"}).encode()),
        (
            "/v1/chat/completions",
            json.dumps({**CHAT, "messages": [{"role": "user", "content": "a " * 140_000}]}).encode(),
        ),
        ("/v1/embeddings", b'{"model": "tiny", "input": "text"}'),
    ],
)
def test_the_engines_refusals_pass_unchanged(both: tuple[httpx.Client, httpx.Client], path: str, body: bytes) -> None:
    straight, proxied = (http.post(path, content=body, headers=JSON) for http in both)
    assert straight.status_code >= 400
    assert (proxied.status_code, proxied.json()) == (straight.status_code, straight.json())


def test_the_openai_client_finds_its_last_turn_in_the_cache(proxy: ProxyProcess, engine: LlamaEngine) -> None:
    told: Any = [{"role": "user", "content": " ".join(engine.words[:80])}]
    with OpenAI(base_url=f"{proxy.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE_S) as client:
        first = client.chat.completions.create(model="tiny", messages=told, max_tokens=10)
        told += [first.choices[0].message, {"role": "user", "content": "Go on."}]
        second = client.chat.completions.create(model="tiny", messages=told, max_tokens=10)
        with pytest.raises(openai.NotFoundError):
            client.chat.completions.create(model="no-such-model", messages=told)
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.prompt_tokens_details is not None
    assert second.usage.prompt_tokens_details.cached_tokens == pytest.approx(first.usage.total_tokens, abs=3)


def test_a_client_that_leaves_frees_the_engine(proxy: ProxyProcess, engine: LlamaEngine) -> None:
    """It would go on for thousands of tokens, which it counts as it goes."""
    before = metric(engine.url, GENERATED)
    body = {**CHAT, "max_tokens": LONG, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{proxy.url}/v1/chat/completions", json=body, timeout=PATIENCE_S) as response:
        next(response.iter_bytes())
    until(0, engine)
    assert metric(engine.url, GENERATED) - before < LONG
    assert metric(proxy.url, "concur_turns_running") == 0


def test_the_proxy_knows_the_engine_by_its_metrics(proxy: ProxyProcess) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        (backend,) = httpx.get(f"{proxy.url}/concur/status").json()["backends"]
        if backend["engine"] == "llamacpp":
            return
        assert time.monotonic() < deadline, backend


def test_fifty_agents_lose_nothing_and_cost_the_same_tokens(engine: LlamaEngine, proxy: ProxyProcess) -> None:
    agents = SyntheticAgents(
        sessions=50, turns=2, prefix_tokens=20, first_tokens=40, new_tokens=20, output_tokens=4, think_s=0
    )

    async def played(url: str) -> Any:
        return await play(url, agents.scripts(), PlayOptions(words=engine.words, stream=True))

    straight, proxied = (asyncio.run(played(url)) for url in (engine.url, proxy.url))
    for report in (straight, proxied):
        assert (report.turns, report.errors, report.retries, len(report.session_s)) == (100, 0, 0, 50)
    assert proxied.prompt_tokens == straight.prompt_tokens
    assert proxied.output_tokens == straight.output_tokens == 400
    wanted = sum(sum(script.prompts()) for script in agents.scripts())
    assert proxied.prompt_tokens == pytest.approx(wanted, rel=0.2)  # of its template, a message has more marks
    until(0, engine)


def test_the_bench_learns_words_from_it(engine: LlamaEngine, proxy: ProxyProcess) -> None:
    """The tiny model has few whole words: what a word is on average comes from usage then."""
    found = asyncio.run(learn(proxy.url, PlayOptions(), "tiny"))
    assert found.told_by in {"the tokenizer", "usage"}
    assert 1.0 <= found.tokens_per_word < 4.0
