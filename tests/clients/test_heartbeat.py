"""Held streams with signs of life: the clients that people use read over them, and raise what comes in their place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import anthropic
import openai
import pytest
from anthropic import Anthropic
from openai import OpenAI

from tests.clients.canned import CannedEngine
from tests.clients.openai_behaviour import HELLO, LONG
from tests.clients.stack import ProxyProcess

BEATING = {"CONCUR_SERVER__HEARTBEAT_S": "0.1"}
IMPATIENT = {**BEATING, "CONCUR_GATE__MAX_WAIT_S": "0.5"}
MESSAGES: dict[str, Any] = {"model": "canned", "max_tokens": 8, "messages": HELLO}


def proxy(engine: str, env: dict[str, str]) -> ProxyProcess:
    return ProxyProcess([engine], flags=["--window", "1"], env=env)


@pytest.fixture(scope="module")
def beating(embedded_engine: str) -> Iterator[str]:
    with proxy(embedded_engine, BEATING) as running:
        yield running.url


@pytest.fixture(scope="module")
def canned() -> Iterator[str]:
    with CannedEngine() as engine, proxy(engine.url, BEATING) as running:
        yield running.url


@pytest.fixture(scope="module")
def impatient(embedded_engine: str) -> Iterator[str]:
    with proxy(embedded_engine, IMPATIENT) as running:
        yield running.url


@contextmanager
def openai_client(url: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield client


@contextmanager
def anthropic_client(url: str) -> Iterator[Anthropic]:
    with Anthropic(base_url=url, api_key="none", max_retries=0) as client:
        yield client


@contextmanager
def full(url: str, model: str = "embedded") -> Iterator[None]:
    """Keep the only place taken. What is asked for within returns with the first sign of life."""
    with openai_client(url) as client:
        running = client.chat.completions.create(model=model, messages=HELLO, stream=True, **LONG)
        next(iter(running))
        try:
            yield
        finally:
            running.close()


def test_openai_chat(beating: str) -> None:
    with openai_client(beating) as client:
        with full(beating):
            stream = client.chat.completions.create(model="embedded", messages=HELLO, max_tokens=8, stream=True)
            assert stream.response.headers["content-type"].startswith("text/event-stream")
        chunks = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason in {"length", "stop"}


def test_openai_completions(beating: str) -> None:
    with openai_client(beating) as client:
        with full(beating):
            stream = client.completions.create(model="embedded", prompt="Once", max_tokens=8, stream=True)
        assert "".join(chunk.choices[0].text for chunk in stream)


def test_openai_responses(canned: str) -> None:
    with openai_client(canned) as client:
        with full(canned, "canned"):
            stream = client.responses.create(model="canned", input="hi", stream=True)
        events = list(stream)
    assert [event.type for event in events] == [
        "response.created",
        "response.output_text.delta",
        "response.completed",
    ]


def test_anthropic_messages(canned: str) -> None:
    with anthropic_client(canned) as client:
        with full(canned, "canned"):
            stream = client.messages.create(**MESSAGES, stream=True)
        kinds = [event.type for event in stream]
    assert (kinds[0], kinds[-1], len(kinds)) == ("message_start", "message_stop", 6)


def test_anthropics_own_accumulation(canned: str) -> None:
    with anthropic_client(canned) as client, ExitStack() as running:
        running.enter_context(full(canned, "canned"))
        with client.messages.stream(**MESSAGES) as stream:
            running.close()
            message = stream.get_final_message()
    assert [block.text for block in message.content if block.type == "text"] == ["Hello"]
    assert message.stop_reason == "end_turn"


def test_a_refusal_is_raised_by_openai(impatient: str) -> None:
    with openai_client(impatient) as client, full(impatient):
        for stream in (
            client.chat.completions.create(model="embedded", messages=HELLO, stream=True),
            client.responses.create(model="embedded", input="hi", stream=True),
        ):
            with pytest.raises(openai.APIError, match="as long as it may") as caught:
                list(stream)
            assert caught.value.code == "queue_timeout"


def test_a_refusal_is_raised_by_anthropic(impatient: str) -> None:
    with anthropic_client(impatient) as client, full(impatient):
        stream = client.messages.create(**{**MESSAGES, "model": "embedded"}, stream=True)
        with pytest.raises(anthropic.APIStatusError, match="as long as it may"):
            list(stream)


def test_what_the_engine_objects_to_is_raised_by_openai(beating: str) -> None:
    with openai_client(beating) as client:
        with full(beating):
            stream = client.chat.completions.create(model="embedded", messages=HELLO, max_tokens=-1, stream=True)
        with pytest.raises(openai.APIError, match="max_tokens"):
            list(stream)


def test_what_the_engine_objects_to_is_raised_by_anthropic(canned: str) -> None:
    with anthropic_client(canned) as client:
        with full(canned, "canned"):
            stream = client.messages.create(**{**MESSAGES, "max_tokens": -1}, stream=True)
        with pytest.raises(anthropic.APIStatusError, match="must be positive"):
            list(stream)
