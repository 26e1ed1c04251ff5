"""What crosses the proxy between a client and real vLLM, byte by byte."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.clients.stack import PATIENCE_S, Stack, metric

pytestmark = pytest.mark.engine

MESSAGES = [{"role": "user", "content": "Say something."}]
CHAT = {"model": "tiny", "messages": MESSAGES, "max_tokens": 6}
JSON = {"content-type": "application/json"}


@pytest.fixture
def http(stack: Stack) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=stack.url, timeout=PATIENCE_S) as client:
        yield client


@pytest.fixture
def both(direct: Stack, proxied: Stack) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    """One client for the engine, one for the proxy in front of it."""
    with httpx.Client(base_url=direct.url) as engine, httpx.Client(base_url=proxied.url) as proxy:
        yield engine, proxy


def events(http: httpx.Client, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The JSON of each event; the stream must end with vLLM's closing mark."""
    with http.stream("POST", path, json={**body, "stream": True}) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        raw = response.read().decode()
    lines = [line for line in raw.split("\n\n") if line]
    assert raw.endswith("\n\n")
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


@pytest.mark.parametrize(
    ("path", "body"),
    [("/v1/chat/completions", CHAT), ("/v1/completions", {"model": "tiny", "prompt": "Say", "max_tokens": 6})],
)
class TestUsageInStreams:
    def test_is_not_there_when_the_client_did_not_ask(
        self, http: httpx.Client, path: str, body: dict[str, Any]
    ) -> None:
        got = events(http, path, body)
        assert all(event["choices"] for event in got)
        assert not any(event.get("usage") for event in got)

    def test_is_there_when_it_did(self, http: httpx.Client, path: str, body: dict[str, Any]) -> None:
        got = events(http, path, {**body, "stream_options": {"include_usage": True}})
        assert got[-1]["choices"] == []
        assert got[-1]["usage"]["completion_tokens"] == 6
        assert not any(event.get("usage") for event in got[:-1])

    def test_is_in_every_event_when_it_asked_for_that(
        self, http: httpx.Client, path: str, body: dict[str, Any]
    ) -> None:
        options = {"include_usage": True, "continuous_usage_stats": True}
        got = events(http, path, {**body, "stream_options": options})
        assert all(event["usage"] for event in got)

    def test_stays_out_when_it_was_refused(self, http: httpx.Client, path: str, body: dict[str, Any]) -> None:
        got = events(http, path, {**body, "stream_options": {"include_usage": False}})
        assert all(event["choices"] for event in got)
        assert not any(event.get("usage") for event in got)


def fields(got: list[dict[str, Any]]) -> tuple[list[str], set[tuple[str, ...]], list[str]]:
    """Of the first event, of those between, and of the last; vLLM may put several tokens into one event."""
    names = [list(event) for event in got]
    return names[0], {tuple(between) for between in names[1:-1]}, names[-1]


@pytest.mark.parametrize("options", [{"include_usage": True}, {"include_usage": True, "continuous_usage_stats": True}])
def test_events_have_the_same_fields_through_the_proxy(
    both: tuple[httpx.Client, httpx.Client], options: dict[str, bool]
) -> None:
    body = {**CHAT, "stream_options": options}
    direct, proxied = (fields(events(http, "/v1/chat/completions", body)) for http in both)
    assert proxied == direct


def test_asking_for_usage_on_the_clients_behalf_costs_the_fingerprint_alone(
    both: tuple[httpx.Client, httpx.Client],
) -> None:
    """The engine moves ``system_fingerprint`` from the last event to the usage event, which the proxy takes out."""
    direct, proxied = (fields(events(http, "/v1/chat/completions", CHAT)) for http in both)
    assert proxied[:2] == direct[:2]
    assert proxied[2] == [name for name in direct[2] if name != "system_fingerprint"]


