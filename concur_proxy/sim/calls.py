"""From a request's body to what the engine is asked to generate; every refusal is an ``ApiError``."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson

from concur_proxy.sim import tokens

MAX_CHOICES = 64


class ApiError(Exception):
    """An answer in OpenAI's error shape, with vLLM's names for the types."""

    _TYPES = {400: "BadRequestError", 404: "NotFoundError", 405: "MethodNotAllowed", 503: "ServiceUnavailableError"}  # noqa: RUF012

    def __init__(self, status: int, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param

    def body(self) -> dict[str, Any]:
        kind = self._TYPES[self.status]
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.status}}


class CallKind(enum.Enum):
    CHAT = "chat.completion"
    TEXT = "text_completion"


@dataclass(frozen=True, slots=True)
class Limits:
    """What this server serves."""

    model: str
    max_model_len: int
    tool_calls: bool = False
    """Call a tool whenever one is offered."""


@dataclass(frozen=True, slots=True)
class Call:
    """A checked request for generation. ``choices`` answers are wanted for each of ``prompts``."""

    kind: CallKind
    prompts: tuple[str, ...]
    choices: int
    stream: bool
    include_usage: bool
    max_tokens: int | None
    min_tokens: int
    ignore_eos: bool
    seed: int
    tool: dict[str, Any] | None
    """The function that the answer calls."""
    cache_salt: str

    def room(self, prompt: str, max_model_len: int) -> int:
        """Most tokens that may be generated after ``prompt``."""
        room = max_model_len - tokens.count(prompt)
        return room if self.max_tokens is None else min(room, self.max_tokens)


def parse(kind: CallKind, raw: bytes, limits: Limits) -> Call:
    """Check the body of a chat or text completion."""
    body = json_object(raw)
    check_model(body, limits)
    prompts = (_chat_prompt(body),) if kind is CallKind.CHAT else _text_prompts(body)
    for prompt in prompts:
        _check_length(prompt, limits)
    limit = "max_completion_tokens" if body.get("max_completion_tokens") is not None else "max_tokens"
    stream_options = body.get("stream_options")
    return Call(
        kind=kind,
        prompts=prompts,
        choices=_integer(body, "n", 1, MAX_CHOICES) or 1,
        stream=body.get("stream") is True,
        include_usage=isinstance(stream_options, dict) and stream_options.get("include_usage") is True,
        max_tokens=_integer(body, limit, 1),
        min_tokens=_integer(body, "min_tokens", 0) or 0,
        ignore_eos=body.get("ignore_eos") is True,
        seed=_integer(body, "seed", None) or 0,
        tool=_tool(body, limits) if kind is CallKind.CHAT else None,
        cache_salt=str(body.get("cache_salt") or ""),
    )


def json_object(raw: bytes) -> dict[str, Any]:
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise ApiError(400, f"The body is not valid JSON: {error}") from error
    if not isinstance(body, dict):
        raise ApiError(400, "The body must be a JSON object")
    return body


def check_model(body: dict[str, Any], limits: Limits) -> None:
    model = body.get("model")
    if model is not None and model != limits.model:
        raise ApiError(404, f"The model `{model}` does not exist.", "model")


def texts(body: dict[str, Any]) -> tuple[str, ...]:
    """The texts of a request for embeddings or tokens: ``input``, ``prompt`` or ``messages``."""
    if "messages" in body:
        return (_chat_prompt(body),)
    return _text_prompts(body, "input" if "input" in body else "prompt")


def _chat_prompt(body: dict[str, Any]) -> str:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ApiError(400, "`messages` must be a list of at least one message", "messages")
    tools = body.get("tools") or ()
    last = messages[-1]
    if body.get("continue_final_message") is True and isinstance(last, dict) and isinstance(last.get("content"), str):
        before, text = messages[:-1], last["content"]
        return _understood(lambda: tokens.chat(before, tools) + text, "messages")
    return _understood(lambda: tokens.chat(messages, tools), "messages")


def _text_prompts(body: dict[str, Any], key: str = "prompt") -> tuple[str, ...]:
    value = body.get(key)
    many = value if isinstance(value, list) and value and not isinstance(value[0], int) else [value]
    prompts = tuple(_understood(partial(_text, item), key) for item in many)
    if not all(prompts):
        raise ApiError(400, f"`{key}` must be a text or a list of token ids, or a list of these, and not empty", key)
    return prompts


def _text(value: Any) -> str:
    return value if isinstance(value, str) else tokens.from_ids(value)


def _understood(read: Callable[[], str], param: str) -> str:
    try:
        return read()
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ApiError(400, f"`{param}` cannot be read: {type(error).__name__}: {error}", param) from error


def _check_length(prompt: str, limits: Limits) -> None:
    length = tokens.count(prompt)
    if length >= limits.max_model_len:
        raise ApiError(
            400,
            f"The maximum context length of this model is {limits.max_model_len} tokens, the prompt has {length}, "
            "and at least one must be left for the answer.",
            "input_tokens",
        )


def _integer(body: dict[str, Any], key: str, least: int | None, most: int | None = None) -> int | None:
    value = body.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise ApiError(400, f"`{key}` must be an integer, not {value!r}", key)
    if (least is not None and value < least) or (most is not None and value > most):
        raise ApiError(400, f"`{key}` is {value}, and must be from {least}{'' if most is None else f' to {most}'}", key)
    return value


def _tool(body: dict[str, Any], limits: Limits) -> dict[str, Any] | None:
    """The function that must be called, or that is called because the server is told to."""
    functions, choice = _functions(body.get("tools") or []), body.get("tool_choice", "auto")
    if not functions or choice == "none":
        return None
    if isinstance(choice, dict):
        wanted = choice.get("function")
        named = [
            function for function in functions if isinstance(wanted, dict) and function["name"] == wanted.get("name")
        ]
        if not named:
            raise ApiError(400, f"`tool_choice` names {wanted!r}, which is not among `tools`", "tool_choice")
        return named[0]
    return functions[0] if choice == "required" or (choice == "auto" and limits.tool_calls) else None


def _functions(tools: Any) -> list[dict[str, Any]]:
    listed = tools if isinstance(tools, list) else [tools]
    functions = [
        tool["function"] for tool in listed if isinstance(tool, dict) and isinstance(tool.get("function"), dict)
    ]
    if len(functions) < len(listed) or not all(isinstance(function.get("name"), str) for function in functions):
        raise ApiError(400, "`tools` must be a list of functions with names", "tools")
    return functions
