"""The fast lane: uvicorn's protocol, with the inference paths served by itself and all others left to the application.

Requests of one connection are answered in their order, also when they come pipelined and across both lanes. A request
is read whole before it starts; the limit of its size keeps memory bounded. Reading goes on while an answer is under
way, because that is how a client's leaving is noticed. What a client may take, and how long, is in ``limits``.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import struct
from collections import deque
from typing import TYPE_CHECKING, Any, Final, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from concur_proxy.errors import (
    BodyTooLargeError,
    HeadersTooLargeError,
    MethodNotAllowedError,
    QueueFullError,
    RequestError,
    RequestTimeoutError,
    TargetTooLongError,
    UnsupportedError,
)
from concur_proxy.gateway import credentials, replies
from concur_proxy.gateway.exchange import Exchange
from concur_proxy.gateway.familiar import PATIENCE, FamiliarRequest, familiar_request
from concur_proxy.gateway.headers import HOSTS, is_chunked, lowered, occurrences, without_offer
from concur_proxy.gateway.limits import NEVER, Census, ClientLimits, Watched, Wheel, head_bytes
from concur_proxy.gateway.paths import Route, Shape
from concur_proxy.gateway.upstream import keep_alive

if TYPE_CHECKING:
    from concur_proxy.gateway.handler import Handler

UPLOADS: Final = b"/v1/files"
LARGEST_READ: Final = 256 << 10
LARGEST_TARGET: Final = (1 << 16) - 1
"""No URL parser of ours takes a longer one."""
MAX_PIPELINED: Final = 8
"""Requests that may wait behind a running one; what comes then is kept unparsed."""
MAX_KEPT_BYTES: Final = 256 << 10
"""Beyond this reading stops, and a client that leaves is not noticed any more."""
LINGER_S: Final = 30.0
"""How long the rest of a refused request is read, so that the client gets to see the answer instead of a reset."""
DEAF_LINGER_S: Final = 5.0
"""The same, where what comes is not even parsed any more."""

NOTHING: Final = 0
HEAD: Final = 1
BODY: Final = 2
"""Of what part of a request only a beginning has come."""


class Lane:
    """What the connections of one server share."""

    __slots__ = ("census", "handler", "largest_head", "limits", "wheel")

    def __init__(self, handler: Handler, limits: ClientLimits) -> None:
        self.handler = handler
        self.limits = limits
        self.largest_head = min(limits.max_head_bytes, LARGEST_TARGET)
        """Bytes up to which nobody need look closely."""
        self.wheel = Wheel(limits)
        self.census = Census(limits.max_connections_per_client)


class FastLaneProtocol(HttpToolsProtocol):
    """One client connection. ``lane``: what all connections of a server share."""

    def __init__(self, lane: Lane, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.handler = lane.handler
        self.limits = lane.limits
        self.largest_head = lane.largest_head
        self.wheel = lane.wheel
        self.census = lane.census
        self.wire: asyncio.Transport
        """The transport, as an attribute that is found at once."""
        self._queue = self.pipeline
        self._state = self.server_state
        self.peer = b""
        self._active: Exchange | None = None
        self._latest: Exchange | None = None
        """The cycle, where it is one of this lane."""
        self._familiar: FamiliarRequest | None = None
        self._patience = PATIENCE
        self._fresh = b""
        """The read that is being parsed, while no head of it has been read and it began between two requests."""
        self._missing = 0
        """Bytes of the body of a request that the parser does not see."""
        self.is_stalled = False
        """The client does not keep up with what is written."""
        self._reading = NOTHING
        self._read_bytes = 0
        self._head_bytes = 0
        """Bytes of the reads in which the head came; more than it has where they brought something else, too."""
        self._body_bytes = 0
        self._counted = 0
        """Bytes of the body at the last stocktaking; -1 before the first."""
        self._idle_bytes = 0
        """Bytes since the last one of the body: framing and trailers."""
        self.slot: set[Watched] | None = None
        self._began = 0
        """Tick of a request's first byte."""
        self._since = 0
        """Tick of the body's last byte, or of the last answer's end."""
        self._stalled = 0
        self._waits_to_write = False
        """The next request is there, and none runs: the client reads too slowly."""
        self._closing = NEVER
        self._client_id: str | None = None
        self._is_one_too_many = False
        self._plain_upgrade = False
        self._deaf = False
        self._is_full = False
        self._kept: deque[bytes] = deque()
        self._kept_bytes = 0
        self._linger: asyncio.TimerHandle | None = None

    # the transport's side

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.wire = transport
        host = self.client[0] if self.client else ""
        self.peer = host.encode()
        self._client_id = self.census.enter(host)
        self._is_one_too_many = self._client_id is not None and self.census.is_over(self._client_id)
        keep_alive(transport)
        self._began = self.wheel.tick
        self.wheel.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._deaf = True
        self.wheel.discard(self)
        if self._client_id is not None:
            self.census.leave(self._client_id)
        if self._linger is not None:
            self._linger.cancel()
        active, self._active = self._active, None
        self.pipeline.clear()
        self._kept.clear()
        if active is not None and not active.response_complete:
            active.gone()
        self._latest = None  # it refers to us, and only a collection of everything would find that cycle
        if isinstance(cast("object", self.cycle), Exchange):
            self.cycle = None  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        if self._is_full:
            self._keep(data)
        elif self._missing:
            self._feed_body(data)
        elif self._familiar is None or not self._is_familiar(self._familiar, data):
            self._feed(data)

    def _feed(self, data: bytes) -> None:
        self._read_bytes = len(data)
        self._fresh = data if self._reading == NOTHING else b""
        self._parse(data)
        self._fresh = b""

    def _parse(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._plain_upgrade:
                self._decline_upgrades(memoryview(data)[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            self._refuse_stream(RequestError(f"The request is not valid HTTP/1.1: {error}."))
        else:
            if self._reading:
                self._take_stock()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.is_stalled = True
        self._stalled = self.wheel.tick
        if self._active is not None and self._active.turn is not None:
            self._active.turn.pause()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.is_stalled = False
        if self._active is not None and self._active.turn is not None:
            self._active.turn.resume()
        elif self._waits_to_write:
            self._waits_to_write = False
            self.loop.call_soon(self._go_on)

    # the parser's side

    def on_message_begin(self) -> None:
        latest: Any = self.cycle
        if self._deaf or (latest is not None and not latest.keep_alive):
            raise ConnectionError("nothing is read behind a request after which the connection closes")
        self.url = b""
        self.headers = []
        self._reading = HEAD
        self._head_bytes = 0
        self._began = self.wheel.tick
        self._plain_upgrade = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._reading == HEAD:
            self.headers.append((name, value))
        elif name.lower() == b"connection":
            self.cycle.keep_alive = False  # as a trailer, too, it may have the parser read nothing more

    def on_headers_complete(self) -> None:
        self._reading = BODY
        self._body_bytes = 0
        self._counted = -1
        target, headers = self.url, self.headers
        if self.parser.should_upgrade() and self._is_plain_upgrade():
            self._plain_upgrade = True
            return
        route = self.handler.routes.find(target.partition(b"?")[0])
        exchange = Exchange(self, self.parser.get_method(), target, headers, route)
        self._inspect(exchange)
        if route is None and exchange.error is None:
            self._to_application(exchange)
            return
        comes_again = self._latest is not None
        self._enqueue(exchange)
        if comes_again and self._fresh and route is not None:
            self._get_familiar(exchange, route)

    def on_body(self, body: bytes) -> None:
        exchange: object = self.cycle
        if self._plain_upgrade:
            return
        self._since = self.wheel.tick
        self._body_bytes += len(body)
        if not isinstance(exchange, Exchange):
            if self._body_bytes > self.handler.max_body_bytes and self._body_bytes > self._largest_body():
                self._refuse_stream(self._too_large())
                return
            super().on_body(body)
            return
        exchange.feed(body)
        if exchange.size > self.handler.max_body_bytes and exchange.error is None:
            exchange.doom(self._too_large())
            self._answer_early(exchange)

    def on_message_complete(self) -> None:
        self._reading = NOTHING
        exchange: object = self.cycle
        if self._plain_upgrade:
            return
        if not isinstance(exchange, Exchange):
            super().on_message_complete()
            return
        self._finish_reading(exchange)

    # a request whose head is like the last one's

    def _get_familiar(self, exchange: Exchange, route: Route) -> None:
        """Keep a head that has been read, as long as that is of use on this connection."""
        if exchange.error is None and exchange.keep_alive and self._patience:
            self._patience -= 1
            headers = self.headers  # those of the exchange may have lost the key
            self._familiar = familiar_request(
                self._fresh, exchange.method, exchange.target, headers, lowered(headers), route
            )

    def _is_familiar(self, familiar: FamiliarRequest, data: bytes) -> bool:
        """Begin a request with the same head as the last; False where anything is different, or others wait."""
        latest = self._latest
        if self._reading or self.is_stalled or latest is None or not (latest.response_complete and latest.keep_alive):
            return False
        start, length = familiar.fit(data)
        if not start or length > self.handler.max_body_bytes or len(data) - start > length or self._crowd() is not None:
            return False
        self._patience = PATIENCE
        exchange = Exchange(self, familiar.method, familiar.target, familiar.headers, familiar.route)
        exchange.lowered = familiar.lowered
        if self.handler.access is None:
            exchange.familiar = familiar
        else:
            exchange.lowered = familiar.lowered.copy()
            if (error := credentials.admit(exchange, self.handler.access)) is not None:
                exchange.doom(error)
        self._began = self.wheel.tick
        self._body_bytes = 0
        self._counted = -1
        self._missing = length
        self._reading = BODY
        self._latest = self._active = exchange
        self.cycle = cast("Any", exchange)
        self._feed_body(data[start:])
        return True

    def _feed_body(self, data: bytes) -> None:
        """Take what belongs to the body, and leave the rest to the parser."""
        exchange, missing = self._latest, self._missing
        assert exchange is not None
        rest = b""
        if len(data) > missing:
            data, rest = data[:missing], data[missing:]
        self._missing = missing - len(data)
        self._since = self.wheel.tick
        self._body_bytes += len(data)
        if data:
            exchange.feed(data)
        if not self._missing:
            self._finish_reading(exchange)
        if rest and not self._deaf:
            self._feed(rest)

    def _finish_reading(self, exchange: Exchange) -> None:
        self._reading = NOTHING
        exchange.close_body()
        if exchange.response_complete:
            self.transport.close()
        elif exchange is self._active:
            self._begin(exchange)

    # requests in their order

    def _inspect(self, exchange: Exchange) -> None:
        """Read the headers once; doom what must not be forwarded."""
        exchange.lowered = known = lowered(exchange.headers)
        lasting = self.parser.should_keep_alive()
        # Without being asked only 1.1 keeps a connection; the version itself is made as text, which takes longer.
        exchange.http11 = (lasting and "connection" not in known) or self.parser.get_http_version() == "1.1"
        exchange.keep_alive = exchange.http11 and lasting
        if "expect" in known:
            exchange.expects_continue = known["expect"].lower() == "100-continue" and exchange.http11
        error = self._fault(exchange) or self._excess(exchange)
        if error is not None:
            exchange.keep_alive = False
        elif exchange.route is not None and exchange.method not in exchange.route.methods:
            exchange.allow = b", ".join(sorted(exchange.route.methods))
            error = MethodNotAllowedError(f"This path takes {exchange.allow.decode()} only.")
        access = self.handler.access
        if access is not None and exchange.route is not None:  # before the body is kept, and never behind our back
            error = credentials.admit(exchange, access) or error
        if error is not None:
            exchange.doom(error)

    def _fault(self, exchange: Exchange) -> RequestError | None:
        """Name what makes a request ambiguous, or not one for a server like this."""
        known = exchange.lowered
        if not exchange.http11 and self.parser.get_http_version() != "1.0":
            return RequestError("Only HTTP/1.1 and HTTP/1.0 are spoken here.")
        if exchange.target[:1] != b"/":
            return RequestError("The request target must be a path.")
        if ("upgrade" in known or exchange.method == b"CONNECT") and self.parser.should_upgrade():
            return UnsupportedError("CONNECT, WebSocket and other upgrades are not supported.")
        once = len(known) == len(exchange.headers)
        if not HOSTS[known.get("host", "")] or not ((once and "host" in known) or self._has_one_host(exchange)):
            return RequestError("The request must have one Host header, with the name of a host.")
        if "transfer-encoding" in known and not self._is_in_chunks(exchange):
            return RequestError("The request's Transfer-Encoding is not supported.")
        return None

    def _has_one_host(self, exchange: Exchange) -> bool:
        hosts = occurrences(exchange.headers, b"host")
        return hosts == 1 or (hosts == 0 and not exchange.http11)

    def _is_in_chunks(self, exchange: Exchange) -> bool:
        coding = exchange.lowered["transfer-encoding"]
        return exchange.http11 and is_chunked(coding) and occurrences(exchange.headers, b"transfer-encoding") == 1

    def _excess(self, exchange: Exchange) -> RequestError | QueueFullError | None:
        if len(exchange.headers) > self.limits.max_headers:
            return HeadersTooLargeError(
                f"The request has more than {self.limits.max_headers} headers (the setting server.max_headers)."
            )
        if self._head_bytes + self._read_bytes > self.largest_head and (error := self._head_excess()):
            return error
        length = exchange.lowered.get("content-length")
        if length is not None and int(length) > self.handler.max_body_bytes and int(length) > self._largest_body():
            return self._too_large()
        # Inference only: a busy proxy that turned probes away would be killed by its liveness probe.
        return self._crowd() if exchange.route is not None else None

    def _head_excess(self) -> RequestError | None:
        """Look closely at a head that may be too large; it need not be complete."""
        most = self.limits.max_head_bytes
        if len(self.url) > min(most // 2, LARGEST_TARGET):
            return TargetTooLongError("The request's target is too long.")
        if head_bytes(self.url, self.headers) > most:
            return HeadersTooLargeError(
                f"The request's headers are larger than {most} bytes (the setting server.max_head_bytes)."
            )
        return None

    def _crowd(self) -> QueueFullError | None:
        most, retry_after_s = self.limits.max_connections, self.handler.retry_after_s
        if most is not None and len(self.connections) > most:
            return QueueFullError("Too many connections.", retry_after_s=retry_after_s)
        if self._is_one_too_many:
            return QueueFullError("Too many connections from one address.", retry_after_s=retry_after_s)
        return None

    def _largest_body(self) -> int:
        """Return the limit of a body that is larger than most may be."""
        handler = self.handler
        is_upload = self.url.partition(b"?")[0] == UPLOADS
        return max(handler.max_body_bytes, handler.max_upload_bytes) if is_upload else handler.max_body_bytes

    def _too_large(self) -> BodyTooLargeError:
        limit = self._largest_body()
        name = "server.max_body_bytes" if limit == self.handler.max_body_bytes else "batch.max_file_bytes"
        return BodyTooLargeError(f"The request body is larger than {limit} bytes (the setting {name}).")

    def _to_application(self, exchange: Exchange) -> None:
        """Hand a request to uvicorn's own way, which wants lower-case names and its scope."""
        target = self.url
        self._latest = None
        super().on_message_begin()
        self.url = target
        for name, value in exchange.headers:
            super().on_header(name, value)
        super().on_headers_complete()
        if self.pipeline and self.pipeline[0][0] is self.cycle:
            self._is_full = len(self.pipeline) >= MAX_PIPELINED
            self.flow.resume_reading()  # uvicorn stops it, and would not notice that the client leaves

    def _enqueue(self, exchange: Exchange) -> None:
        latest: Any = self.cycle
        self._latest = exchange
        self.cycle = cast("Any", exchange)
        if latest is None or latest.response_complete:
            if not self.flow.write_paused:
                self._activate(exchange)
                return
            self._waits_to_write = True
        self.pipeline.appendleft(cast("Any", (exchange, None)))
        self._is_full = len(self.pipeline) >= MAX_PIPELINED

    def _keep(self, data: bytes) -> None:
        """Put aside what comes while enough requests wait: reading goes on, and parsing does not."""
        self._kept.append(data)
        self._kept_bytes += len(data)
        if self._kept_bytes >= MAX_KEPT_BYTES:
            self.flow.pause_reading()

    def _feed_kept(self) -> None:
        while self._kept and len(self.pipeline) < MAX_PIPELINED and not self._deaf:
            data = self._kept.popleft()
            self._kept_bytes -= len(data)
            self._feed(data)
        self._is_full = bool(self._kept) or len(self.pipeline) >= MAX_PIPELINED

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
            self._since = self.wheel.tick
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
        elif self._queue:
            # by way of the loop: a long queue of requests that are answered at once must not nest
            self.loop.call_soon(self.on_response_complete)
        else:
            self.on_response_complete()

    def _close_after(self, exchange: Exchange) -> None:
        self.server_state.total_requests += 1
        if exchange.complete and exchange.error is not None:
            self._deaf = True
        if exchange.complete and not (self._deaf and self.transport.can_write_eof()):
            self.transport.close()
            return
        if self._deaf:
            self.transport.write_eof()
        self.flow.resume_reading()
        self._linger = self.loop.call_later(DEAF_LINGER_S if self._deaf else LINGER_S, self.transport.close)

    def on_response_complete(self) -> None:
        """Go on with what waits; uvicorn's own way, but for its timer."""
        self._state.total_requests += 1
        if self.wire.is_closing():
            return
        self._since = self.wheel.tick
        self._go_on()

    def _go_on(self) -> None:
        """Start the next request, unless the client is still to read the answers that it has."""
        queue, flow = self._queue, self.flow
        if queue and self.is_stalled:
            self._waits_to_write = True
            return
        if len(queue) < MAX_PIPELINED:
            if flow.read_paused:
                flow.resume_reading()
            if self._is_full:
                self.loop.call_soon(self._feed_kept)
        if queue:
            self._start_asgi_task(*queue.pop())

    def reset(self) -> None:
        """Close so that the client gets an error instead of an end."""
        sock = self.transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    # how long it may take

    def due(self) -> int:
        """Return when the client will have taken too long; what we make it wait for does not count."""
        wheel, cycle = self.wheel, self.cycle
        if self.transport.is_closing():
            self._closing = min(self._closing, wheel.tick)
            return self._closing + wheel.stall
        if self.flow.write_paused:
            return self._stalled + wheel.stall
        if self._deaf or self._kept or self.flow.read_paused:
            return NEVER
        if self._reading == HEAD or cycle is None:
            return self._began + wheel.head
        if self._reading == BODY:
            is_next = self._active is None or cast("object", self._active) is cycle
            return self._body_due() if is_next else NEVER
        return self._since + wheel.idle if cycle.response_complete else NEVER

    def _body_due(self) -> int:
        wheel = self.wheel
        silent = max(self._began, self._since) + wheel.body
        if not wheel.bytes_per_tick:
            return silent
        return min(silent, self._began + wheel.head + wheel.body + int(self._body_bytes / wheel.bytes_per_tick))

    def expire(self) -> None:
        """Tell the client where it can still be told."""
        if self.transport.is_closing() or self.flow.write_paused:
            self.transport.abort()
        elif self._reading:
            part = "head" if self._reading == HEAD else "body"
            self._refuse_stream(RequestTimeoutError(f"The rest of the request's {part} did not come in time."))
        else:
            self.transport.close()

    # what is not HTTP, or too much of it

    def _take_stock(self) -> None:
        """Part of a request has come: see that the parts which nobody counts do not grow for ever."""
        size = self._read_bytes
        if self._reading == HEAD:
            self._head_bytes += size
            if self._head_bytes > self.largest_head and (error := self._head_excess() or self._endless_header()):
                self._refuse_stream(error)
            return
        self._idle_bytes = self._idle_bytes + size if self._body_bytes == self._counted else 0
        self._counted = self._body_bytes
        if self._idle_bytes > self.limits.max_head_bytes:
            self._refuse_stream(HeadersTooLargeError("The framing or the trailers of the request are too large."))

    def _endless_header(self) -> RequestError | None:
        """Tell of a single header that fills reads and does not end: only its end would bring it here."""
        if self._head_bytes <= self.limits.max_head_bytes + LARGEST_READ:
            return None
        return HeadersTooLargeError("The request's headers are too large.")

    def _refuse_stream(self, error: RequestError) -> None:
        """Nothing more can be read: answer what is complete, then ``error``, then close."""
        self._deaf = True
        latest: object = self.cycle
        if self._is_last(latest):
            if self.cycle.response_complete and self._linger is None:
                self.transport.close()
            return
        if isinstance(latest, RequestResponseCycle) and latest.more_body and not self._take_from_application(latest):
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

    def _is_last(self, latest: object) -> bool:
        """Tell whether a request has been read whole after which the connection closes."""
        if isinstance(latest, Exchange):
            return latest.complete and not latest.keep_alive
        return isinstance(latest, RequestResponseCycle) and not latest.more_body and not latest.keep_alive

    def _take_from_application(self, cycle: RequestResponseCycle) -> bool:
        """Have the application's part in an unfinished request end; False where it has begun to answer."""
        if self.pipeline and self.pipeline[0][0] is cycle:
            self.pipeline.popleft()
        elif cycle.response_started:
            return False
        else:
            cycle.disconnected = cycle.response_complete = True
            cycle.message_event.set()
        return True

    def send_400_response(self, msg: str) -> None:
        error = RequestError(msg)
        body = replies.error_json(error, Shape.OPENAI)
        self.transport.write(replies.message(400, self.server_state.default_headers, body, keep_alive=False))
        self.transport.close()

    def _is_plain_upgrade(self) -> bool:
        """Tell whether the client would as well go on with HTTP/1.1 (h2c, as some Java clients offer)."""
        wanted = [value.strip().lower() for name, value in self.headers if name.lower() == b"upgrade"]
        return b"websocket" not in wanted and self.parser.get_method() != b"CONNECT"

    def _decline_upgrades(self, rest: memoryview) -> None:
        """Read requests again without their offers: the parser stops at each and has not looked at its body."""
        while not self._deaf:
            start = b"%b %b HTTP/%b\r\n" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
            head = start + without_offer(self.headers) + b"\r\n"
            self.parser = self._new_parser()
            try:
                self.parser.feed_data(head)
                self.parser.feed_data(rest)
            except httptools.HttpParserUpgrade as upgrade:
                if not self._plain_upgrade:
                    return
                rest = rest[upgrade.args[0] :]
            except httptools.HttpParserError as error:
                self._refuse_stream(RequestError(f"The request is not valid HTTP/1.1: {error}."))
            else:
                if self._reading:
                    self._take_stock()
                return

    def _new_parser(self) -> httptools.HttpRequestParser:
        """Return a parser like the first one, which uvicorn made."""
        parser = httptools.HttpRequestParser(self)
        if hasattr(parser, "set_dangerous_leniencies"):
            parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser


def fast_lane_protocol(handler: Handler, limits: ClientLimits | None = None) -> type[FastLaneProtocol]:
    """Return what makes the connections of one server, for ``uvicorn.Config(http=...)``."""
    lane = Lane(handler, limits or ClientLimits())
    return cast("type[FastLaneProtocol]", functools.partial(FastLaneProtocol, lane))
