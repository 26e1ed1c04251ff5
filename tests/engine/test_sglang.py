"""Real SGLang on the CPU, straight and through the proxy: the same answers, errors and counts, and nothing lost."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from concur_proxy.bench.player import PlayOptions, play
from concur_proxy.bench.report import Report
from concur_proxy.bench.vocabulary import learn
from concur_proxy.bench.workloads import SyntheticAgents
from concur_proxy.doctor import questions
from concur_proxy.doctor.examination import Permissions, examine
from concur_proxy.engines import sglang as sglang_metrics
from concur_proxy.engines.base import EngineSample
from concur_proxy.engines.exposition import Page, read_page
from concur_proxy.engines.registry import detect
from tests.clients.stack import ProxyProcess, metric
from tests.rig import sglang
from tests.rig.engine import SglangEngine

pytestmark = [pytest.mark.engine, pytest.mark.slow]

PATIENCE_S = 120.0
JSON = {"content-type": "application/json"}
CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "Say something."}], "max_tokens": 6, "temperature": 0}
PLAIN = {"model": "tiny", "prompt": "Say", "max_tokens": 6, "temperature": 0}
COUNTED = {"stream_options": {"include_usage": True}}
KV_TOKENS = 8192
LONG = 4000
PARAMETERS = {"type": "object", "properties": {"at": {"type": "integer"}}, "required": ["at"]}
TOOL = {"type": "function", "function": {"name": "look", "parameters": PARAMETERS, "strict": True}}
OWN = {"id", "created", "created_at", "completed_at"}
"""Fields that are new in each answer."""

Both = tuple[httpx.Client, httpx.Client]


@pytest.fixture(scope="module")
def engine() -> Iterator[SglangEngine]:
    if remedy := sglang.missing():
        pytest.skip(remedy)
    with SglangEngine(kv_tokens=KV_TOKENS, max_len=8000) as running:
        yield running


@pytest.fixture(scope="module")
def proxy(engine: SglangEngine) -> Iterator[ProxyProcess]:
    with ProxyProcess([engine.url]) as running:
        yield running


@pytest.fixture(scope="module")
def both(engine: SglangEngine, proxy: ProxyProcess) -> Iterator[Both]:
    """One client for the engine, one for the proxy in front of it."""
    with (
        httpx.Client(base_url=engine.url, timeout=PATIENCE_S) as straight,
        httpx.Client(base_url=proxy.url, timeout=PATIENCE_S) as proxied,
    ):
        yield straight, proxied


def shape(value: Any) -> Any:
    """What is left of an answer when its own names and times are taken out."""
    if isinstance(value, dict):
        return {name: shape(inner) for name, inner in value.items() if name not in OWN}
    return [shape(inner) for inner in value] if isinstance(value, list) else value


def answers(both: Both, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """One straight, one through the proxy. The cache has the prompt before both, as rounding depends on that."""
    told = [http.post(path, json=body) for http in (both[0], *both)]
    assert [answer.status_code for answer in told] == [200] * 3, told[-1].text
    return [answer.json() for answer in told[1:]]


def events(http: httpx.Client, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    with http.stream("POST", path, json={**body, "stream": True}) as response:
        assert response.status_code == 200
        lines = [line for line in response.read().decode().split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def text(answers: list[dict[str, Any]]) -> str:
    """All that an answer says, or the events of one."""
    choices = [choice for answer in answers for choice in answer["choices"]]
    parts = [choice.get("delta") or choice.get("message") or {"content": choice["text"]} for choice in choices]
    return "".join(part.get("content") or "" for part in parts)


def frames(told: list[dict[str, Any]]) -> list[Any]:
    """The events without what they say: how many tokens fall into one is a matter of moments."""
    blank = [json.loads(json.dumps(shape(event))) for event in told]
    for event in blank:
        for choice in event["choices"]:
            spoken = choice.get("delta", choice)
            for name in ("content", "text"):
                if spoken.get(name):
                    spoken[name] = "..."
    return [event for event, before in zip(blank, [None, *blank], strict=False) if event != before]


def load(engine: SglangEngine) -> int:
    """Requests that the engine has, by the page that is right at every moment."""
    (rank,) = httpx.get(f"{engine.url}/v1/loads?include=core", timeout=PATIENCE_S).json()["loads"]
    return int(rank["num_running_reqs"] + rank["num_waiting_reqs"])


def until(wanted: int, engine: SglangEngine, told: Callable[[], float | None] | None = None) -> None:
    """Wait for the engine to have so many requests, by what ``told`` says."""
    told = told or (lambda: load(engine))
    deadline = time.monotonic() + PATIENCE_S
    while (now := told()) != wanted:
        assert time.monotonic() < deadline, f"the engine has {now} requests, not {wanted}"


def generated(engine: SglangEngine) -> float:
    return metric(engine.url, "sglang:generation_tokens_total")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", CHAT),
        ("/v1/chat/completions", {**CHAT, "n": 2, "logprobs": True, "top_logprobs": 2}),
        ("/v1/completions", PLAIN),
        ("/v1/completions", {**PLAIN, "prompt": ["Say", "Tell"], "echo": True}),
        ("/tokenize", {"model": "tiny", "prompt": "some text"}),
    ],
)
def test_answers_are_the_same(both: Both, path: str, body: dict[str, Any]) -> None:
    straight, proxied = answers(both, path, body)
    assert shape(proxied) == shape(straight)
    assert list(proxied) == list(straight)


@pytest.mark.parametrize(("path", "body"), [("/v1/chat/completions", CHAT), ("/v1/completions", PLAIN)])
@pytest.mark.parametrize("options", [{}, COUNTED])
def test_streams_are_the_same(both: Both, path: str, body: dict[str, Any], options: dict[str, Any]) -> None:
    whole = answers(both, path, body)
    straight, proxied = (events(http, path, {**body, **options}) for http in both)
    assert text(proxied) == text(straight) == text(whole[:1])
    assert frames(proxied) == frames(straight)
    assert any(event.get("usage") for event in proxied) is bool(options)


def test_json_follows_its_schema(both: Both) -> None:
    asked = {"type": "json_schema", "json_schema": {"name": "thing", "schema": PARAMETERS}}
    body = {**CHAT, "response_format": asked, "max_tokens": 60}
    straight, proxied = answers(both, "/v1/chat/completions", body)
    assert shape(proxied) == shape(straight)
    assert proxied["choices"][0]["message"]["content"].lstrip().startswith("{")


@pytest.mark.parametrize("choice", ["auto", "required"])
def test_tools_are_answered_alike(both: Both, choice: str) -> None:
    body = {**CHAT, "tools": [TOOL], "tool_choice": choice, "max_tokens": 40}
    straight, proxied = answers(both, "/v1/chat/completions", body)
    assert shape(proxied) == shape(straight)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", b'{"messages": ['),
        ("/v1/chat/completions", b"{}"),
        ("/v1/chat/completions", json.dumps({**CHAT, "messages": "hello"}).encode()),
        ("/v1/chat/completions", json.dumps({**CHAT, "temperature": -1}).encode()),
        (
            "/v1/chat/completions",
            json.dumps({**CHAT, "messages": [{"role": "user", "content": "a " * 9000}]}).encode(),
        ),
        ("/v1/completions", json.dumps({**PLAIN, "max_tokens": 100_000}).encode()),
        ("/v1/embeddings", b'{"model": "tiny", "input": "text"}'),
    ],
)
def test_the_engines_refusals_pass_unchanged(both: Both, path: str, body: bytes) -> None:
    straight, proxied = (http.post(path, content=body, headers=JSON) for http in both)
    assert straight.status_code >= 400
    assert proxied.status_code == straight.status_code
    assert shape(proxied.json()) == shape(straight.json())


def test_a_session_in_the_body_is_a_session_and_reaches_it(both: Both, proxy: ProxyProcess) -> None:
    straight, proxied = answers(both, "/v1/chat/completions", {**CHAT, "session_id": "an-agent"})
    assert shape(proxied) == shape(straight)
    known = httpx.get(f"{proxy.url}/concur/sessions").json()["sessions"]
    assert any(session["id"].endswith("an-agent") for session in known)


def test_the_openai_client_finds_its_last_turn_in_the_cache(proxy: ProxyProcess, engine: SglangEngine) -> None:
    told: Any = [{"role": "user", "content": " " + " ".join(engine.words[:80])}]
    with OpenAI(base_url=f"{proxy.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE_S) as client:
        first = client.chat.completions.create(model="tiny", messages=told, max_tokens=10)
        told += [first.choices[0].message, {"role": "user", "content": "Go on."}]
        second = client.chat.completions.create(model="tiny", messages=told, max_tokens=10)
        with pytest.raises(openai.NotFoundError):  # straight, it answers whatever the model is called
            client.chat.completions.create(model="no-such-model", messages=told)
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.prompt_tokens_details is not None
    assert second.usage.prompt_tokens_details.cached_tokens == pytest.approx(first.usage.total_tokens, abs=3)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_the_engine(proxy: ProxyProcess, engine: SglangEngine, stream: bool) -> None:
    """It would go on for thousands of tokens, which it counts as it goes."""
    until(0, engine)
    aborted, before = metric(engine.url, "sglang:num_aborted_requests_total"), generated(engine)
    body = {**CHAT, "max_tokens": LONG, "ignore_eos": True, "stream": stream}

    async def leave() -> None:
        async with httpx.AsyncClient(base_url=proxy.url, timeout=PATIENCE_S) as client:
            asking = asyncio.create_task(client.post("/v1/chat/completions", json=body))
            await asyncio.to_thread(until, 1, engine)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    asyncio.run(leave())
    until(0, engine)
    assert generated(engine) - before < LONG
    assert metric(engine.url, "sglang:num_aborted_requests_total") == aborted + 1
    assert metric(proxy.url, "concur_turns_running") == 0


def test_the_proxy_reads_the_engine_by_its_metrics(both: Both, proxy: ProxyProcess, engine: SglangEngine) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        (backend,) = httpx.get(f"{proxy.url}/concur/status").json()["backends"]
        if backend["engine"] == "sglang" and backend["capacity_tokens"] == KV_TOKENS:
            return
        assert time.monotonic() < deadline, backend


def read(engine: SglangEngine) -> EngineSample:
    page = read_page(httpx.get(f"{engine.url}/metrics", timeout=PATIENCE_S).text)
    assert isinstance(page, Page)
    assert detect(page) == "sglang"
    return sglang_metrics.read(page, time.monotonic())


def test_its_page_says_what_it_does(both: Both, engine: SglangEngine) -> None:
    before = read(engine)
    body = {**CHAT, "messages": [{"role": "user", "content": " fresh" * 300}], "max_tokens": 5}
    used = [both[1].post("/v1/chat/completions", json=body).json()["usage"] for _ in range(2)]
    until(0, engine, lambda: read(engine).kv_usage_max)  # what may be evicted is not used
    until(0, engine, lambda: read(engine).running)
    after = read(engine)
    assert (after.capacity_tokens, after.waiting, after.block_size) == (KV_TOKENS, 0, 1)
    assert after.prompt_tokens - before.prompt_tokens == sum(usage["prompt_tokens"] for usage in used) > 600
    assert after.prefix_queries - before.prefix_queries == sum(usage["prompt_tokens"] for usage in used)
    assert after.prefix_hits - before.prefix_hits == sum(
        usage["prompt_tokens_details"]["cached_tokens"] for usage in used
    )
    assert after.generation_tokens - before.generation_tokens == 10
    assert after.requests_finished - before.requests_finished == 2
    assert after.evictable_tokens > 300
    computed = sum(usage["total_tokens"] - usage["prompt_tokens_details"]["cached_tokens"] for usage in used)
    assert after.scheduled_tokens - before.scheduled_tokens == pytest.approx(computed, abs=10)


def test_its_page_says_who_runs(both: Both, engine: SglangEngine) -> None:
    body = {**CHAT, "max_tokens": LONG, "ignore_eos": True}

    async def two_at_once() -> None:
        async with httpx.AsyncClient(base_url=both[1].base_url, timeout=PATIENCE_S) as client:
            asking = [asyncio.create_task(client.post("/v1/chat/completions", json=body)) for _ in range(2)]
            await asyncio.to_thread(until, 2, engine, lambda: read(engine).running)
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)

    asyncio.run(two_at_once())
    until(0, engine)
    until(0, engine, lambda: read(engine).running)


def test_the_doctor_finds_nothing_wrong(
    proxy: ProxyProcess, engine: SglangEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "TIMEOUT_S", PATIENCE_S)
    for url in (engine.url, proxy.url):
        examination = examine(url, Permissions(apart_s=0.1))
        assert examination.findings == ()
        assert any(looked_at.endswith("sglang") for looked_at in examination.looked_at) or url == proxy.url


FLEET = SyntheticAgents(
    sessions=12, turns=5, prefix_tokens=64, first_tokens=600, new_tokens=300, output_tokens=24, think_s=0.2
)
"""At their end, three times what the cache holds."""


def test_a_fleet_loses_nothing_and_finds_more_in_the_cache(engine: SglangEngine) -> None:
    def played(url: str) -> Report:
        assert httpx.post(f"{engine.url}/flush_cache", timeout=PATIENCE_S).status_code == 200
        return asyncio.run(play(url, FLEET.scripts(), PlayOptions(words=engine.words, stream=True)))

    straight = played(engine.url)
    with ProxyProcess([engine.url], flags=("--law", "meanfield")) as proxy:
        proxied = played(proxy.url)
    for report in (straight, proxied):
        assert (report.turns, report.errors, report.retries, len(report.session_s)) == (60, 0, 0, 12)
    assert proxied.prompt_tokens == straight.prompt_tokens
    assert proxied.output_tokens == straight.output_tokens == 60 * 24
    assert straight.hit_rate is not None
    assert proxied.hit_rate is not None
    assert proxied.hit_rate >= straight.hit_rate
    until(0, engine)


def test_the_bench_learns_words_from_it(proxy: ProxyProcess) -> None:
    """The tiny model has few whole words: what a word is on average comes from usage then."""
    found = asyncio.run(learn(proxy.url, PlayOptions(), "tiny"))
    assert found.told_by in {"the tokenizer", "usage"}
    assert 1.0 <= found.tokens_per_word < 4.0
