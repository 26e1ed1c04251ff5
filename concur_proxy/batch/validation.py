"""Reads an input file from end to end: where each line stands, or what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass, field

from concur_proxy.batch import lines
from concur_proxy.batch.lines import Line, Problem
from concur_proxy.batch.records import NewLine

MAX_ERRORS = 100
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Some editors begin a text in UTF-8 with it; it is no part of the first line."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What a batch must keep to."""

    endpoint: str
    max_lines: int
    max_line_bytes: int
    session_headers: tuple[str, ...]


@dataclass(slots=True)
class Found:
    """What an input file holds. ``errors``: as OpenAI's batch object lists them; none where it is in order."""

    errors: list[dict[str, object]] = field(default_factory=list)
    lines: list[NewLine] = field(default_factory=list)
    models: set[str | None] = field(default_factory=set)

    @property
    def model(self) -> str | None:
        """The model of all lines; None where they differ."""
        return next(iter(self.models)) if len(self.models) == 1 else None


class Reader:
    """Takes a file in pieces; ``finish`` tells what it holds. ``over``: the rest need not be read."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._rest = b""
        self._place = 0
        self._number = 0
        self._found = Found()
        self._ids: set[str] = set()
        self._sessions: dict[str, NewLine] = {}
        self.over = False

    def feed(self, piece: bytes) -> None:
        *whole, self._rest = (self._rest + piece).split(b"\n")
        for text in whole:
            self._line(text)
            self._place += len(text) + 1
        if len(self._rest) > self._rules.max_line_bytes:
            self._line(self._rest)

    def finish(self) -> Found:
        self._line(self._rest)
        if not self._found.lines and not self._found.errors:
            self._wrong(None, Problem("empty_file", "The input file is empty: it must have at least one request."))
        return self._found

    def _line(self, text: bytes) -> None:
        self._number += 1
        place = self._place
        if self._number == 1 and text.startswith(BYTE_ORDER_MARK):
            text = text.removeprefix(BYTE_ORDER_MARK)
            place += len(BYTE_ORDER_MARK)
        if self.over or not text.strip():
            return
        if len(text) > self._rules.max_line_bytes:
            limit = f"{self._rules.max_line_bytes} bytes (the setting server.max_body_bytes)"
            self._wrong(self._number, Problem("request_too_large", f"This line is longer than {limit}."))
            self.over = True
        elif len(self._found.lines) >= self._rules.max_lines:
            limit = f"{self._rules.max_lines} requests (the setting batch.max_lines)"
            self._wrong(None, Problem("too_many_tasks", f"The input file has more than {limit}."))
            self.over = True
        else:
            self._take(place, len(text), lines.read(text, self._rules.endpoint, self._rules.session_headers))

    def _take(self, place: int, length: int, line: Line | Problem) -> None:
        if isinstance(line, Line) and line.custom_id in self._ids:
            message = f"The custom_id {line.custom_id!r} is that of an earlier line: each must have one of its own."
            line = Problem("duplicate_custom_id", message, "custom_id")
        if isinstance(line, Problem):
            self._wrong(self._number, line)
            self.over = len(self._found.errors) >= MAX_ERRORS
            return
        self._ids.add(line.custom_id)
        self._found.models.add(line.model)
        self._add(NewLine(self._number, place, length, line.custom_id), line.session)

    def _add(self, line: NewLine, session: str | None) -> None:
        """Put a line behind the one before it of its session."""
        self._found.lines.append(line)
        if session is None:
            return
        before = self._sessions.get(session)
        if before is not None:
            before.successor, line.is_first = line.number, False
        self._sessions[session] = line

    def _wrong(self, number: int | None, problem: Problem) -> None:
        told: dict[str, object] = {
            "code": problem.code,
            "line": number,
            "message": problem.message,
            "param": problem.param,
        }
        self._found.errors.append(told)
