"""The fast lane: uvicorn's protocol, with the inference paths served by itself and all others left to the application.

Requests of one connection are answered in their order, also when they come pipelined and across both lanes. A request
is read whole before it starts; the limit of its size keeps memory bounded. Reading goes on while an answer is under
way, because that is how a client's leaving is noticed.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING, Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from concur_proxy.errors import (
    BodyTooLargeError,
    HeadersTooLargeError,
    MethodNotAllowedError,
    QueueFullError,
    RequestError,
    UnsupportedError,
)
from concur_proxy.gateway import replies
from concur_proxy.gateway.exchange import Exchange
from concur_proxy.gateway.headers import NAMES, HeaderList, is_chunked, lowered, nominated
from concur_proxy.gateway.paths import Shape
from concur_proxy.gateway.upstream import keep_alive

if TYPE_CHECKING:
    from concur_proxy.gateway.handler import Handler

MAX_HEAD_BYTES = 64 << 10
MAX_HEADERS = 256
MAX_PIPELINED = 8
"""Requests that may wait behind a running one before reading stops."""
LINGER_S = 30.0
"""How long the rest of a refused request is read, so that the client gets to see the answer instead of a reset."""


class FastLaneProtocol(HttpToolsProtocol):
    """One client connection."""

    handler: Handler

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Ours alone: uvicorn would turn probes away, too, and a busy proxy would be killed by its liveness probe.
        self._connection_limit, self.limit_concurrency = self.limit_concurrency, None
        self.peer = b""
        self._active: Exchange | None = None
        self._in_head = False
        self._head_bytes = 0
        self._plain_upgrade = False
        self._lane_bytes = 0
        self._deaf = False
        self._linger: asyncio.TimerHandle | None = None

    # the transport's side

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.peer = self.client[0].encode() if self.client else b""
        keep_alive(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._deaf = True
        if self._linger is not None:
            self._linger.cancel()
        active, self._active = self._active, None
        self.pipeline.clear()
        if active is not None and not active.response_complete:
            active.gone()

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        if self.timeout_keep_alive_task is not None:
            self._unset_keepalive_if_required()
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refuse_stream(HeadersTooLargeError("The request's headers are too large."))
                return
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._plain_upgrade:
                self._decline_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            self._refuse_stream(RequestError(f"The request is not valid HTTP/1.1: {error}."))

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._active is not None and self._active.turn is not None:
            self._active.turn.pause()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._active is not None and self._active.turn is not None:
            self._active.turn.resume()

    # the parser's side

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        self._in_head = True
        self._head_bytes = 0
        self._plain_upgrade = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._in_head = False
        target, headers = self.url, self.headers
        if self.parser.should_upgrade() and self._is_plain_upgrade():
            self._plain_upgrade = True
            return
        route = self.handler.routes.find(target.partition(b"?")[0])
        exchange = Exchange(self, self.parser.get_method(), target, headers, route)
        self._inspect(exchange)
        if route is None and exchange.error is None:
            self._to_application(exchange)
        else:
            self._enqueue(exchange)

    def on_body(self, body: bytes) -> None:
        exchange: object = self.cycle
        if self._plain_upgrade:
            return
        if not isinstance(exchange, Exchange):
            self._lane_bytes += len(body)
            if self._lane_bytes > self.handler.max_body_bytes:
                self.transport.close()
                return
            super().on_body(body)
            return
        exchange.feed(body)
        if exchange.size > self.handler.max_body_bytes and exchange.error is None:
            exchange.doom(self._too_large())
            self._answer_early(exchange)

    def on_message_complete(self) -> None:
        exchange: object = self.cycle
        if self._plain_upgrade:
            return
        if not isinstance(exchange, Exchange):
            super().on_message_complete()
            return
        exchange.close_body()
        if exchange.response_complete:
            self.transport.close()
        elif exchange is self._active:
            self._begin(exchange)

    # requests in their order

    def _inspect(self, exchange: Exchange) -> None:
        """Read the headers once; doom what must not be forwarded."""
        exchange.lowered = known = lowered(exchange.headers)
        exchange.http11 = self.parser.get_http_version() != "1.0"
        exchange.keep_alive = exchange.http11 and self.parser.should_keep_alive()
        if "expect" in known:
            exchange.expects_continue = known["expect"].lower() == "100-continue" and exchange.http11
        error = self._fault(exchange) or self._excess(exchange)
        if error is not None:
            exchange.keep_alive = False
        elif exchange.route is not None and exchange.method not in exchange.route.methods:
            exchange.allow = b", ".join(sorted(exchange.route.methods))
            error = MethodNotAllowedError(f"This path takes {exchange.allow.decode()} only.")
        if error is not None:
            exchange.doom(error)

    def _fault(self, exchange: Exchange) -> RequestError | None:
        """Name what makes a request ambiguous, or not one for a server like this."""
        known = exchange.lowered
        if "upgrade" in known and self.parser.should_upgrade():
            return UnsupportedError("WebSocket and other upgrades are not supported.")
        if exchange.target[:1] != b"/":
            return RequestError("The request target must be a path.")
        if ("host" not in known or len(known) != len(exchange.headers)) and not self._has_one_host(exchange):
            return RequestError("The request must have one Host header.")
        if "transfer-encoding" in known and not (exchange.http11 and is_chunked(known["transfer-encoding"])):
            return RequestError("The request's Transfer-Encoding is not supported.")
        return None

    def _has_one_host(self, exchange: Exchange) -> bool:
        hosts = sum(NAMES[name].lower == b"host" for name, _ in exchange.headers)
        return hosts == 1 or (hosts == 0 and not exchange.http11)

    def _excess(self, exchange: Exchange) -> RequestError | QueueFullError | None:
        if len(exchange.headers) > MAX_HEADERS:
            return HeadersTooLargeError("The request has too many headers.")
        length = exchange.lowered.get("content-length")
        if length is not None and int(length) > self.handler.max_body_bytes:
            return self._too_large()
        if exchange.route is not None and self._is_crowded():
            return QueueFullError("Too many connections.", retry_after_s=self.handler.retry_after_s)
        return None

    def _is_crowded(self) -> bool:
        return self._connection_limit is not None and len(self.connections) > self._connection_limit

    def _too_large(self) -> BodyTooLargeError:
        return BodyTooLargeError(
            f"The request body is larger than {self.handler.max_body_bytes} bytes (the setting server.max_body_bytes)."
        )

    def _to_application(self, exchange: Exchange) -> None:
        """Hand a request to uvicorn's own way, which wants lower-case names and its scope."""
        target = self.url
        super().on_message_begin()
        self.url = target
        self._lane_bytes = 0
        for name, value in exchange.headers:
            super().on_header(name, value)
        super().on_headers_complete()

    def _enqueue(self, exchange: Exchange) -> None:
        latest = cast("Exchange | None", self.cycle)
        self.cycle = cast("Any", exchange)
        if latest is None or latest.response_complete:
            self._activate(exchange)
            return
        self.pipeline.appendleft(cast("Any", (exchange, None)))
        if len(self.pipeline) >= MAX_PIPELINED:
            self.flow.pause_reading()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        """Start the next request: called by uvicorn's queue, for both lanes."""
        if isinstance(cycle, Exchange):
            self._activate(cycle)
        else:
            super()._start_asgi_task(cycle, app)

    def _activate(self, exchange: Exchange) -> None:
        """It is this request's turn to be answered."""
        self._active = exchange
        if exchange.complete:
            self._begin(exchange)
        elif exchange.error is not None:
            self._answer_early(exchange)
        elif exchange.expects_continue:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _answer_early(self, exchange: Exchange) -> None:
        """Answer before the request is complete where a client may wait for that; else once it is."""
        too_large = isinstance(exchange.error, BodyTooLargeError)
        if exchange is self._active and (exchange.expects_continue or too_large):
            exchange.keep_alive = False
            self._begin(exchange)

    def _begin(self, exchange: Exchange) -> None:
        self.handler.begin(exchange)

    def exchange_done(self, exchange: Exchange) -> None:
        """The answer is written: close, or go on with what came in the meantime."""
        self._active = None
        if not exchange.keep_alive:
            self._close_after(exchange)
        elif self.pipeline:
            # by way of the loop: a long queue of requests that are answered at once must not nest
            self.loop.call_soon(self.on_response_complete)
        else:
            self.on_response_complete()

    def _close_after(self, exchange: Exchange) -> None:
        self.server_state.total_requests += 1
        if exchange.complete:
            self.transport.close()
        else:
            self.flow.resume_reading()
            self._linger = self.loop.call_later(LINGER_S, self.transport.close)

    def reset(self) -> None:
        """Close so that the client gets an error instead of an end."""
        sock = self.transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    # what is not HTTP, or too much of it

    def _refuse_stream(self, error: RequestError) -> None:
        """Nothing more can be read: answer what is complete, then ``error``, then close."""
        self._deaf = True
        latest: object = self.cycle
        if isinstance(latest, RequestResponseCycle) and latest.more_body:
            self.transport.close()
            return
        unfinished = isinstance(latest, Exchange) and not latest.complete
        broken = cast("Exchange", latest) if unfinished else Exchange(self, b"", b"", [], None)
        broken.doom(error)
        broken.keep_alive = False
        broken.complete = True
        if broken is not latest:
            self._enqueue(broken)
        elif broken.response_complete:
            self.transport.close()
        elif broken is self._active:
            self._begin(broken)

    def send_400_response(self, msg: str) -> None:
        error = RequestError(msg)
        body = replies.error_json(error, Shape.OPENAI)
        self.transport.write(replies.message(400, self.server_state.default_headers, body, keep_alive=False))
        self.transport.close()

    def _is_plain_upgrade(self) -> bool:
        """Tell whether the client would as well go on with HTTP/1.1 (h2c, as some Java clients offer)."""
        wanted = [value.strip().lower() for name, value in self.headers if name.lower() == b"upgrade"]
        return b"websocket" not in wanted and self.parser.get_method() != b"CONNECT"

    def _decline_upgrade(self, rest: bytes) -> None:
        """Read the request again without its offer: the parser has not looked at the body of an upgrade."""
        dropped = nominated(self.headers) | {b"connection", b"upgrade"}
        kept: HeaderList = [(name, value) for name, value in self.headers if name.lower() not in dropped]
        lines = b"".join(b"%b: %b\r\n" % header for header in kept)
        head = b"%b %b HTTP/1.1\r\n%b\r\n" % (self.parser.get_method(), self.url, lines)
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(head + rest)


def fast_lane_protocol(handler: Handler) -> type[FastLaneProtocol]:
    """Return the protocol class for ``uvicorn.Config(http=...)``."""
    return type("BoundFastLane", (FastLaneProtocol,), {"handler": handler})
