"""The bodies and stream events of answers, in the shapes of vLLM's OpenAI server."""

from __future__ import annotations

from array import array
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import orjson

from concur_proxy.sim import tokens
from concur_proxy.sim.answers import Answer
from concur_proxy.sim.calls import CallKind

DONE = b"data: [DONE]\n\n"
EMBEDDING_DIMENSIONS = 64


def event(body: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(body) + b"\n\n"


@dataclass(frozen=True, slots=True)
class Usage:
    prompt: int
    completion: int
    cached: int | None
    """None where the server does not tell."""

    def body(self) -> dict[str, Any]:
        details = None if self.cached is None else {"cached_tokens": self.cached}
        return {
            "prompt_tokens": self.prompt,
            "total_tokens": self.prompt + self.completion,
            "completion_tokens": self.completion,
            "prompt_tokens_details": details,
        }


@dataclass(frozen=True, slots=True)
class Envelope:
    """What all parts of one answer have in common."""

    id: str
    created: int
    model: str
    kind: CallKind
    include_usage: bool = False

    def whole(self, answers: Sequence[Answer], usage: Usage) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        choices = [self._choice(index, answer) for index, answer in enumerate(answers)]
        return {**self._head(self.kind.value), "choices": choices, "usage": usage.body()}

    def opening(self, index: int) -> bytes:
        """The first event of a choice; text completions have none."""
        if self.kind is CallKind.TEXT:
            return b""
        return self._event(index, {"role": "assistant", "content": ""}, None)

    def part(self, index: int, answer: Answer, start: int, stop: int) -> bytes:
        """The events of tokens ``start`` to ``stop`` of a choice, one each; the last one says why it ends."""
        return b"".join(self._token(index, answer, position) for position in range(start, stop))

    def closing(self, usage: Usage) -> bytes:
        if not self.include_usage:
            return DONE
        return event({**self._head(self._chunk), "choices": [], "usage": usage.body()}) + DONE

    @property
    def _chunk(self) -> str:
        return "chat.completion.chunk" if self.kind is CallKind.CHAT else self.kind.value

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def _token(self, index: int, answer: Answer, position: int) -> bytes:
        last = position + 1 == answer.tokens
        piece = answer.piece(position, position + 1)
        delta = (
            {"content": piece} if answer.tool is None else {"tool_calls": [self._call_delta(answer, position, piece)]}
        )
        return self._event(index, delta, answer.finish_reason if last else None)

    def _call_delta(self, answer: Answer, position: int, piece: str) -> dict[str, Any]:
        if position:
            return {"index": 0, "function": {"arguments": piece}}
        return {"index": 0, **self._call(answer.tool, piece)}

    def _event(self, index: int, delta: dict[str, Any], finish: str | None) -> bytes:
        said = {"delta": delta} if self.kind is CallKind.CHAT else {"text": delta["content"]}
        choice = {"index": index, **said, "logprobs": None, "finish_reason": finish}
        return event({**self._head(self._chunk), "choices": [choice]})

    def _choice(self, index: int, answer: Answer) -> dict[str, Any]:
        tail = {"logprobs": None, "finish_reason": answer.finish_reason, "stop_reason": None}
        if self.kind is CallKind.TEXT:
            return {"index": index, "text": answer.text, **tail}
        message: dict[str, Any] = {"role": "assistant", "content": answer.text}
        if answer.tool is not None:
            message = {"role": "assistant", "content": None, "tool_calls": [self._call(answer.tool, answer.arguments)]}
        return {"index": index, "message": message, **tail}

    def _call(self, name: str | None, arguments: str) -> dict[str, Any]:
        call_id = "call_" + self.id.rpartition("-")[2]
        return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def models(model: str, max_model_len: int, created: int) -> dict[str, Any]:
    card = {"id": model, "object": "model", "created": created, "owned_by": "concur-proxy", "root": model}
    return {"object": "list", "data": [{**card, "parent": None, "max_model_len": max_model_len}]}


def tokenized(prompts: Iterable[str], max_model_len: int) -> dict[str, Any]:
    numbers = [number for prompt in prompts for number in tokens.ids(prompt)]
    return {"count": len(numbers), "max_model_len": max_model_len, "tokens": numbers, "token_strs": None}


def embeddings(prompts: Sequence[str], model: str, *, base64: bool) -> dict[str, Any]:
    """A unit-length vector per text that depends on the text alone."""
    total = sum(tokens.count(prompt) for prompt in prompts)
    data = [
        {"object": "embedding", "index": index, "embedding": _vector(prompt, base64=base64)}
        for index, prompt in enumerate(prompts)
    ]
    usage = {"prompt_tokens": total, "total_tokens": total, "completion_tokens": 0, "prompt_tokens_details": None}
    return {"id": "embd-0", "object": "list", "created": 0, "model": model, "data": data, "usage": usage}


def _vector(prompt: str, *, base64: bool) -> list[float] | str:
    random = Random(tokens.digest(prompt))
    raw = [random.gauss(0, 1) for _ in range(EMBEDDING_DIMENSIONS)]
    length = sum(value * value for value in raw) ** 0.5
    vector = array("f", (value / length for value in raw))
    return b64encode(vector.tobytes()).decode() if base64 else vector.tolist()
