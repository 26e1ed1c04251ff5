"""What clients say about how much they are in a hurry: priorities and deadlines. Pure.

Engines disagree on signs. ``urgency`` is higher for what should go first. Every request passes on as it came, but to
engines that schedule by priority, where the operator says so: those are told what it came to here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import orjson

MOST: Final = 1 << 31
"""Priorities beyond this are no numbers of any engine."""

Hints = tuple[int, float | None]
"""Urgency, and the seconds within which the answer is wanted."""

NONE: Final[Hints] = (0, None)

COLD_HEADER: Final = "x-concur-cold"
"""Says that a turn is batch work. Engines do not get to see it: many refuse priorities that they do not schedule by."""


def of_body(fields: Mapping[str, object]) -> Hints:
    """Read ``priority`` (as vLLM means it: lower first), ``nvext.agent_hints.priority`` (higher first) and
    ``deadline_seconds``, at the top or in ``agent_hints``.
    """
    if "priority" not in fields and "nvext" not in fields and "deadline_seconds" not in fields:
        return NONE
    extension = fields.get("nvext")
    told = extension.get("agent_hints") if isinstance(extension, dict) else None
    hints: Mapping[str, object] = told if isinstance(told, dict) else {}
    urgency = _whole(hints.get("priority")) or -_whole(fields.get("priority"))
    return urgency, _seconds(fields.get("deadline_seconds")) or _seconds(hints.get("deadline_seconds"))


def urgency(told: int, headers: Mapping[str, str]) -> int:
    """Return that of ``X-Vllm-Priority`` (lower goes first), or of ``x-smg-priority`` or ``x-dynamo-request-priority``
    (higher), else the body's.

    What comes with ``COLD_HEADER`` is less urgent than usual, whatever else it says.
    """
    if "x-vllm-priority" in headers:
        told = -_read(headers["x-vllm-priority"])
    elif "x-smg-priority" in headers:
        told = _read(headers["x-smg-priority"])
    elif "x-dynamo-request-priority" in headers:
        told = _read(headers["x-dynamo-request-priority"])
    return min(told, -1) if COLD_HEADER in headers else told


def with_priority(body: bytes, priority: int) -> bytes:
    """Return a body that tells an engine this priority: one insertion, every other byte as it was.

    Only a body that has another one, or what looks like one, is written anew. What is no JSON object stays as it is.
    """
    if b'"priority"' in body:
        return _written_anew(body, priority)
    start = body.find(b"{") + 1
    if not start or body[: start - 1].strip():
        return body
    comma = b"" if body[start:].lstrip()[:1] == b"}" else b","
    return b'%b"priority":%d%b%b' % (body[:start], priority, comma, body[start:])


def _written_anew(body: bytes, priority: int) -> bytes:
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body
    if not isinstance(fields, dict) or fields.get("priority") == priority:
        return body
    return orjson.dumps({**fields, "priority": priority})


def tenant(namespace: str, header: str | None, headers: Mapping[str, str]) -> str:
    """Return whose share a turn takes: whom the operator's header names, else the owner of the API key."""
    named = headers.get(header, "").strip() if header is not None else ""
    return named if named and len(named) <= 256 else namespace


def _whole(value: object) -> int:
    return value if type(value) is int and -MOST < value < MOST else 0


def _read(text: str) -> int:
    try:
        return _whole(int(text[:16]))
    except ValueError:
        return 0


def _seconds(value: object) -> float | None:
    if type(value) not in (int, float):
        return None
    assert isinstance(value, int | float)
    return float(value) if 0 < value < math.inf else None
