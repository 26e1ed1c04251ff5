"""The Anthropic client on real vLLM's /v1/messages, directly and through the proxy."""

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from anthropic import Anthropic

from tests.clients.stack import PATIENCE_S, Stack

pytestmark = pytest.mark.engine

HELLO: Any = [{"role": "user", "content": "Say something."}]
WEATHER: Any = {
    "name": "get_weather",
    "description": "The weather of the next days.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


@pytest.fixture
def client(stack: Stack) -> Iterator[Anthropic]:
    with Anthropic(base_url=stack.url, api_key="none", max_retries=0, timeout=PATIENCE_S) as client:
        yield client


def test_a_message(client: Anthropic, stack: Stack) -> None:
    answer = client.messages.create(model=stack.model, max_tokens=8, system="Be brief.", messages=HELLO)
    assert answer.type == "message"
    assert answer.content[0].type == "text"
    assert answer.content[0].text
    assert answer.stop_reason == "max_tokens"
    assert answer.usage.output_tokens == 8


def test_a_streamed_message(client: Anthropic, stack: Stack) -> None:
    with client.messages.stream(model=stack.model, max_tokens=8, messages=HELLO) as stream:
        text = "".join(stream.text_stream)
        answer = stream.get_final_message()
    assert text
    assert answer.content[0].type == "text"
    assert answer.content[0].text == text
    assert answer.usage.output_tokens == 8


def test_every_event_of_a_stream_arrives_in_order(client: Anthropic, stack: Stack) -> None:
    with client.messages.create(model=stack.model, max_tokens=2, messages=HELLO, stream=True) as stream:
        kinds = [event.type for event in stream]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(kinds[2:-3]) == {"content_block_delta"}


def test_the_next_turn_finds_the_last_one_in_the_cache(client: Anthropic, stack: Stack) -> None:
    messages: Any = [{"role": "user", "content": " and more" * 100}]
    first = client.messages.create(model=stack.model, max_tokens=8, messages=messages)
    messages += [{"role": "assistant", "content": first.content}, {"role": "user", "content": "Go on."}]
    second = client.messages.create(model=stack.model, max_tokens=8, messages=messages)
    assert (second.usage.cache_read_input_tokens or 0) > 100


def test_a_tool_call(client: Anthropic, stack: Stack) -> None:
    answer = client.messages.create(
        model=stack.model, max_tokens=400, messages=HELLO, tools=[WEATHER], tool_choice={"type": "any"}
    )
    (call,) = [block for block in answer.content if block.type == "tool_use"]
    assert call.name == "get_weather"
    assert answer.stop_reason == "tool_use"


def test_counting_tokens(client: Anthropic, stack: Stack) -> None:
    counted = client.messages.count_tokens(model=stack.model, messages=HELLO)
    answer = client.messages.create(model=stack.model, max_tokens=1, messages=HELLO)
    read = answer.usage.cache_read_input_tokens or 0
    created = answer.usage.cache_creation_input_tokens or 0
    assert counted.input_tokens == answer.usage.input_tokens + read + created


def test_an_unknown_model(client: Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError, match="no-such-model"):
        client.messages.create(model="no-such-model", max_tokens=8, messages=HELLO)


def test_a_prompt_that_is_too_long(client: Anthropic, stack: Stack) -> None:
    with pytest.raises(anthropic.BadRequestError, match="maximum context length"):
        client.messages.create(
            model=stack.model, max_tokens=8, messages=[{"role": "user", "content": "much " * 20_000}]
        )


def test_a_client_that_loses_patience_frees_the_engine(client: Anthropic, stack: Stack) -> None:
    with pytest.raises(anthropic.APITimeoutError):
        client.messages.create(
            model=stack.model, max_tokens=6000, messages=HELLO, timeout=0.5, extra_body={"ignore_eos": True}
        )
    stack.wait_until_running(0)


def test_leaving_a_stream_frees_the_engine(client: Anthropic, stack: Stack) -> None:
    with client.messages.stream(
        model=stack.model, max_tokens=6000, messages=HELLO, extra_body={"ignore_eos": True}
    ) as stream:
        next(stream.text_stream)
        stack.wait_until_running(1)
    stack.wait_until_running(0)
