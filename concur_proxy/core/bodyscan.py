"""Finds what an answer says about itself in JSON text that passes by in pieces of any size.

Nothing is parsed but the few values that matter, and nothing is kept but the end of a piece that may go on in the next
one. That works because keys are told from text by one byte: quotes inside of JSON strings are escaped, so ``"usage":``
is always a key. Where a key like it stands in the model's own words (a tool's arguments as an object), the engine's
comes later, and the last one counts.
"""

from __future__ import annotations

import json
import re
from typing import Final

from concur_proxy.core.spent import COMPLETION, PROMPT, count_of, read_usage, reason_of
from concur_proxy.model import FinishReason, Usage

MAX_VALUE: Final = 8 << 10
"""Bytes of a usage object; a longer one is none."""
OVERLAP: Final = 192
"""Bytes of a piece that are looked at again together with the next: more than any key and short value needs."""

HANDFUL: Final = 4 << 10
"""Bytes of a stream that are looked at together: one by one, each piece would cost as much as all else done with it."""

BEGINNING: Final = 16 << 10
"""Bytes within which the Responses API has told its id; looking on would cost every piece of every other stream."""

# All of them are looked for by ``find``: ``in`` tries to read a number first, which takes three times as long.
_KEY: Final = b'"usage"'
_REASON_KEY: Final = b'_reason"'
_NO_REASON: Final = b'_reason":null'
"""In all chunks but the last."""
_VALUE: Final = re.compile(rb"\s{0,16}:\s{0,16}")
_REASON: Final = re.compile(rb'_reason"\s*:\s*"([^"\\]{0,48})"')
_CALLED: Final = re.compile(rb'"tool_calls"\s*:\s*\[\s*\{|"type"\s*:\s*"function_call"')
_RESPONSE_ID: Final = re.compile(rb'"id"\s*:\s*"(resp_[!#-\[\]-~]{1,128})"')
_CUT_SHORT: Final = re.compile(rb'"incomplete_details"\s*:\s*\{')
_TOKEN: Final = re.compile(
    rb'"(?:content|text|reasoning|reasoning_content|thinking|refusal|partial_json|delta)"\s*:\s*"[^"]'
    rb'|"tool_calls"\s*:\s*\[\s*\{|"type"\s*:\s*"tool_use"'
)
"""Generated text or a call of a tool, in the chunks of any of the APIs; the first chunk of most has only a role."""

_decode = json.JSONDecoder().raw_decode


class BodyScanner:
    """``streamed``: the text is a stream of events, whose usage may come in parts (Anthropic's does).

    The pieces of a stream are looked at one by one up to the first token, when somebody waits for what they tell, and
    in handfuls from then on.
    """

    __slots__ = (
        "_begins",
        "_called",
        "_carry",
        "_cut_short",
        "_finish",
        "_looked_at",
        "_response_id",
        "_stop",
        "_streamed",
        "_told",
        "_waiting",
        "_waiting_bytes",
        "saw_token",
    )

    def __init__(self, *, streamed: bool) -> None:
        self._streamed = streamed
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._carry = b""
        self._told: dict[str, object] = {}
        self._finish: FinishReason | None = None
        self._stop: FinishReason | None = None
        self._called = False
        self._cut_short = False
        self._begins = True
        self._looked_at = 0
        self._response_id: str | None = None
        self.saw_token = False
        """Something generated has passed; only streams tell."""

    @property
    def usage(self) -> Usage | None:
        self._catch_up()
        return read_usage(self._told)

    @property
    def response_id(self) -> str | None:
        """Id in the Responses API."""
        self._catch_up()
        return self._response_id

    @property
    def finish_reason(self) -> FinishReason | None:
        self._catch_up()
        reason = self._finish or self._stop
        if reason is None and self._response_id is not None and self._told:
            reason = FinishReason.LENGTH if self._cut_short else FinishReason.STOP
        # Engines say "stop" when they had to call the tool that the client named.
        return FinishReason.TOOL_CALLS if reason is FinishReason.STOP and self._called else reason

    def feed(self, data: bytes) -> None:
        """Take the next piece."""
        if not self.saw_token:
            self._look(data)
            return
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes >= HANDFUL:
            self._catch_up()

    def _catch_up(self) -> None:
        if self._waiting:
            data = b"".join(self._waiting)
            self._waiting.clear()
            self._waiting_bytes = 0
            self._look(data)

    def _look(self, data: bytes) -> None:
        """Look at what has come. Costs a few byte searches where there is nothing to find."""
        if self._carry:
            data = self._carry + data
        # Within an event there is no end of a line, so what ends with one ends no key or value in the middle.
        self._carry = b"" if self._streamed and data.endswith(b"\n") else data[-OVERLAP:]
        if data.count(_REASON_KEY) > data.count(_NO_REASON):
            self._find_reason(data)
        if not self._called and data.find(b"_call") >= 0:
            self._called = _CALLED.search(data) is not None
        if self._begins:
            self._find_response_id(data)
        if self._response_id is not None and data.find(b'"incomplete_details"') >= 0:
            self._cut_short = self._cut_short or _CUT_SHORT.search(data) is not None
        if self._streamed and not self.saw_token:
            self.saw_token = _TOKEN.search(data) is not None
        if data.find(_KEY) >= 0:
            self._find_usage(data)

    def _find_response_id(self, data: bytes) -> None:
        """Look for the id while what has come is the beginning, where it stands."""
        if data.find(b'"resp_') >= 0 and (found := _RESPONSE_ID.search(data)):
            self._response_id = found[1].decode()
        self._looked_at += len(data)
        self._begins = self._response_id is None and self._looked_at < BEGINNING

    def _find_reason(self, data: bytes) -> None:
        for found in _REASON.finditer(data):
            key, reason = data[: found.start()], reason_of(found[1].decode("latin-1"))
            if key.endswith(b'"stop'):
                self._stop = reason  # vLLM also has one beside its finish_reason: the text that it stopped at
            elif key.endswith(b'"finish') and self._finish is not FinishReason.TOOL_CALLS:
                self._finish = reason
            self.saw_token = self.saw_token or self._streamed

    def _find_usage(self, data: bytes) -> None:
        position = data.find(_KEY)
        while position >= 0:
            end = self._read_usage(data, position + len(_KEY))
            if end is None:
                self._carry = data[position:]
                return
            position = data.find(_KEY, end)

    def _read_usage(self, data: bytes, start: int) -> int | None:
        """Read what follows the key; return where it ends, or None where it may go on in the next piece."""
        colon = _VALUE.match(data, start)
        if colon is None:
            rest = data[start : start + OVERLAP]
            return start if rest.strip() or len(rest) == OVERLAP else None
        text = data[colon.end() : colon.end() + MAX_VALUE]
        if text[:1] != b"{":
            return colon.end() if text else None
        try:
            value, length = _decode(text.decode(errors="replace"))
        except (ValueError, RecursionError):
            return colon.end() + MAX_VALUE if len(text) == MAX_VALUE else None
        self._take(value)
        return colon.end() + length

    def _take(self, value: dict[str, object]) -> None:
        if any(count_of(value.get(name)) is not None for name in PROMPT + COMPLETION):
            known = {name: part for name, part in value.items() if part is not None}
            self._told = {**self._told, **known} if self._streamed else known
