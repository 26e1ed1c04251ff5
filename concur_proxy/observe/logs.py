"""Log lines on stderr, for people or for machines, and one access line per request.

Access lines do not go through ``logging``: a record costs ten times what the line itself does, on every request. They
look the same and land in the same stream. Nothing here ever sees prompt text or keys.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import time
from collections.abc import Callable
from typing import Final, TextIO

import orjson

from concur_proxy.config import LogSettings
from concur_proxy.model import Usage
from concur_proxy.observe.turnlog import TurnLog, trace_id

SHORT_SESSION: Final = 16
"""Characters of a session id that a text line shows."""
LONGEST_ID: Final = 64
MAX_SHOWN: Final = 4096
LONGEST_SHOWN: Final = 256
COMPLETED: Final = "completed"
_THOUSANDTHS: Final = [f".{n:03d}Z" for n in range(1000)]


def configure(settings: LogSettings, stream: TextIO | None = None) -> None:
    """Send all log lines of this process to ``stream`` (stderr). Libraries only speak from warnings on."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_JsonFormatter() if settings.format == "json" else _TextFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    for name in ("concur_proxy", "uvicorn"):
        logging.getLogger(name).setLevel(settings.level.upper())
    logging.getLogger("uvicorn.access").setLevel(logging.CRITICAL)


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        head = f"{_stamp(record.created)} {record.levelname} {record.name}: {_one_line(record.getMessage())}"
        return f"{head}\n{self.formatException(record.exc_info)}" if record.exc_info else head


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _stamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


class AccessLog:
    """Writes a line for each answered request; those of one turn of the event loop together, where that is told."""

    __slots__ = ("_clock", "_defer", "_line", "_lines", "_owed", "_sample", "_stream")

    def __init__(
        self,
        settings: LogSettings,
        *,
        enabled: bool = True,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.time,
        defer: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        """``clock`` tells the time of day, which only stamps the lines. ``defer`` has a function called soon."""
        wanted = enabled and settings.level in {"debug", "info"}
        self._line = (_json_line if settings.format == "json" else _text_line) if wanted else None
        self._stream = stream or sys.stderr
        self._clock = clock
        self._defer = defer
        self._lines: list[str] = []
        self._sample = settings.sample
        self._owed = 0.0
        """Part of a line that is due, where not every line is written."""

    def __call__(self, turn: TurnLog) -> None:
        """Write the line of ``turn``, now or soon."""
        if self._line is None or (self._sample < 1.0 and turn.outcome == COMPLETED and not self._is_due()):
            return
        self._lines.append(self._line(turn, self._clock()))
        if self._defer is None:
            self.flush()
        elif len(self._lines) == 1:
            self._defer(self.flush)

    def _is_due(self) -> bool:
        """Let the share of lines through that is wanted, evenly."""
        self._owed += self._sample
        due = self._owed >= 1.0
        if due:
            self._owed -= 1.0
        return due

    def flush(self) -> None:
        """Write what is there. A stream that nobody reads any more loses lines, never requests."""
        lines, self._lines = self._lines, []
        with contextlib.suppress(OSError, ValueError):
            self._stream.write("".join(lines))


def _text_line(turn: TurnLog, now: float) -> str:
    usage, request_id = turn.usage, turn.request_id
    if " " in request_id or len(request_id) > LONGEST_ID:
        request_id = _one_word(request_id, LONGEST_ID)
    what = _TEXTS.get(turn.path)
    if what is None:
        what = _TEXTS.keep(turn.path, _one_line(turn.path) or "-")
    queued = "" if turn.queued_s is None else f" queued={_ms(turn.queued_s)}ms"
    first_token = "" if turn.first_token_s is None else f" first_token={_ms(turn.first_token_s)}ms"
    spent = "" if usage is None else _spent(usage)
    trace = trace_id(turn.traceparent) if turn.traceparent else ""
    return (
        f"{_stamp(now)} INFO access: {turn.method or '-'} {what} {turn.status} {turn.outcome}{_place(turn)}{queued}"
        f"{first_token} total={_ms(turn.total_s)}ms{spent} id={request_id}"
        f"{' trace=' if trace else ''}{trace}\n"
    )


def _place(turn: TurnLog) -> str:
    """Return session and backend, as far as there are some."""
    backend = "" if turn.backend is None else f" backend={turn.backend}"
    session = turn.session
    if session is None:
        return backend
    word = _WORDS.get(session.id)
    if word is None:
        word = _WORDS.keep(session.id, _one_word(session.id))
    return f" session={turn.rule}:{word}{backend}"


def _ms(seconds: float) -> int:
    return int(seconds * 1000 + 0.5)


def _spent(usage: Usage) -> str:
    cached = usage.cached_tokens
    known = "?" if cached is None else str(cached)
    return f" prompt={usage.prompt_tokens} cached={known} completion={usage.completion_tokens}"


def _json_line(turn: TurnLog, now: float) -> str:
    usage = turn.usage
    line = {
        "time": _stamp(now),
        "level": "info",
        "logger": "access",
        "request_id": turn.request_id,
        "trace_id": (trace_id(turn.traceparent) or None) if turn.traceparent else None,
        "method": turn.method,
        "path": turn.path,
        "kind": turn.kind,
        "status": turn.status,
        "outcome": turn.outcome,
        "session": turn.session.id if turn.session is not None else None,
        "rule": turn.rule,
        "model": turn.model,
        "backend": turn.backend,
        "queued_ms": _milliseconds(turn.queued_s),
        "first_token_ms": _milliseconds(turn.first_token_s),
        "total_ms": _milliseconds(turn.total_s),
        "prompt_tokens": usage.prompt_tokens if usage is not None else None,
        "cached_tokens": usage.cached_tokens if usage is not None else None,
        "completion_tokens": usage.completion_tokens if usage is not None else None,
    }
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE).decode()


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)


class _Second:
    """The second in which the last line was stamped, as text."""

    __slots__ = ("number", "text")

    def __init__(self) -> None:
        self.number = -1
        self.text = ""

    def show(self, number: int) -> str:
        if number != self.number:
            self.number = number
            self.text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(number))
        return self.text


_SECOND: Final = _Second()


class _Shown:
    """How lines show what came from outside: paths and sessions come again. Clients choose them, so only so many."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def get(self, text: str) -> str | None:
        return self._known.get(text)

    def keep(self, text: str, shown: str) -> str:
        if len(self._known) >= MAX_SHOWN:
            self._known.clear()
        if len(text) <= LONGEST_SHOWN:
            self._known[text] = shown
        return shown


_TEXTS: Final = _Shown()
_WORDS: Final = _Shown()


def _stamp(now: float) -> str:
    second = int(now)
    return _SECOND.show(second) + _THOUSANDTHS[int((now - second) * 1000)]


def _one_line(text: str) -> str:
    """Keep what others wrote from starting a line of its own."""
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def _one_word(text: str, length: int = SHORT_SESSION) -> str:
    """Keep what others wrote from looking like a field of its own, and keep it short."""
    short = text if len(text) <= length else f"{text[:length]}..."
    return short if short.isprintable() and " " not in short else json.dumps(short)
