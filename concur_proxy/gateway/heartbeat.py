"""Signs of life for streams whose turn is held, so that nobody on the way takes the wait for the end.

The first one opens the answer: status 200 and the headers of an event stream. From then on no other status can be told:
what goes wrong becomes an event of the stream, in the shape that the API has for it (invariant 8).
"""

from __future__ import annotations

from typing import Final

from concur_proxy.errors import ConcurError
from concur_proxy.gateway import headers as lines
from concur_proxy.gateway.exchange import Exchange
from concur_proxy.gateway.headers import HeaderList
from concur_proxy.gateway.paths import Shape
from concur_proxy.gateway.replies import error_event
from concur_proxy.gateway.rounds import Rounds

COMMENT: Final = b": held\n\n"
PING: Final = b'event: ping\ndata: {"type": "ping"}\n\n'
"""Anthropic's own sign of life."""
STREAM_HEADERS: Final[HeaderList] = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # a buffering nginx in between would swallow what this is for
]


class HeldStream:
    """The answer to one streaming turn that is held, or was. ``opened``: its head is out."""

    __slots__ = ("_beats", "_exchange", "_headers", "_shape", "_sign", "opened")

    def __init__(self, exchange: Exchange, beats: Rounds, headers: HeaderList, shape: Shape) -> None:
        """``headers``: what the proxy adds to any answer."""
        self._exchange = exchange
        self._beats = beats
        self._headers = headers
        self._shape = shape
        self._sign = PING if shape is Shape.ANTHROPIC else COMMENT
        self.opened = False

    def on_round(self) -> None:
        """Give a sign of life."""
        if not self.opened:
            self.opened = True
            self._exchange.write(self._head() + self._framed(self._sign))
        elif not self._exchange.write_paused:
            self._exchange.write(self._framed(self._sign))

    def write(self, data: bytes) -> None:
        """Pass something of the engine's on: that is sign of life enough."""
        self._beats.stop(self)
        if data:
            self._exchange.write(self._framed(data))

    def end(self, trailers: HeaderList | None = None) -> None:
        """The stream is complete."""
        self._beats.stop(self)
        if self._exchange.http11:
            self._exchange.write(lines.last_chunk(trailers or []))
        self._exchange.done()

    def fail(self, error: ConcurError) -> None:
        """Nothing of an engine's answer has come, nor will: say why, and end."""
        self._exchange.write(self._framed(error_event(error, self._shape)))
        self.end()

    def break_off(self, error: ConcurError, *, between_events: bool) -> None:
        """The rest will not come: say so where a reader expects an event, and do not end."""
        if between_events:
            self._exchange.write(self._framed(error_event(error, self._shape)))
        self._exchange.cut(hard=not self._exchange.http11)

    def close(self) -> None:
        """The turn is over."""
        self._beats.stop(self)

    def _head(self) -> bytes:
        exchange = self._exchange
        headers = [*exchange.server_headers, *self._headers, *STREAM_HEADERS]
        if exchange.http11:
            headers.append((b"transfer-encoding", b"chunked"))
        if not exchange.keep_alive:
            headers.append((b"connection", b"close"))
        return b"HTTP/1.1 200 OK\r\n%b\r\n" % b"".join(b"%b: %b\r\n" % header for header in headers)

    def _framed(self, data: bytes) -> bytes:
        return lines.chunk(data) if self._exchange.http11 else data
