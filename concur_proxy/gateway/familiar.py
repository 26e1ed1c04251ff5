"""Heads of messages that come again: the next one on a connection differs from the last in its length only.

What a parser has read once and found in order need not be read again: its bytes are compared, which takes a hundredth
of the time. A head that differs in anything but the digits of its ``Content-Length`` takes the ordinary way, through
the parser. Pure.
"""

from __future__ import annotations

from typing import Final

from concur_proxy.core.identity import Identity
from concur_proxy.gateway.headers import Framing, HeaderList, Origin, ResponseHead, request_lines, response_lines
from concur_proxy.gateway.paths import Route

END: Final = b"\r\n\r\n"
LINE_END: Final = b"\r\n"
BLANKS: Final = b" \t"
LENGTH: Final = b"content-length"
MAX_DIGITS: Final = 12
MAX_HEAD: Final = 4 << 10
"""Bytes of a head that is kept."""
NO_FIT: Final = (0, 0)
UNFIT_REQUEST: Final = ("expect", "transfer-encoding", "upgrade", "trailer")
"""Headers of requests that want more than to be passed on."""
PATIENCE: Final = 4
"""How often a head is kept in vain, on one connection, before that is no longer tried."""


class Mould:
    """A head with a gap where the digits of its length stand."""

    __slots__ = ("_after", "_before", "_length", "_whole", "digits")

    def __init__(self, before: bytes, digits: bytes, after: bytes) -> None:
        self._before = before
        self._after = after
        self.digits = digits
        """Of the latest message."""
        self._length = int(digits)
        self._whole = before + digits + after

    def fit(self, data: bytes) -> tuple[int, int]:
        """Return where the body begins and how long it is; ``NO_FIT`` where ``data`` does not begin with this head."""
        if data[: len(self._whole)] == self._whole:
            return len(self._whole), self._length
        start = len(self._before)
        if data[:start] != self._before:
            return NO_FIT
        end = data.find(b"\r", start, start + MAX_DIGITS + 1)
        body = end + len(self._after)
        if end < 0 or data[end:body] != self._after:
            return NO_FIT
        digits = data[start:end]
        if not digits.isdigit():
            return NO_FIT
        self.digits, self._length, self._whole = digits, int(digits), data[:body]
        return body, self._length


def mould_of(data: bytes, first_line: bytes, headers: HeaderList) -> Mould | None:
    """Return the mould of the head that ``data`` begins with; None where it is not written as it was read.

    ``headers``: what a parser made of it.
    """
    end = data.find(END, 0, MAX_HEAD)
    lines = data[:end].split(LINE_END) if end > 0 else []
    if len(lines) != len(headers) + 1 or lines[0] != first_line:
        return None
    position, mould = len(first_line), None
    for index, (name, value) in enumerate(headers):
        line = lines[index + 1]
        written, _, rest = line.partition(b":")
        if written != name or rest.strip(BLANKS) != value:
            return None
        position += len(LINE_END) + len(line)
        if name.lower() == LENGTH:
            if mould is not None or not line.endswith(value) or not value.isdigit() or len(value) > MAX_DIGITS:
                return None
            mould = Mould(data[: position - len(value)], value, data[position : end + len(END)])
    return mould


def _with_length(headers: HeaderList, digits: bytes) -> HeaderList:
    return [(name, digits if name.lower() == LENGTH else value) for name, value in headers]


class FamiliarRequest:
    """What the heads of a connection's requests say that are alike, and what was made of it."""

    __slots__ = (
        "_encoded",
        "_mould",
        "_plain",
        "headers",
        "identity",
        "lowered",
        "method",
        "namespace",
        "path",
        "route",
        "settings",
        "target",
        "tenant",
    )

    def __init__(
        self, mould: Mould, method: bytes, target: bytes, headers: HeaderList, lowered: dict[str, str], route: Route
    ) -> None:
        self._mould = mould
        self.method = method
        self.target = target
        self.path = target.partition(b"?")[0]
        self.headers = headers
        self.lowered = lowered
        self.route = route
        self._encoded = b""
        self._plain = b""
        self.settings: object = None
        """Those by which the following were found out; they may be replaced."""
        self.namespace = ""
        self.tenant = ""
        self.identity: Identity | None = None
        """Where the headers alone tell it."""

    def fit(self, data: bytes) -> tuple[int, int]:
        """Return where the body begins and how long it is; ``NO_FIT`` where ``data`` does not begin with this head."""
        before = self._mould.digits
        found = self._mould.fit(data)
        if self._mould.digits is not before:
            self._renew(self._mould.digits)
        return found

    def _renew(self, digits: bytes) -> None:
        """Have the headers tell the length of this request."""
        self.headers = _with_length(self.headers, digits)
        self.lowered = self.lowered.copy()
        self.lowered["content-length"] = digits.decode()

    def lines(self, origin: Origin, *, identity_only: bool) -> list[bytes]:
        """Return what ``request_lines`` would, for an origin that differs from the last in its id alone."""
        kept = self._plain if identity_only else self._encoded
        if not kept:
            with_id = {**self.lowered, "x-request-id": ""}
            kept = b"".join(request_lines(self.headers, with_id, origin, identity_only=identity_only))
            if identity_only:
                self._plain = kept
            else:
                self._encoded = kept
        return [kept] if "x-request-id" in self.lowered else [kept, b"x-request-id: ", origin.request_id, LINE_END]


def familiar_request(
    data: bytes, method: bytes, target: bytes, headers: HeaderList, lowered: dict[str, str], route: Route
) -> FamiliarRequest | None:
    """Return the head that ``data`` begins with, as one that may come again; None where it is not fit for that."""
    if len(lowered) != len(headers) or any(name in lowered for name in UNFIT_REQUEST):
        return None
    mould = mould_of(data, b"%b %b HTTP/1.1" % (method, target), headers)
    return None if mould is None else FamiliarRequest(mould, method, target, headers, lowered, route)


class FamiliarResponse:
    """What the heads of an engine's responses say that are alike."""

    __slots__ = ("_headers", "_lines", "_mould", "_reason", "_status", "_values")

    def __init__(self, mould: Mould, head: ResponseHead) -> None:
        self._mould = mould
        self._status = head.status
        self._reason = head.reason
        self._headers = head.headers
        self._values = head.values
        self._lines = b""

    def fit(self, data: bytes) -> tuple[int, int]:
        """Return where the body begins and how long it is; ``NO_FIT`` where ``data`` does not begin with this head."""
        before = self._mould.digits
        found = self._mould.fit(data)
        if self._mould.digits is not before:
            self._renew(self._mould.digits)
        return found

    def _renew(self, digits: bytes) -> None:
        self._headers = _with_length(self._headers, digits)
        self._values = self._values.copy()
        self._values[LENGTH] = digits
        self._lines = b""

    def head(self) -> ResponseHead:
        """Return the head of the latest response that fitted, with the lines that the client gets of it."""
        head = ResponseHead(self._status, self._reason, self._headers, self._values, Framing.LENGTH)
        if not self._lines:
            self._lines = b"".join(response_lines(head, with_length=True))
        head.lines = self._lines
        return head


def familiar_response(data: bytes, head: ResponseHead) -> FamiliarResponse | None:
    """Return the head that ``data`` begins with, as one that may come again; None where it is not fit for that."""
    if head.framing is not Framing.LENGTH or len(head.values) != len(head.headers) or head.status != 200:
        return None
    mould = mould_of(data, b"HTTP/1.1 200 %b" % head.reason, head.headers)
    return None if mould is None else FamiliarResponse(mould, head)
