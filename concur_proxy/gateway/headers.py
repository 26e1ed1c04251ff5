"""Header lines on their way through: what is taken out, what is added, everything else byte for byte. Pure.

Headers are lists of (name, value) as received: order, case, duplicates and bytes beyond ASCII stay.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

HeaderList = list[tuple[bytes, bytes]]

HOP_BY_HOP = frozenset(
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
REQUEST_DROPPED = HOP_BY_HOP | {b"trailer", b"http2-settings", b"content-length", b"host", b"expect"}
FORWARDED = {b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host"}
OURS = b"x-concur-"


class Framing(enum.Enum):
    """How the end of a response's body is told."""

    NONE = "none"
    LENGTH = "length"
    CHUNKED = "chunked"
    CLOSE = "close"


@dataclass(slots=True)
class ResponseHead:
    """Status line and headers of an engine's response."""

    status: int
    reason: bytes
    headers: HeaderList
    framing: Framing

    def value(self, name: bytes) -> bytes:
        """Return the first value of a header, by its lower-case name; empty where there is none."""
        return next((value for key, value in self.headers if key.lower() == name), b"")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a request came from, as the engine is told."""

    peer: bytes
    scheme: bytes
    request_id: bytes
    traceparent: bytes


def nominated(headers: HeaderList) -> set[bytes]:
    """Return the header names that ``Connection`` declares to be for this hop only."""
    names: set[bytes] = set()
    for name, value in headers:
        if len(name) == 10 and name.lower() == b"connection":
            names.update(token.strip().lower() for token in value.split(b","))
    return names


def request_lines(headers: HeaderList, origin: Origin, *, identity_only: bool) -> list[bytes]:
    """Return the header lines for the engine, without Host and length.

    ``identity_only``: the answer must come uncompressed, because an event has to be taken out of it.
    """
    dropped = nominated(headers)
    lines: list[bytes] = []
    seen: dict[bytes, bytes] = {}
    for name, value in headers:
        key = name.lower()
        if key in REQUEST_DROPPED or key in dropped or key.startswith(OURS):
            if key == b"host":
                seen[key] = value
        elif key in FORWARDED:
            seen[key] = b"%b, %b" % (seen[key], value) if key in seen else value
        elif not (identity_only and key == b"accept-encoding"):
            seen[key] = value
            lines.append(b"%b: %b\r\n" % (name, value))
    if identity_only:
        lines.append(b"accept-encoding: identity\r\n")
    _say_origin(lines, seen, origin)
    return lines


def _say_origin(lines: list[bytes], seen: dict[bytes, bytes], origin: Origin) -> None:
    chain = seen.get(b"x-forwarded-for")
    if origin.peer or chain:
        known = b", ".join(part for part in (chain, origin.peer) if part)
        lines.append(b"x-forwarded-for: %b\r\n" % known)
    lines.append(b"x-forwarded-proto: %b\r\n" % seen.get(b"x-forwarded-proto", origin.scheme))
    host = seen.get(b"x-forwarded-host", seen.get(b"host"))
    if host is not None:
        lines.append(b"x-forwarded-host: %b\r\n" % host)
    if b"x-request-id" not in seen:
        lines.append(b"x-request-id: %b\r\n" % origin.request_id)
    if b"traceparent" not in seen:
        lines.append(b"traceparent: %b\r\n" % origin.traceparent)


def response_lines(head: ResponseHead, *, with_length: bool) -> list[bytes]:
    """Return status line and header lines for the client, without framing beyond ``Content-Length`` where it holds."""
    dropped = nominated(head.headers)
    lines = [b"HTTP/1.1 %d %b\r\n" % (head.status, head.reason)]
    for name, value in head.headers:
        key = name.lower()
        if key in HOP_BY_HOP or key in dropped or key.startswith(OURS):
            continue
        if key == b"content-length" and not with_length:
            continue
        lines.append(b"%b: %b\r\n" % (name, value))
    return lines


def chunk(data: bytes) -> bytes:
    """Return one chunk of a chunked body; nothing for no data, which would end the body."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


def last_chunk(trailers: HeaderList) -> bytes:
    return b"0\r\n%b\r\n" % b"".join(b"%b: %b\r\n" % trailer for trailer in trailers)
