"""A model that obeys, for real vLLM whose model says random words: ``--middleware obey.Obey``.

It calls one of the request's tools as long as fewer than ``CALLS`` results have come since the last thing that a
person said, and then answers in words. vLLM's constrained decoding does the rest. Runs in the engine's environment:
nothing but the standard library.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

CALLS = 3
"""Tool calls for one question, and so ``CALLS + 1`` turns."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


class Obey:
    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        told = TOLD.get(scope.get("path", ""))
        if scope["type"] != "http" or told is None:
            await self._app(scope, receive, send)
            return
        body = json.dumps(obedient(await _whole(receive), *told)).encode()
        kept = [pair for pair in scope["headers"] if pair[0] != b"content-length"]
        scope["headers"] = [*kept, (b"content-length", str(len(body)).encode())]
        first = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def again() -> Message:
            return next(first, None) or await receive()

        await self._app(scope, again, send)


async def _whole(receive: Receive) -> dict[str, Any]:
    body, more = b"", True
    while more:
        part = await receive()
        body, more = body + part.get("body", b""), part.get("more_body", False)
    return dict(json.loads(body))


def obedient(asked: dict[str, Any], field: str, call: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """The request as if its model had understood it."""
    if not asked.get("tools"):
        return asked
    return asked | (call if results(asked[field]) < CALLS else answer)


def results(said: Any) -> int:
    """How many results of tools have come since a person spoke, in any of the three APIs."""
    items = said if isinstance(said, list) else [{"role": "user", "content": said}]
    since = itertools.takewhile(lambda item: not _by_a_person(item), reversed(items))
    return sum(_result(item) for item in since)


def _result(item: dict[str, Any]) -> int:
    if item.get("role") == "tool" or item.get("type") == "function_call_output":
        return 1
    content = item.get("content")
    parts = content if isinstance(content, list) else []
    return sum(part.get("type") == "tool_result" for part in parts)


def _by_a_person(item: dict[str, Any]) -> bool:
    return item.get("role") == "user" and not _result(item)


WORDS = {"max_tokens": 12}
SENTENCE = {"type": "object", "properties": {"said": {"type": "string"}}, "required": ["said"]}
COMPLETE = {"format": {"type": "json_schema", "name": "sentence", "schema": SENTENCE}}
"""Ends by itself: to be cut off is an error in the Responses API."""

TOLD: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "/v1/chat/completions": ("messages", {"tool_choice": "required"}, {"tool_choice": "none", **WORDS}),
    "/v1/responses": ("input", {"tool_choice": "required"}, {"tool_choice": "none", "text": COMPLETE}),
    "/v1/messages": ("messages", {"tool_choice": {"type": "any"}}, {"tool_choice": {"type": "none"}, **WORDS}),
}
"""By path: where the conversation is, and what demands a tool and an answer."""
