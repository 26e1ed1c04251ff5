"""The connections to one backend: kept alive shortly, opened on demand, bounded in number."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections import deque
from dataclasses import dataclass
from typing import Final

from concur_proxy.config import UpstreamSettings
from concur_proxy.gateway import address
from concur_proxy.gateway.connection import Failure, Sink, UpstreamConnection
from concur_proxy.gateway.familiar import FamiliarResponse, familiar_response
from concur_proxy.gateway.headers import HeaderList, ResponseHead
from concur_proxy.gateway.relay import Relay

KEEPALIVE_PROBES = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
"""A peer that vanished without a word is noticed within a minute."""

MAX_ANSWER_BYTES: Final = 8 << 20
"""To a question of the proxy's own. Metrics pages have some 100 kB; whatever is this large is something else."""
MOST_IN_VAIN: Final = 1023
"""Answers that are not looked at, where heads have proved to differ."""


class UpstreamCall:
    """One request on its way to the engine, until its sink has had the final call or it is aborted."""

    __slots__ = ("_pool", "aborted", "body", "connection", "head", "head_only", "relay", "retried", "sink")

    def __init__(self, pool: UpstreamPool, head: bytes, body: bytes, sink: Sink, *, head_only: bool) -> None:
        self._pool = pool
        self.head = head
        self.body = body
        self.sink = sink
        self.relay = sink if isinstance(sink, Relay) else None
        """The sink, where it is the usual one, which is called directly."""
        self.head_only = head_only
        """The request is a HEAD: the response has no body, whatever its headers say."""
        self.connection: UpstreamConnection | None = None
        self.retried = False
        self.aborted = False

    def abort(self) -> None:
        """Nobody waits any more: the connection closes at once. Nothing happens to a call that has ended."""
        self.aborted = True
        if self.connection is None:
            self._pool.withdraw(self)
        elif self.connection.call is self:
            self.connection.abort()

    def pause(self) -> None:
        """Stop reading the response until ``resume``."""
        if self.connection is not None and self.connection.call is self:
            self.connection.pause()

    def resume(self) -> None:
        if self.connection is not None and self.connection.call is self:
            self.connection.resume()


