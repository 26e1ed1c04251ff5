"""Takes the usage event, which the proxy itself asked for, out of a stream of server-sent events (invariant 8).

- Everything else leaves as it came and in order, whatever the reads cut it into.
- A whole event is never kept back. The beginning of one is, until it shows that it is not the usage event: by a choice,
  or by its length.
- Events end with an empty line; lines end with LF or CRLF.
"""

from __future__ import annotations

import json
import re
from typing import Final

MAX_EVENT: Final = 16 << 10
"""Bytes of a usage event, which has no text; a longer event is none."""

_END: Final = re.compile(rb"\n\r?\n")
_HAS_CHOICE: Final = re.compile(rb'"choices"\s*:\s*\[\s*\{')
_NO_CHOICE: Final = re.compile(rb'"choices"\s*:\s*\[\s*\]')


class UsageEventCutter:
    __slots__ = ("_held", "_passed")

    def __init__(self) -> None:
        self._held = b""
        """Beginning of an event that may be the usage event."""
        self._passed = b""
        """Last bytes of an event whose beginning has left and whose end has not come; empty between two events."""

    def feed(self, data: bytes) -> bytes:
        """Return what goes on now: the same object where that is just ``data``."""
        if self._passed:
            return self._pass(data)
        if self._held:
            data, self._held = self._held + data, b""
        return self._sort(data)

    def finish(self) -> bytes:
        """Return what is left at the end of the stream."""
        rest, self._held = self._held, b""
        return _blank(rest) if is_usage_event(rest) else rest

    def _pass(self, data: bytes) -> bytes:
        """Let the rest of an event through."""
        joined = self._passed + data
        end = _END.search(joined)
        if end is None:
            self._passed = joined[-2:]
            return data
        stop = end.end() - len(self._passed)
        self._passed = b""
        return data if stop == len(data) else data[:stop] + self._sort(data[stop:])

    def _sort(self, data: bytes) -> bytes:
        """Let whole events through but for the usage event, and decide on a beginning at the end."""
        out = data
        start = _last_end(data)
        if _may_have_usage_event(data):
            kept, start = _without_usage_event(data)
            out = b"".join(kept)
        rest = data[start:]
        if not rest:
            return out
        if len(rest) > MAX_EVENT or _HAS_CHOICE.search(rest):
            self._passed = rest[-2:]
            return out
        self._held = rest
        return out[: len(out) - len(rest)]


def _last_end(data: bytes) -> int:
    """Return where the last whole event ends; 0 where there is none."""
    if data[-2:] == b"\n\n" or data[-3:] == b"\n\r\n":
        return len(data)
    short, long = data.rfind(b"\n\n"), data.rfind(b"\n\r\n")
    return max(0, short + 2 if short >= 0 else 0, long + 3 if long >= 0 else 0)


def _without_usage_event(data: bytes) -> tuple[list[bytes], int]:
    """Return the events that stay, with what comes after the last one, and where that is in ``data``."""
    kept: list[bytes] = []
    start = 0
    for end in _END.finditer(data):
        event = data[start : end.end()]
        kept.append(_blank(event) if is_usage_event(event) else event)
        start = end.end()
    kept.append(data[start:])
    return kept, start


def _blank(event: bytes) -> bytes:
    """Return the empty lines before an event, which are no part of it."""
    return event[: len(event) - len(event.lstrip(b"\r\n"))]


def _may_have_usage_event(data: bytes) -> bool:
    """Tell by a glance; some engines have an empty ``usage`` in every event."""
    return data.find(b'"usage"') >= 0 and _NO_CHOICE.search(data) is not None


def is_usage_event(event: bytes) -> bool:
    """Tell whether an event has usage and nothing else: no choice and no error."""
    if not _may_have_usage_event(event) or len(event) > MAX_EVENT or _HAS_CHOICE.search(event):
        return False
    lines = [line[5:] for line in event.splitlines() if line.startswith(b"data:")]
    try:
        chunk = json.loads(b"\n".join(lines))
    except (ValueError, RecursionError):
        return False
    if not isinstance(chunk, dict) or chunk.get("choices") != []:
        return False
    return isinstance(chunk.get("usage"), dict) and not chunk.get("error")
