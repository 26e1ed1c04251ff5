"""What the official OpenAI client must see, whatever engine is behind and whether or not the proxy stands between.

A subclass named ``Test...`` brings a fixture ``stack``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from tests.clients.stack import PATIENCE_S, Stack

HELLO: Any = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say something."}]
LONG = {"max_tokens": 6000, "extra_body": {"ignore_eos": True}}
"""Goes on for longer than any test does."""
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of the next days.",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
}


@pytest.fixture
def client(stack: Stack) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{stack.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE_S) as client:
        yield client


def async_client(stack: Stack) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{stack.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE_S)


class OpenAIBehaviour:
    def test_chat(self, client: OpenAI, stack: Stack) -> None:
        answer = client.chat.completions.create(model=stack.model, messages=HELLO, max_tokens=8)
        assert answer.object == "chat.completion"
        assert answer.model == stack.model
        assert answer.choices[0].message.role == "assistant"
        assert answer.choices[0].message.content
        assert answer.usage is not None
        assert answer.usage.prompt_tokens > 0
        assert 0 < answer.usage.completion_tokens <= 8
        assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens

    def test_the_next_turn_finds_the_last_one_in_the_cache(self, client: OpenAI, stack: Stack) -> None:
        messages = [*HELLO, {"role": "user", "content": " and more" * 100}]
        first = client.chat.completions.create(model=stack.model, messages=messages, max_tokens=8)
        assert first.usage is not None
        messages += [{"role": "assistant", "content": first.choices[0].message.content}]
        messages += [{"role": "user", "content": "Go on."}]
        second = client.chat.completions.create(model=stack.model, messages=messages, max_tokens=8)
        assert second.usage is not None
        assert second.usage.prompt_tokens_details is not None
        assert (second.usage.prompt_tokens_details.cached_tokens or 0) > first.usage.prompt_tokens - 64

    def test_several_choices(self, client: OpenAI, stack: Stack) -> None:
        answer = client.chat.completions.create(model=stack.model, messages=HELLO, max_tokens=4, n=3)
        assert sorted(choice.index for choice in answer.choices) == [0, 1, 2]

    def test_streaming(self, client: OpenAI, stack: Stack) -> None:
        with client.chat.completions.create(model=stack.model, messages=HELLO, max_tokens=8, stream=True) as stream:
            chunks = list(stream)
        assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
        assert len({chunk.id for chunk in chunks}) == 1
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert chunks[-1].choices[0].finish_reason in {"length", "stop"}
        assert [chunk.usage for chunk in chunks] == [None] * len(chunks)

    def test_streaming_with_usage(self, client: OpenAI, stack: Stack) -> None:
        with client.chat.completions.create(
            model=stack.model, messages=HELLO, max_tokens=8, stream=True, stream_options={"include_usage": True}
        ) as stream:
            chunks = list(stream)
        assert chunks[-1].choices == []
        assert chunks[-1].usage is not None
        assert 0 < chunks[-1].usage.completion_tokens <= 8
        assert all(chunk.choices for chunk in chunks[:-1])

    def test_text_completions(self, client: OpenAI, stack: Stack) -> None:
        answer = client.completions.create(model=stack.model, prompt="Once upon a time", max_tokens=8)
        assert answer.choices[0].text
        with client.completions.create(
            model=stack.model, prompt="Once upon a time", max_tokens=8, stream=True
        ) as stream:
            assert "".join(chunk.choices[0].text for chunk in stream)

    def test_a_tool_call_and_the_turn_after_it(self, client: OpenAI, stack: Stack) -> None:
        answer = client.chat.completions.create(
            model=stack.model, messages=HELLO, tools=[WEATHER], tool_choice="required", max_tokens=400
        )
        message = answer.choices[0].message
        assert answer.choices[0].finish_reason == "tool_calls"
        assert message.tool_calls
        call: Any = message.tool_calls[0]
        assert call.function.name == "get_weather"
        assert isinstance(json.loads(call.function.arguments), dict)
        result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
        messages = [*HELLO, message.model_dump(exclude_none=True), result]
        after = client.chat.completions.create(model=stack.model, messages=messages, max_tokens=8)
        assert after.choices[0].message.content

    def test_a_streamed_tool_call(self, client: OpenAI, stack: Stack) -> None:
        with client.chat.completions.create(
            model=stack.model, messages=HELLO, tools=[WEATHER], tool_choice="required", max_tokens=400, stream=True
        ) as stream:
            chunks = list(stream)
        calls = [call.function for chunk in chunks for call in chunk.choices[0].delta.tool_calls or [] if call.function]
        assert [call.name for call in calls if call.name] == ["get_weather"]
        assert isinstance(json.loads("".join(call.arguments or "" for call in calls)), dict)
        assert chunks[-1].choices[0].finish_reason == "tool_calls"

    def test_models(self, client: OpenAI, stack: Stack) -> None:
        (model,) = client.models.list().data
        assert model.id == stack.model
        assert model.model_extra is not None
        assert model.model_extra["max_model_len"] > 0

    def test_an_unknown_model(self, client: OpenAI) -> None:
        with pytest.raises(openai.NotFoundError, match="no-such-model"):
            client.chat.completions.create(model="no-such-model", messages=HELLO)

    def test_a_parameter_out_of_range(self, client: OpenAI, stack: Stack) -> None:
        with pytest.raises(openai.BadRequestError, match="max_tokens"):
            client.chat.completions.create(model=stack.model, messages=HELLO, max_tokens=-1)

    def test_a_prompt_that_is_too_long(self, client: OpenAI, stack: Stack) -> None:
        messages: Any = [{"role": "user", "content": "much " * 200_000}]
        with pytest.raises(openai.BadRequestError, match="maximum context length"):
            client.chat.completions.create(model=stack.model, messages=messages)

    def test_a_client_that_loses_patience_frees_the_engine(self, client: OpenAI, stack: Stack) -> None:
        with pytest.raises(openai.APITimeoutError):
            client.chat.completions.create(model=stack.model, messages=HELLO, timeout=0.5, **LONG)
        stack.wait_until_running(0)

    def test_leaving_a_stream_frees_the_engine(self, client: OpenAI, stack: Stack) -> None:
        with client.chat.completions.create(model=stack.model, messages=HELLO, stream=True, **LONG) as stream:
            next(iter(stream))
            stack.wait_until_running(1)
        stack.wait_until_running(0)

    def test_cancelling_frees_the_engine(self, stack: Stack) -> None:
        async def story() -> None:
            async with async_client(stack) as client:
                asked = asyncio.create_task(
                    client.chat.completions.create(model=stack.model, messages=HELLO, **LONG)  # type: ignore[arg-type]
                )
                await asyncio.to_thread(stack.wait_until_running, 1)
                asked.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asked
                await asyncio.to_thread(stack.wait_until_running, 0)

        asyncio.run(story())

    def test_many_streams_at_once_each_get_their_own_answer(self, stack: Stack) -> None:
        async def one(client: AsyncOpenAI, tokens: int) -> int:
            stream = await client.chat.completions.create(
                model=stack.model,
                messages=HELLO,
                max_tokens=tokens,
                stream=True,
                stream_options={"include_usage": True},
                extra_body={"ignore_eos": True},
            )
            async with stream:
                usage = [chunk.usage async for chunk in stream][-1]
            assert usage is not None
            return usage.completion_tokens

        async def story() -> list[int]:
            async with async_client(stack) as client:
                return list(await asyncio.gather(*(one(client, tokens) for tokens in range(1, 21))))

        assert asyncio.run(story()) == list(range(1, 21))
