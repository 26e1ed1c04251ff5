"""What the simulated model says: how long it speaks, its words, or the call of a tool. The same seed says the same."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import orjson

from concur_proxy.sim import tokens
from concur_proxy.sim.calls import Call
from concur_proxy.sim.stats import EndReason

MEDIAN_OUTPUT = 200
OUTPUT_SIGMA = 0.85
"""Log-normal length of an answer that nothing cuts short: quartiles about 115, 200 and 355 tokens, near to those of the
recorded coding agents (136, 217 and 432)."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One choice, known in full before the engine has spent any time on it."""

    text: str
    """What comes after the prompt, a call of a tool as text too."""
    tokens: int
    end: EndReason
    tool: str | None = None
    arguments: str = ""
    """The part of ``text`` that streams as the arguments of ``tool``."""

    @property
    def finish_reason(self) -> str:
        return "tool_calls" if self.tool and self.end is EndReason.STOP else self.end.value

    def piece(self, start: int, stop: int) -> str:
        """What tokens ``start`` to ``stop`` add to the content, or to the arguments where a tool is called."""
        said = self.arguments if self.tool else self.text
        return said[self._reach(start, len(said)) : self._reach(stop, len(said))]

    def _reach(self, position: int, length: int) -> int:
        return length * position // self.tokens


def answer(call: Call, prompt: str, choice: int, room: int, seed: int) -> Answer:
    """Decide one choice after ``prompt`` with at most ``room`` tokens, by the server's and the request's seed."""
    random = Random(f"{seed}/{call.seed}/{choice}/{tokens.digest(prompt)}")
    drawn = max(1, call.min_tokens, round(random.lognormvariate(0, OUTPUT_SIGMA) * MEDIAN_OUTPUT))
    length, end = (room, EndReason.LENGTH) if call.ignore_eos or drawn > room else (drawn, EndReason.STOP)
    if call.tool is not None:
        return _tool_answer(call.tool, random, length, room)
    # A text prompt may end in the middle of a token: the first word completes it, so that both together stay aligned.
    return Answer("." * (-len(prompt) % tokens.CHARS) + tokens.words(random, length), length, end)


def _tool_answer(function: dict[str, Any], random: Random, length: int, room: int) -> Answer:
    """A call whose arguments are as long as the answer should be, or cut off where even the shortest has no room."""
    name = function["name"]
    arguments = arguments_for(function, "")
    missing = length * tokens.CHARS - len(tokens.call_text(name, arguments))
    if missing > 0:
        arguments = arguments_for(function, tokens.words(random, length)[:missing])
    text = tokens.call_text(name, arguments)
    count = tokens.count(text)
    if count <= room:
        text = text.ljust(count * tokens.CHARS, "\0")
        return Answer(text, count, EndReason.STOP, name, arguments)
    text = text[: room * tokens.CHARS]
    return Answer(text, room, EndReason.LENGTH, name, text[len(tokens.call_text(name, "")) :])


def arguments_for(function: dict[str, Any], filler: str) -> str:
    """Arguments that fit the function's schema, as JSON; ``filler`` goes to the first free text among them."""
    properties = _properties(function.get("parameters")) or {"input": {"type": "string"}}
    values = {name: _value(part) for name, part in properties.items()}
    free = [name for name, part in properties.items() if values[name] == "" and _type(part) == "string"]
    if free:
        values[free[0]] = filler
    return orjson.dumps(values).decode()


def _value(schema: Any) -> Any:
    if isinstance(schema, dict) and schema.get("enum"):
        return schema["enum"][0]
    kind = _type(schema)
    if kind == "object":
        return {name: _value(part) for name, part in _properties(schema).items()}
    return {"integer": 1, "number": 1.0, "boolean": True, "array": [], "null": None}.get(kind, "")


def _properties(schema: Any) -> dict[str, Any]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return properties if isinstance(properties, dict) else {}


def _type(schema: Any) -> str:
    kind = schema.get("type") if isinstance(schema, dict) else None
    first = kind[0] if isinstance(kind, list) and kind else kind
    return first if isinstance(first, str) else ""
