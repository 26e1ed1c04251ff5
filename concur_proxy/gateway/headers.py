"""Header lines on their way through: what is taken out, what is added, everything else byte for byte. Pure.

Headers are lists of (name, value) as received: order, case, duplicates and bytes beyond ASCII stay.

This runs on every request: what a header name means is found out once per spelling, and lines are lists of parts that
are joined once.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Final

HeaderList = list[tuple[bytes, bytes]]
Parts = list[bytes]

HOP_BY_HOP: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"transfer-encoding",
        b"upgrade",
    }
)
REQUEST_DROPPED: Final = HOP_BY_HOP | {b"trailer", b"http2-settings", b"content-length", b"host", b"expect"}
FORWARDED: Final = frozenset({b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host"})
OURS: Final = b"x-concur-"
ESSENTIAL: Final = frozenset({b"content-length", b"transfer-encoding", b"host"})
"""What ``Connection`` cannot take away: without it a message would end elsewhere."""
MAX_SPELLINGS: Final = 4096
LONGEST_NAME: Final = 255
HOST: Final = re.compile(r"[\w.~!$&'()*+;=%:\[\]-]*", re.ASCII).fullmatch
OFFER: Final = frozenset({b"upgrade", b"http2-settings"})
PLAIN_CONNECTION: Final = frozenset({b"keep-alive", b"close", b"Keep-Alive", b"Close"})


class Framing(enum.Enum):
    """How the end of a response's body is told."""

    NONE = "none"
    LENGTH = "length"
    CHUNKED = "chunked"
    CLOSE = "close"


class Name:
    """A header name in one spelling, and what becomes of it."""

    __slots__ = ("forwarded", "lower", "opening", "returned", "text")

    def __init__(self, raw: bytes) -> None:
        self.lower = raw.lower()
        self.text = self.lower.decode("latin-1")
        self.opening = raw + b": "
        """How its line begins."""
        self.forwarded = not (self.lower in REQUEST_DROPPED or self.lower in FORWARDED or self.lower.startswith(OURS))
        """Goes to the engine as it is."""
        self.returned = not (self.lower in HOP_BY_HOP or self.lower.startswith(OURS))
        """Goes to the client as it is."""


NAMES: Final[dict[bytes, Name]] = {}
"""What is known of each spelling. Clients choose names, so only so many are remembered."""


def name_of(raw: bytes) -> Name:
    """Return what a name in this spelling means."""
    known = NAMES.get(raw)
    return _learn(raw) if known is None else known


def _learn(raw: bytes) -> Name:
    name = Name(raw)
    if len(NAMES) < MAX_SPELLINGS:
        NAMES[raw] = name
    return name


def lowered(headers: HeaderList) -> dict[str, str]:
    """Return values by lower-case name, of several the last: for those who only read."""
    return {name_of(name).text: text_of(value) for name, value in headers}


def text_of(value: bytes) -> str:
    """Return a header's value as text: UTF-8, as clients send it today, else Latin-1, which is what HTTP once meant."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def occurrences(headers: HeaderList, wanted: bytes) -> int:
    """Return how many lines have a name, given in lower case."""
    return sum(name_of(name).lower == wanted for name, _ in headers)


class Hosts(dict[str, bool]):
    """Whether a ``Host`` is one name or address, with or without a port, or empty; remembered like names."""

    def __missing__(self, value: str) -> bool:
        fits = HOST(value) is not None
        if len(self) < MAX_SPELLINGS and len(value) <= LONGEST_NAME:
            self[value] = fits
        return fits


HOSTS: Final = Hosts()


def is_chunked(coding: str) -> bool:
    """Tell whether a ``Transfer-Encoding`` is the one that everybody understands."""
    return coding.strip().lower() == "chunked"


@dataclass(init=False, slots=True)
class ResponseHead:
    """Status line and headers of an engine's response."""

    status: int
    reason: bytes
    headers: HeaderList
    values: dict[bytes, bytes]
    """By lower-case name; of several the last."""
    framing: Framing
    lines: bytes
    """What the client gets of it, framing included, where that is known from a head like it; else empty."""

    def __init__(
        self,
        status: int,
        reason: bytes,
        headers: HeaderList,
        values: dict[bytes, bytes],
        framing: Framing,
    ) -> None:
        self.status = status
        self.reason = reason
        self.headers = headers
        self.values = values
        self.framing = framing
        self.lines = b""

    def value(self, name: bytes) -> bytes:
        """Return a header's value by its lower-case name; empty where there is none."""
        return self.values.get(name, b"")


