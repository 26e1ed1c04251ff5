"""Streams that go on from another engine after theirs has died: what was said so far, and how to have the rest said.

Only where the text is all there is to an answer: one choice of plain content, without log-probabilities, seed or
structure, and no reasoning or tool call begun. The rest is asked for as the continuation of the last text received
(``continue_final_message``, which vLLM and SGLang know; text completions get a longer prompt). That text is tokenised
anew, so the words that follow need not be those that the first engine would have said: off unless asked for.

Tokens said are counted by events, of which engines send one per token; all tokens together are exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from concur_proxy.core.spent import read_usage, reason_of
from concur_proxy.core.usage import UsageReader
from concur_proxy.gateway.paths import Kind
from concur_proxy.model import FinishReason, Usage

MAX_TEXT: Final = 4 << 20
"""Characters of an answer that are kept; a longer one is not resumed."""
MAX_EVENT: Final = 1 << 20
DONE: Final = b"data: [DONE]\n\n"

_LIMITS: Final[tuple[str, ...]] = ("max_tokens", "max_completion_tokens")
_HINDRANCES: Final[tuple[str, ...]] = (
    *("logprobs", "top_logprobs", "prompt_logprobs", "echo", "suffix", "continue_final_message", "modalities"),
    *("guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs", "json_schema", "regex"),
    *("ebnf", "use_beam_search", "return_token_ids", "functions", "function_call", "add_special_tokens"),
)
_STRUCTURED: Final[tuple[str, ...]] = ("json_object", "json_schema", "structural_tag")
_OTHER_CONTENT: Final[tuple[str, ...]] = (
    *("tool_calls", "function_call", "reasoning", "reasoning_content", "refusal", "audio"),
)


def may_resume(kind: Kind, fields: Mapping[str, Any]) -> bool:
    """Tell whether a request is one whose stream can be continued, as far as it tells."""
    if fields.get("stream") is not True or kind not in (Kind.CHAT, Kind.COMPLETIONS):
        return False
    if fields.get("seed") is not None or any(fields.get(name) for name in _HINDRANCES):
        return False
    if fields.get("n") not in (None, 1) or fields.get("best_of") not in (None, 1):
        return False
    form = fields.get("response_format")
    if isinstance(form, dict) and form.get("type") in _STRUCTURED:
        return False
    if kind is Kind.COMPLETIONS:
        return isinstance(fields.get("prompt"), str)
    return isinstance(fields.get("messages"), list) and fields.get("tool_choice") in (None, "auto", "none")


class StreamRecord:
    """What the stream of one turn has said so far."""

    __slots__ = ("_chat", "_length", "_plain", "_rest", "_texts", "created", "finished", "id", "tokens", "wants_usage")

    def __init__(self, kind: Kind, *, wants_usage: bool) -> None:
        """``wants_usage``: the client itself asked for the usage event."""
        self._chat = kind is Kind.CHAT
        self._texts: list[str] = []
        self._length = 0
        self._rest = b""
        self._plain = True
        self.wants_usage = wants_usage
        self.id: str | None = None
        self.created: object = None
        self.tokens = 0
        self.finished = False
        """The last words have been said; only the end of the stream is missing."""

    @property
    def text(self) -> str:
        return "".join(self._texts)

    @property
    def is_plain(self) -> bool:
        """Nothing has been said that could not be continued."""
        return self._plain

    def feed(self, data: bytes) -> None:
        """Take in what has gone to the client."""
        if not self._plain:
            return
        events, self._rest = split(self._rest + data)
        for event in events:
            chunk = chunk_of(event)
            if chunk is not None:
                self._take(chunk)
        if len(self._rest) > MAX_EVENT or self._length > MAX_TEXT:
            self._plain = False
            self._texts.clear()

    def _take(self, chunk: dict[str, Any]) -> None:
        if self.id is None:
            told = chunk.get("id")
            self.id = told if isinstance(told, str) else None
            self.created = chunk.get("created")
        choices = chunk.get("choices")
        if chunk.get("error") or not isinstance(choices, list) or len(choices) > 1:
            self._plain = False
        elif choices:
            self._say(choices[0])

    def _say(self, choice: Any) -> None:
        text = text_of(choice, chat=self._chat)
        if text is None or choice.get("index") not in (None, 0) or choice.get("logprobs"):
            self._plain = False
            return
        if text or not _opens(choice):
            self.tokens += 1
        if text:
            self._texts.append(text)
            self._length += len(text)
        if choice.get("finish_reason") is not None:
            self.finished = True

    def continuation(self, body: bytes) -> bytes | None:
        """Return the request for the rest of what ``body`` asked for; None where nothing may be left to say."""
        fields: dict[str, Any] = orjson.loads(body)
        text = self.text
        for name in _LIMITS:
            limit = fields.get(name)
            if isinstance(limit, int):
                if limit <= self.tokens:
                    return None
                fields[name] = limit - self.tokens
        least = fields.get("min_tokens")
        if isinstance(least, int):
            fields["min_tokens"] = max(0, least - self.tokens)
        if text and self._chat:
            fields["messages"] = [*fields["messages"], {"role": "assistant", "content": text}]
            fields["continue_final_message"], fields["add_generation_prompt"] = True, False
        elif text:
            fields["prompt"] = fields["prompt"] + text
        return orjson.dumps(fields)


class Tap:
    """Reads an answer as another reader does, and has the record hear it."""

    __slots__ = ("_reader", "_record")

    def __init__(self, reader: UsageReader, record: StreamRecord) -> None:
        self._reader = reader
        self._record = record

    def feed(self, data: bytes) -> bytes:
        self._record.feed(data)
        return self._reader.feed(data)

    def finish(self) -> bytes:
        return self._reader.finish()

    @property
    def usage(self) -> Usage | None:
        return self._reader.usage

    @property
    def finish_reason(self) -> FinishReason | None:
        return self._reader.finish_reason

    @property
    def saw_token(self) -> bool:
        return self._reader.saw_token

    @property
    def response_id(self) -> str | None:
        return self._reader.response_id


class ContinuationReader:
    """Makes the second stream the rest of the first: its id and time, one role, and the usage of both."""

    __slots__ = ("_finish_reason", "_record", "_rest", "_usage")

    def __init__(self, record: StreamRecord) -> None:
        self._record = record
        self._rest = b""
        self._usage: Usage | None = None
        self._finish_reason: FinishReason | None = None

    def feed(self, data: bytes) -> bytes:
        events, self._rest = split(self._rest + data)
        return b"".join([self._rewritten(event) for event in events])

    def finish(self) -> bytes:
        rest, self._rest = self._rest, b""
        return rest

    @property
    def usage(self) -> Usage | None:
        return self._usage

    @property
    def finish_reason(self) -> FinishReason | None:
        return self._finish_reason

    @property
    def saw_token(self) -> bool:
        return True

    @property
    def response_id(self) -> str | None:
        return None

    def _rewritten(self, event: bytes) -> bytes:
        chunk = chunk_of(event)
        if chunk is None or chunk.get("error"):
            return event
        choices = chunk.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else None
        if choice is not None and choice.get("finish_reason") is not None:
            self._finish_reason = reason_of(str(choice["finish_reason"]))
        elif choice is not None and _opens(choice) and self._record.id is not None:
            return b""
        if isinstance(chunk.get("usage"), dict):
            self._add_up(chunk["usage"])
            if choice is None and not self._record.wants_usage:
                return b""
        if self._record.id is not None:
            chunk["id"], chunk["created"] = self._record.id, self._record.created
        return b"data: %b\n\n" % orjson.dumps(chunk)

    def _add_up(self, told: dict[str, Any]) -> None:
        """Count what the first engine said as completion: to the second one it was prompt."""
        usage = read_usage(told)
        if usage is None:
            return
        said = min(self._record.tokens, usage.prompt_tokens)
        prompt, completion = usage.prompt_tokens - said, usage.completion_tokens + said
        cached = None if usage.cached_tokens is None else min(usage.cached_tokens, prompt)
        self._usage = Usage(prompt, completion, cached)
        told["prompt_tokens"], told["completion_tokens"] = prompt, completion
        details = told.get("prompt_tokens_details")
        if isinstance(details, dict) and cached is not None:
            details["cached_tokens"] = cached


def split(data: bytes) -> tuple[list[bytes], bytes]:
    """Return the whole events of a stream, each with its end, and the beginning of the next one."""
    events: list[bytes] = []
    start = 0
    while True:
        short, long = data.find(b"\n\n", start), data.find(b"\n\r\n", start)
        if short < 0 and long < 0:
            return events, data[start:]
        end = short + 2 if long < 0 or 0 <= short < long else long + 3
        events.append(data[start:end])
        start = end


def chunk_of(event: bytes) -> dict[str, Any] | None:
    """Return the JSON object of an event; None for what has none, as comments and the last one."""
    lines = [line[5:].strip() for line in event.splitlines() if line.startswith(b"data:")]
    data = b"\n".join(lines)
    if not data.startswith(b"{"):
        return None
    try:
        chunk = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return chunk if isinstance(chunk, dict) else None


def text_of(choice: Any, *, chat: bool) -> str | None:
    """Return the text that a choice of a chunk adds; None where it adds anything else."""
    if not isinstance(choice, dict):
        return None
    if not chat:
        text = choice.get("text")
        return text if isinstance(text, str) else None
    delta = choice.get("delta")
    if not isinstance(delta, dict) or any(delta.get(name) for name in _OTHER_CONTENT):
        return None
    content = delta.get("content")
    return content if isinstance(content, str) else "" if content is None else None


def _opens(choice: dict[str, Any]) -> bool:
    """Tell of the first chunk of a chat, which has a role and no text."""
    delta = choice.get("delta")
    return isinstance(delta, dict) and "role" in delta and not delta.get("content")