class UpstreamPool:
    """Connections to one backend URL. Belongs to the event loop in which it first sends."""

    def __init__(
        self,
        url: str,
        settings: UpstreamSettings,
        *,
        ssl_context: ssl.SSLContext | None = None,
        credential: bytes = b"",
        lines: bytes = b"",
        priority_sign: int = 0,
    ) -> None:
        """``lines``: header lines, complete, that go before all others.

        ``priority_sign``: 1 where the engine serves higher priorities first, -1 lower ones, 0 where it is told none.
        """
        self.priority_sign = priority_sign
        self.address = address.parse(url)
        self._host_line = b" HTTP/1.1\r\nhost: " + self.address.authority + b"\r\n" + lines
        self.settings = settings
        self.first_byte_timeout_s = settings.first_byte_timeout_s
        self.idle_timeout_s = settings.idle_timeout_s
        self._keepalive_s = settings.keepalive_s
        self._is_in_use = False
        self.credential = credential
        """The header line with the backend's own key, where it takes the place of what clients bring."""
        self._ssl = (ssl_context or ssl.create_default_context()) if self.address.tls else None
        self._idle: deque[UpstreamConnection] = deque()
        self._waiting: deque[UpstreamCall] = deque()
        self._connections: set[UpstreamConnection] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._reaper: asyncio.TimerHandle | None = None
        self.familiar: FamiliarResponse | None = None
        """What the last answers began with."""
        self._in_vain = 0
        self._unlearned = 0
        self.retries = 0
        """Calls sent again because a kept connection had died."""
        self.sent_bytes = 0
        self.received_bytes = 0
        """Heads and framing included."""
        self.loop: asyncio.AbstractEventLoop

    def send(self, head: bytes, body: bytes, sink: Sink, *, head_only: bool = False) -> UpstreamCall:
        """Send a request, its ``head`` complete, on an idle connection or a new one; ``sink`` gets the answer."""
        if not self._is_in_use:  # each time it would cost a system call
            self.loop, self._is_in_use = asyncio.get_running_loop(), True
        call = UpstreamCall(self, head, body, sink, head_only=head_only)
        connection = self._take_idle()
        if connection is not None:
            connection.begin(call)
        else:
            self._open_for(call)
        return call

    async def fetch(
        self, path: str, headers: HeaderList, *, body: bytes | None = None, max_bytes: int = MAX_ANSWER_BYTES
    ) -> tuple[ResponseHead, bytes]:
        """Ask a question of the proxy's own: GET a resource whole, POST where there is a ``body``.

        Raises ``OSError``, in words for an operator, where the answer does not come or is larger than ``max_bytes``.
        """
        lines = [*(b"%b: %b\r\n" % header for header in headers), self.credential]
        method, length = (b"GET", None) if body is None else (b"POST", len(body))
        head = self.request_head(method, path.encode(), lines, length)
        answer = _Collector(asyncio.get_running_loop().create_future(), max_bytes)
        call = self.send(head, body or b"", answer)
        try:
            return await answer.future
        finally:
            call.abort()

    def request_head(self, method: bytes, target: bytes, lines: list[bytes], length: int | None) -> bytes:
        """Return a request's head for this backend: its prefix before the target, its name as Host."""
        end = b"\r\n" if length is None else b"content-length: %d\r\n\r\n" % length
        parts = [method, b" ", self.address.prefix, target, self._host_line]
        parts += lines
        parts.append(end)
        return b"".join(parts)

    def close(self) -> None:
        """Close every connection; running and waiting calls end with a failure."""
        while self._waiting:
            _fail(self._waiting.popleft(), Failure.CONNECT, "the pool was closed")
        for task in self._opening:
            task.cancel()
        for connection in list(self._connections):
            connection.transport.close()
        self._idle.clear()
        if self._reaper is not None:
            self._reaper.cancel()
            self._reaper = None

    @property
    def open_connections(self) -> int:
        return len(self._connections) + len(self._opening)

    @property
    def idle_connections(self) -> int:
        return len(self._idle)

    # called by connections and calls

    def add(self, connection: UpstreamConnection) -> None:
        self._connections.add(connection)

    def release(self, connection: UpstreamConnection) -> None:
        """Take back a connection whose response is complete."""
        if self._waiting:
            connection.begin(self._waiting.popleft())
            return
        connection.idle_since = self.loop.time()
        self._idle.append(connection)
        if self._reaper is None:
            self._reaper = self.loop.call_later(self.settings.keepalive_s, self._reap)

    def forget(self, connection: UpstreamConnection) -> None:
        """A connection is gone; its slot goes to the next call that waits."""
        self._connections.discard(connection)
        with contextlib.suppress(ValueError):
            self._idle.remove(connection)
        self._open_next()

    def retry(self, call: UpstreamCall) -> bool:
        """Send a call again, once, whose reused connection died under it; False where that was done already."""
        if call.retried:
            return False
        call.retried = True
        self.retries += 1
        call.connection = None
        self._open_for(call)
        return True

    def withdraw(self, call: UpstreamCall) -> None:
        """An aborted call needs no connection any more."""
        with contextlib.suppress(ValueError):
            self._waiting.remove(call)

    def learn(self, data: bytes, head: ResponseHead) -> None:
        """Keep the head of an answer, which is ``data``; more and more seldom where no answer begins like the last."""
        self._unlearned += 1
        if self._unlearned > self._in_vain:
            self._unlearned = 0
            self._in_vain = min(2 * self._in_vain + 1, MOST_IN_VAIN)
            self.familiar = familiar_response(data, head)

    def familiar_head(self, data: bytes) -> tuple[ResponseHead | None, int]:
        """Return the head of an answer that is whole and begins like the last, and where its body begins."""
        familiar = self.familiar
        if familiar is None:
            return None, 0
        start, length = familiar.fit(data)
        if not start or len(data) != start + length:
            return None, 0
        self._in_vain = 0
        return familiar.head(), start

    # inside

    def _take_idle(self) -> UpstreamConnection | None:
        oldest = self.loop.time() - self._keepalive_s
        while self._idle:
            connection = self._idle.pop()
            if not connection.transport.is_closing() and connection.idle_since > oldest:
                return connection
            connection.transport.close()
        return None

    def _reap(self) -> None:
        """Close what has been idle for too long; come again when the next one will have been."""
        self._reaper = None
        oldest = self.loop.time() - self.settings.keepalive_s
        while self._idle and self._idle[0].idle_since <= oldest:
            self._idle.popleft().transport.close()
        if self._idle:
            self._reaper = self.loop.call_later(self._idle[0].idle_since - oldest, self._reap)

    def _open_for(self, call: UpstreamCall) -> None:
        if self.open_connections >= self.settings.max_connections:
            self._waiting.append(call)
            return
        task = self.loop.create_task(self._open(call))
        self._opening.add(task)
        task.add_done_callback(self._opened)

    def _opened(self, task: asyncio.Task[None]) -> None:
        self._opening.discard(task)
        self._open_next()

    def _open_next(self) -> None:
        if self._waiting and self.open_connections < self.settings.max_connections:
            self._open_for(self._waiting.popleft())

    async def _open(self, call: UpstreamCall) -> None:
        try:
            async with asyncio.timeout(self.settings.connect_timeout_s or None):
                connection = await self._connect()
        except (OSError, TimeoutError) as error:
            _fail(call, Failure.CONNECT, f"cannot connect to the engine: {_why(error)}")
        except asyncio.CancelledError:
            _fail(call, Failure.CONNECT, "the pool was closed")
            raise
        else:
            self._serve(call, connection)

    def _serve(self, call: UpstreamCall, connection: UpstreamConnection) -> None:
        if connection.transport.is_closing():
            _fail(call, Failure.LOST_EARLY, "the engine closed the connection at once")
        elif call.aborted:
            self.release(connection)
        else:
            connection.begin(call)

    async def _connect(self) -> UpstreamConnection:
        connection = UpstreamConnection(self)
        try:
            await self._dial(connection)
        except BaseException:
            self.forget(connection)  # uvloop does not tell of a connection that it closes because nobody waits for it
            raise
        return connection

    async def _dial(self, connection: UpstreamConnection) -> None:
        where = self.address
        if where.socket_path is not None:
            await self.loop.create_unix_connection(lambda: connection, where.socket_path)
            return
        transport, _ = await self.loop.create_connection(lambda: connection, where.host, where.port, ssl=self._ssl)
        keep_alive(transport)