def test_a_whole_answer_has_its_usage_and_the_engines_own_fields(both: tuple[httpx.Client, httpx.Client]) -> None:
    direct, proxied = (http.post("/v1/chat/completions", json=CHAT).json() for http in both)
    assert list(proxied) == list(direct)
    assert proxied["usage"]["completion_tokens"] == 6
    assert "cached_tokens" in proxied["usage"]["prompt_tokens_details"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {"model": "tiny", "prompt": "some text"}),
        ("/tokenize", {"model": "tiny", "messages": MESSAGES}),
        ("/detokenize", {"model": "tiny", "tokens": [300, 301, 302]}),
        ("/v1/messages/count_tokens", {"model": "tiny", "messages": MESSAGES}),
    ],
)
def test_what_runs_no_model_is_answered_alike(
    both: tuple[httpx.Client, httpx.Client], path: str, body: dict[str, Any]
) -> None:
    direct, proxied = (http.post(path, json=body) for http in both)
    assert direct.status_code == 200
    assert proxied.content == direct.content


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/chat/completions", b'{"model": "tiny", "messages": [', 400),
        ("/v1/chat/completions", b"not json at all \xff", 400),
        ("/v1/chat/completions", b"[]", 400),
        ("/v1/chat/completions", b'{"model": "tiny"}', 400),
        ("/v1/chat/completions", json.dumps({**CHAT, "max_tokens": -3}).encode(), 400),
        ("/v1/chat/completions", json.dumps({**CHAT, "temperature": "hot"}).encode(), 400),
        ("/v1/completions", json.dumps({"model": "tiny", "prompt": "much " * 20_000}).encode(), 400),
        ("/v1/messages", b'{"model": "tiny"}', 400),
        ("/v1/responses", b'{"model": "tiny"}', 400),
        ("/v1/embeddings", b'{"model": "tiny", "input": "text"}', 404),
        ("/v1/rerank", b'{"model": "tiny", "query": "a", "documents": ["b"]}', 404),
        ("/v1/score", b'{"model": "tiny", "text_1": "a", "text_2": "b"}', 404),
        ("/pooling", b'{"model": "tiny", "input": "text"}', 404),
        ("/classify", b'{"model": "tiny", "input": "text"}', 404),
    ],
)
def test_the_engines_refusals_pass_unchanged(
    both: tuple[httpx.Client, httpx.Client], path: str, body: bytes, status: int
) -> None:
    direct, proxied = (http.post(path, content=body, headers=JSON) for http in both)
    assert direct.status_code == status
    assert proxied.status_code == status
    assert proxied.content == direct.content
    assert proxied.headers["content-type"] == direct.headers["content-type"]


def test_an_unknown_model_is_refused_with_its_name(http: httpx.Client) -> None:
    answer = http.post("/v1/chat/completions", json={**CHAT, "model": "no-such-model"})
    assert answer.status_code == 404
    assert "no-such-model" in answer.json()["error"]["message"]


def test_models_keep_all_their_fields(both: tuple[httpx.Client, httpx.Client]) -> None:
    direct, proxied = (http.get("/v1/models").json() for http in both)
    for listing in (direct, proxied):
        for model in listing["data"]:
            for granted in (model, *model["permission"]):  # vLLM makes these anew for each answer
                granted.pop("created")
            for permission in model["permission"]:
                permission.pop("id")
    assert proxied == direct


@pytest.mark.parametrize("path", ["/reset_prefix_cache", "/sleep", "/collective_rpc", "/v1/load_lora_adapter"])
def test_development_endpoints_are_out_of_reach(proxied: Stack, path: str) -> None:
    answer = httpx.post(f"{proxied.url}{path}", json={})
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "unknown_path"


def test_a_client_that_leaves_while_the_engine_works_frees_it(proxied: Stack) -> None:
    body = {**CHAT, "max_tokens": 6000, "ignore_eos": True}
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{proxied.url}/v1/chat/completions", json=body, timeout=0.5)
    proxied.wait_until_running(0)


def test_the_proxys_own_count_of_turns_returns_to_zero(proxied: Stack) -> None:
    body = {**CHAT, "max_tokens": 6000, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{proxied.url}/v1/chat/completions", json=body) as response:
        chunks = response.iter_bytes()
        next(chunks)
        assert metric(proxied.url, "concur_turns_running") == 1
        proxied.wait_until_running(1)
    proxied.wait_until_running(0)
    assert metric(proxied.url, "concur_turns_running") == 0
