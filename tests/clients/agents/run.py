"""Runs agents of one framework at the same time, each for two questions, and prints the sessions each was counted to.

    python run.py FRAMEWORK BASE_URL TASK...

Agents with the same task begin with the same messages. No agent sends an id.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
import warnings
from collections.abc import Awaitable, Callable
from typing import Any

import httpx

SYSTEM = "You look pages up."
NEXT = "Now look up the rest."
KEY = "none"


class Watched(httpx.AsyncClient):
    """Keeps what the proxy has counted each answer to."""

    def __init__(self) -> None:
        super().__init__(event_hooks={"response": [self._keep]})
        self.sessions: list[str] = []

    async def _keep(self, response: httpx.Response) -> None:
        self.sessions.append(response.headers["x-concur-session"])


def page_text(page: int) -> str:
    """Return the text of a page."""
    return f"This is page {page}."


async def plain(base_url: str, http: Watched, task: str, *, stream: bool = False) -> None:
    """Run the loop that everybody writes."""
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=base_url, api_key=KEY, http_client=http, max_retries=0)
    parameters = {"type": "object", "properties": {"page": {"type": "integer"}}}
    tools: Any = [{"type": "function", "function": {"name": "look", "parameters": parameters}}]
    messages: Any = [{"role": "system", "content": SYSTEM}]
    for question in (task, NEXT):
        messages.append({"role": "user", "content": question})
        while True:
            options = {"model": "m", "messages": messages, "tools": tools}
            if stream:
                async with client.chat.completions.stream(**options) as events:
                    message = (await events.get_final_completion()).choices[0].message
            else:
                message = (await client.chat.completions.create(**options)).choices[0].message
            messages.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
            if not message.tool_calls:
                break
            for call in message.tool_calls:
                messages.append({"role": "tool", "tool_call_id": call.id, "content": page_text(1)})


async def plain_streamed(base_url: str, http: Watched, task: str) -> None:
    await plain(base_url, http, task, stream=True)


async def anthropic(base_url: str, http: Watched, task: str) -> None:
    """The same with Anthropic's client: the end of the cached part is marked anew with each turn."""
    from anthropic import AsyncAnthropic

    client = AsyncAnthropic(base_url=base_url.removesuffix("/v1"), api_key=KEY, max_retries=0)
    parameters = {"type": "object", "properties": {"page": {"type": "integer"}}}
    options: Any = {"model": "m", "max_tokens": 100, "system": SYSTEM}
    options["tools"] = [{"name": "look", "description": "Looks.", "input_schema": parameters}]
    messages: Any = []
    for question in (task, NEXT):
        messages.append({"role": "user", "content": [{"type": "text", "text": question}]})
        while True:
            *before, last = messages
            *parts, end = last["content"]
            marked = [*parts, {**end, "cache_control": {"type": "ephemeral"}}]
            history: Any = [*before, {**last, "content": marked}]
            raw = await client.messages.with_raw_response.create(messages=history, **options)
            http.sessions.append(raw.headers["x-concur-session"])
            parsed: Any = raw.parse()
            answer = await parsed if inspect.isawaitable(parsed) else parsed  # a coroutine in newer versions
            messages.append({"role": "assistant", "content": [part.model_dump() for part in answer.content]})
            uses = [part.id for part in answer.content if part.type == "tool_use"]
            if not uses:
                break
            results = [{"type": "tool_result", "tool_use_id": use, "content": page_text(1)} for use in uses]
            messages.append({"role": "user", "content": results})


async def openai_agents(base_url: str, http: Watched, task: str, *, responses: bool = False) -> None:
    from agents import (
        Agent,
        OpenAIChatCompletionsModel,
        OpenAIResponsesModel,
        Runner,
        function_tool,
        set_tracing_disabled,
    )
    from openai import AsyncOpenAI

    set_tracing_disabled(disabled=True)
    client = AsyncOpenAI(base_url=base_url, api_key=KEY, http_client=http, max_retries=0)
    api = OpenAIResponsesModel if responses else OpenAIChatCompletionsModel
    model = api(model="m", openai_client=client)
    look = function_tool(page_text, name_override="look")
    agent = Agent(name="reader", instructions=SYSTEM, tools=[look], model=model)
    result = await Runner.run(agent, task, max_turns=20)
    await Runner.run(agent, [*result.to_input_list(), {"role": "user", "content": NEXT}], max_turns=20)


async def openai_agents_responses(base_url: str, http: Watched, task: str) -> None:
    await openai_agents(base_url, http, task, responses=True)


async def langgraph(base_url: str, http: Watched, task: str) -> None:
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI
    from langgraph.prebuilt import create_react_agent

    model = ChatOpenAI(model="m", base_url=base_url, api_key=KEY, http_async_client=http, max_retries=0)
    look = tool("look")(page_text)
    graph = create_react_agent(model, [look], prompt=SYSTEM)
    state = await graph.ainvoke({"messages": [("user", task)]})
    await graph.ainvoke({"messages": [*state["messages"], ("user", NEXT)]})


Run = Callable[[str, Watched, str], Awaitable[None]]
FRAMEWORKS: dict[str, Run] = {
    "plain": plain,
    "plain-streamed": plain_streamed,
    "anthropic": anthropic,
    "openai-agents": openai_agents,
    "openai-agents-responses": openai_agents_responses,
    "langgraph": langgraph,
}


async def main(framework: str, base_url: str, tasks: list[str]) -> None:
    clients = [Watched() for _ in tasks]
    pairs = zip(clients, tasks, strict=True)
    await asyncio.gather(*(FRAMEWORKS[framework](base_url, http, task) for http, task in pairs))
    print(json.dumps([http.sessions for http in clients]))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
