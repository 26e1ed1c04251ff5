"""What a request body tells, read once, and the one change that is made to it. Pure.

Bodies that are not JSON objects have no facts: they are forwarded as they are and the engine answers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from concur_proxy.core.prefix import prefix_key
from concur_proxy.gateway.conversations import Conversations
from concur_proxy.gateway.encoded import media_bytes
from concur_proxy.gateway.hints import NONE, Hints, of_body
from concur_proxy.model import SessionKey

LONG: Final = 512 << 10
"""Bytes from which on a body is read in part where nobody asks for all of it; shorter ones are built as fast."""

MODEL_PART: Final = re.compile(rb'name="?model"?[^\r\n]*\r\n(?:[^\r\n]+\r\n)*\r\n([^\r\n]{1,512})\r\n', re.IGNORECASE)
"""The ``model`` field of a multipart form."""


@dataclass(init=False, slots=True)
class BodyFacts:
    """The fields that identification, admission and the usage reader need."""

    fields: Mapping[str, Any] | None
    """The whole JSON object, until it has been read; None where the body is none, or ``in_part``."""
    in_part: bool
    """Of a long body only what is below was looked for."""
    model: str | None
    stream: bool
    include_usage: bool
    """The client itself asked for the usage event of a stream."""
    max_output_tokens: int | None
    choices: int
    media_bytes: int
    prefix_key: int | None
    previous_response_id: str | None
    background: bool
    """The engine shall answer at once and go on by itself."""
    hints: Hints

    def __init__(
        self,
        *,
        fields: Mapping[str, Any] | None = None,
        in_part: bool = False,
        model: str | None = None,
        stream: bool = False,
        include_usage: bool = False,
        max_output_tokens: int | None = None,
        choices: int = 1,
        media_bytes: int = 0,
        prefix_key: int | None = None,
        previous_response_id: str | None = None,
        background: bool = False,
        hints: Hints = NONE,
    ) -> None:
        self.fields = fields
        self.in_part = in_part
        self.model = model
        self.stream = stream
        self.include_usage = include_usage
        self.max_output_tokens = max_output_tokens
        self.choices = choices
        self.media_bytes = media_bytes
        self.prefix_key = prefix_key
        self.previous_response_id = previous_response_id
        self.background = background
        self.hints = hints


NOTHING: Final = BodyFacts()


def facts(
    body: bytes,
    *,
    conversations: Conversations | None = None,
    session: SessionKey | None = None,
    long: int = LONG,
) -> BodyFacts:
    """Read a JSON body; anything else gives ``NOTHING``.

    ``session``: whose turn it is; of its last ones ``conversations`` know. A body of ``long`` bytes or more is read in
    part then; else ``fields`` are there, however long it is.
    """
    if session is not None and conversations is not None and len(body) >= long:
        part = conversations.skim(session, body)
        if part is not None:
            told = _facts(part, in_part=True)
            if told.include_usage or "stream_options" not in part:  # else they may have to be completed
                return told
    fields = fields_of(body)
    return NOTHING if fields is None else _facts(fields)


def fields_of(body: bytes) -> dict[str, Any] | None:
    """Return a JSON object; None for anything else."""
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return fields if isinstance(fields, dict) else None


def _facts(fields: dict[str, Any], *, in_part: bool = False) -> BodyFacts:
    options = fields.get("stream_options")
    most = fields.get("max_completion_tokens") or fields.get("max_tokens") or fields.get("max_output_tokens")
    return BodyFacts(
        fields=None if in_part else fields,
        in_part=in_part,
        model=_text(fields.get("model")),
        stream=fields.get("stream") is True,
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
        max_output_tokens=_count(most),
        choices=_count(fields.get("n")) or 1,
        media_bytes=media_bytes(fields),
        prefix_key=prefix_key(fields),
        previous_response_id=_text(fields.get("previous_response_id")),
        background=fields.get("background") is True,
        hints=of_body(fields),
    )


def multipart_facts(body: bytes) -> BodyFacts:
    """Read what a multipart form tells: its model."""
    found = MODEL_PART.search(body)
    return BodyFacts(model=found[1].decode(errors="replace")) if found else NOTHING


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 < value < 1 << 31 else None


def with_usage_requested(body: bytes, fields: Mapping[str, Any] | None) -> bytes:
    """Ask the engine for the usage event of a stream: one insertion, every other byte as it was.

    Only a body that already has ``stream_options`` is written anew, because one key in it changes. ``fields`` None: it
    has some, and these are not among them.
    """
    if fields is not None and "stream_options" in fields:
        options = fields["stream_options"]
        asked = {**(options if isinstance(options, dict) else {}), "include_usage": True}
        return orjson.dumps({**fields, "stream_options": asked})
    start = body.index(b"{") + 1
    comma = b"" if fields is not None and not fields else b","
    return b'%b"stream_options":{"include_usage":true}%b%b' % (body[:start], comma, body[start:])
