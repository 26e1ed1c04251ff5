"""Reads a multipart form (RFC 7578) as it comes, so that a file of any size goes through little memory. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from email.message import Message

from concur_proxy.errors import RequestError

MAX_HEAD_BYTES = 16 << 10
MAX_BOUNDARY = 200
MAX_PARTS = 64
"""A form has a handful; millions of empty ones would fill the memory with their names."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part begins; its data follows. ``filename`` is None where it is a plain field."""

    name: str
    filename: str | None


Event = Part | bytes
"""Data belongs to the part that began last."""


class FormReader:
    """``complete`` once the form has ended; what comes behind is ignored. RequestError where it is no form."""

    def __init__(self, content_type: str) -> None:
        message = Message()
        message["content-type"] = content_type
        boundary = message.get_param("boundary")
        if message.get_content_type() != "multipart/form-data" or not isinstance(boundary, str):
            raise RequestError("Send the file as multipart/form-data with a boundary.")
        if not 0 < len(boundary) <= MAX_BOUNDARY or not boundary.isascii():
            raise RequestError("The boundary of the form is not valid.")
        self._delimiter = b"\r\n--" + boundary.encode()
        self._buffer = b"\r\n"  # the first delimiter may stand at the very start
        self._read: Callable[[list[Event]], bool] = self._preamble
        self._parts = 0
        self.complete = False

    def feed(self, data: bytes) -> list[Event]:
        """Return what has come with ``data``."""
        self._buffer += data
        events: list[Event] = []
        while not self.complete and self._read(events):
            pass
        return events

    def _preamble(self, _: list[Event]) -> bool:
        if self._until_delimiter() is None:
            self._before_delimiter()
            return False
        return True

    def _before_delimiter(self) -> bytes:
        """Take what no delimiter can begin in: the rest may be the start of one."""
        safe = max(0, len(self._buffer) - len(self._delimiter) + 1)
        data, self._buffer = self._buffer[:safe], self._buffer[safe:]
        return data

    def _content(self, events: list[Event]) -> bool:
        data = self._until_delimiter()
        if data is None:
            if data := self._before_delimiter():
                events.append(data)
            return False
        if data:
            events.append(data)
        return True

    def _until_delimiter(self) -> bytes | None:
        """Take what stands before the delimiter, and the delimiter; None while that has not come."""
        data, found, rest = self._buffer.partition(self._delimiter)
        if not found:
            return None
        self._buffer, self._read = rest, self._after_delimiter
        return data

    def _after_delimiter(self, _: list[Event]) -> bool:
        if len(self._buffer) < 2:
            return False
        if self._buffer.startswith(b"--"):
            self.complete, self._buffer = True, b""
            return False
        line, found, rest = self._buffer.partition(b"\r\n")
        if line.strip(b" \t\r") or len(line) > MAX_HEAD_BYTES:
            raise RequestError("The form is broken: something follows a boundary.")
        if found:
            self._buffer, self._read = b"\r\n" + rest, self._head  # a part may have no headers at all
        return bool(found)

    def _head(self, events: list[Event]) -> bool:
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if len(head) > MAX_HEAD_BYTES:
            raise RequestError("The headers of a part of the form are too long.")
        if not found:
            return False
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise RequestError(f"The form has more than {MAX_PARTS} parts.")
        events.append(_part(head))
        self._buffer, self._read = rest, self._content
        return True


def _filename(message: Message) -> str | None:
    """Return the file's name, as far as it is a text: the charset that a client names may be anything."""
    try:
        name = message.get_filename()
    except ValueError:
        return ""
    return None if name is None else name.encode(errors="replace").decode()


def _name(message: Message) -> object:
    """Return the field's name; None where the parameters cannot be read."""
    try:
        return message.get_param("name", header="content-disposition")
    except ValueError:
        return None


def _part(head: bytes) -> Part:
    for line in head.split(b"\r\n"):
        name, _, value = line.decode(errors="replace").partition(":")
        if name.strip().lower() == "content-disposition":
            message = Message()
            message["content-disposition"] = value.strip()
            field = _name(message)
            if isinstance(field, str):
                return Part(field, _filename(message))
    raise RequestError("A part of the form has no name (Content-Disposition: form-data; name=...).")
