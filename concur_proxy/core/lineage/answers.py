"""Reads off a passing answer how the next turn will be known: the first tool call's id, and the generated text.

Only where several runs wait for the same kind of next turn, since every event has to be parsed for it. The text is kept
until the answer has passed, in a bounded amount; what stays is its hash.
"""

from __future__ import annotations

import json
from typing import Final

from concur_proxy.core.lineage.digests import text_digest
from concur_proxy.core.lineage.talk import CALLS, Answer, answer_in, head, said
from concur_proxy.core.usage import UsageReader
from concur_proxy.model import FinishReason, Usage

MAX_KEPT: Final = 1 << 20
"""Bytes of an answer; a longer one is not known again by its text."""

_DATA: Final = b"data:"


class AnswerReader:
    """Reads an answer that another reader lets pass. ``streamed``: it is a stream of events, else one JSON object."""

    __slots__ = ("_call", "_inner", "_kept", "_rest", "_streamed", "_texts")

    def __init__(self, inner: UsageReader, *, streamed: bool) -> None:
        self._inner = inner
        self._streamed = streamed
        self._rest = b""
        """Beginning of a line, or of the object, whose end has not come."""
        self._kept = 0
        self._call = 0
        self._texts: list[str] = []

    def feed(self, data: bytes) -> bytes:
        self._kept += len(data)
        if self._kept <= MAX_KEPT:
            self._rest += data
            if self._streamed:
                self._read_events()
        return self._inner.feed(data)

    def finish(self) -> bytes:
        return self._inner.finish()

    @property
    def usage(self) -> Usage | None:
        return self._inner.usage

    @property
    def finish_reason(self) -> FinishReason | None:
        return self._inner.finish_reason

    @property
    def saw_token(self) -> bool:
        return self._inner.saw_token

    @property
    def response_id(self) -> str | None:
        return self._inner.response_id

    @property
    def answer(self) -> Answer | None:
        """Return what has been read; None where that is nothing, or not the whole."""
        if self._kept > MAX_KEPT:
            return None
        if not self._streamed and self._rest:
            self._read_whole(_object(self._rest))
            self._rest = b""
        text = "".join(self._texts)
        answer = Answer(self._call, said(text), head(text))
        return answer if any(answer) else None

    def _read_events(self) -> None:
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            if line.startswith(_DATA):
                self._read_event(_object(line[len(_DATA) :]))

    def _read_event(self, event: dict[str, object]) -> None:
        """Chat sends ``choices[].delta``, Anthropic ``content_block`` and ``delta``, Responses whole items."""
        if event.get("type") == "response.output_item.done":
            self._read_item(event.get("item"))
        elif isinstance(block := event.get("content_block"), dict):
            self._call = self._call or (text_digest(block.get("id")) if block.get("type") == "tool_use" else 0)
        else:
            choice = _first(event.get("choices"))
            delta = choice.get("delta") or event.get("delta") or choice
            if isinstance(delta, dict):
                self._call = self._call or text_digest(_first(delta.get("tool_calls")).get("id"))
                self._add(delta.get("content") or delta.get("text"))

    def _read_whole(self, body: dict[str, object]) -> None:
        output = body.get("output")
        if isinstance(output, list):
            for item in output:
                self._read_item(item)
            return
        choice = _first(body.get("choices"))
        message = choice.get("message") or choice or body
        if isinstance(message, dict):
            self._call = answer_in(message).call
            self._add_content(message.get("content") or message.get("text"))

    def _read_item(self, item: object) -> None:
        """Take in an output item of the Responses API."""
        if not isinstance(item, dict):
            return
        if item.get("type") in CALLS:
            self._call = self._call or text_digest(item.get("call_id"))
        elif item.get("type") == "message":
            self._add_content(item.get("content"))

    def _add_content(self, content: object) -> None:
        if isinstance(content, list):
            for part in content:
                self._add(part.get("text") if isinstance(part, dict) else None)
        else:
            self._add(content)

    def _add(self, text: object) -> None:
        if isinstance(text, str):
            self._texts.append(text)


def _first(values: object) -> dict[str, object]:
    return values[0] if isinstance(values, list) and values and isinstance(values[0], dict) else {}


def _object(text: bytes) -> dict[str, object]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