@dataclass(init=False, slots=True)
class Origin:
    """Where a request came from, as the engine is told."""

    peer: bytes
    scheme: bytes
    request_id: bytes
    traceparent: bytes
    """In place of what the client sent; empty: just that.

    None is made up where nobody traces here: engines that sample by a ratio would have to obey its flag, and trace all.
    """

    def __init__(
        self,
        peer: bytes,
        scheme: bytes,
        request_id: bytes,
        traceparent: bytes = b"",
    ) -> None:
        self.peer = peer
        self.scheme = scheme
        self.request_id = request_id
        self.traceparent = traceparent


def nominated(headers: HeaderList) -> set[bytes]:
    """Return the header names that ``Connection`` declares to be for this hop only."""
    names: set[bytes] = set()
    for name, value in headers:
        if name_of(name).lower == b"connection" and value not in PLAIN_CONNECTION:
            names.update(token.strip().lower() for token in value.split(b","))
    return names - ESSENTIAL


def without_offer(headers: HeaderList) -> bytes:
    """Return the lines of a request without its offer to go on with another protocol."""
    parts: Parts = []
    for raw, value in headers:
        name, kept = name_of(raw).lower, value
        if name == b"connection":
            kept = b", ".join(token for token in map(bytes.strip, value.split(b",")) if token.lower() not in OFFER)
        if name not in OFFER and (kept or kept == value):
            parts += (raw, b": ", kept, b"\r\n")
    return b"".join(parts)


def request_lines(headers: HeaderList, known: dict[str, str], origin: Origin, *, identity_only: bool) -> Parts:
    """Return the header lines for the engine, without Host and length. ``known``: the headers ``lowered``.

    ``identity_only``: the answer must come uncompressed, because an event has to be taken out of it.
    """
    dropped = nominated(headers) if "connection" in known else None
    if origin.traceparent:
        dropped = {b"traceparent", *(dropped or ())}
    parts: Parts = []
    hop: dict[bytes, bytes] = {}
    for raw, value in headers:
        name = name_of(raw)
        if not name.forwarded or (dropped and name.lower in dropped):
            hop[name.lower] = value
        elif not (identity_only and name.lower == b"accept-encoding"):
            parts += (name.opening, value, b"\r\n")
    if identity_only:
        parts.append(b"accept-encoding: identity\r\n")
    chain = _chain(headers, origin) if "x-forwarded-for" in known else origin.peer
    scheme = hop.get(b"x-forwarded-proto", origin.scheme)
    host = hop.get(b"x-forwarded-host") or hop.get(b"host", b"")
    parts += (b"x-forwarded-for: ", chain, b"\r\nx-forwarded-proto: ", scheme, b"\r\nx-forwarded-host: ", host, b"\r\n")
    if "x-request-id" not in known:
        parts += (b"x-request-id: ", origin.request_id, b"\r\n")
    if origin.traceparent:
        parts += (b"traceparent: ", origin.traceparent, b"\r\n")
    return parts


def _chain(headers: HeaderList, origin: Origin) -> bytes:
    """Return the addresses that a request came by, ours being the last to add one."""
    before = [value for name, value in headers if name_of(name).lower == b"x-forwarded-for"]
    return b", ".join([*before, origin.peer] if origin.peer else before)


def response_lines(head: ResponseHead, *, with_length: bool) -> Parts:
    """Return status line and header lines for the client, without framing beyond ``Content-Length`` where it holds."""
    dropped = nominated(head.headers) if b"connection" in head.values else ()
    parts: Parts = [b"HTTP/1.1 %d %b\r\n" % (head.status, head.reason)]
    for raw, value in head.headers:
        name = name_of(raw)
        if not name.returned or (dropped and name.lower in dropped):
            continue
        if with_length or name.lower != b"content-length":
            parts += (name.opening, value, b"\r\n")
    return parts


def chunk(data: bytes) -> bytes:
    """Return one chunk of a chunked body; nothing for no data, which would end the body."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


def last_chunk(trailers: HeaderList) -> bytes:
    return b"0\r\n%b\r\n" % b"".join(b"%b: %b\r\n" % trailer for trailer in trailers)