def _why(error: OSError) -> str:
    """Return what a client, and a reader of the log, can make use of."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}; see ca_file and insecure of the backend"
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return "it does not speak TLS; is its address http://, not https://?"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    return str(error) or "timeout"


def _fail(call: UpstreamCall, failure: Failure, detail: str) -> None:
    if not call.aborted:
        call.sink.on_failure(failure, detail)


def keep_alive(transport: asyncio.BaseTransport) -> None:
    """Have the kernel probe a silent TCP peer."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE_PROBES:
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


@dataclass(slots=True)
class _Collector:
    """A sink that keeps a whole response."""

    future: asyncio.Future[tuple[ResponseHead, bytes]]
    max_bytes: int
    head: ResponseHead | None = None
    body: bytes = b""

    def on_informational(self, head: ResponseHead) -> None:
        pass

    def on_head(self, head: ResponseHead) -> None:
        self.head = head

    def on_data(self, raw: bytes, pieces: list[bytes], *, end: bool, trailers: HeaderList) -> None:  # noqa: ARG002  # Sink
        self.body += b"".join(pieces)
        if len(self.body) > self.max_bytes:
            self.on_failure(Failure.PROTOCOL, f"answer larger than {self.max_bytes >> 20} MB")
        elif end and not self.future.done():
            assert self.head is not None
            self.future.set_result((self.head, self.body))

    def on_failure(self, failure: Failure, detail: str) -> None:  # noqa: ARG002  # Sink
        if not self.future.done():
            self.future.set_exception(OSError(detail))
