"""A small HTTP/1.1 client for load: what a client library costs per request would be measured as the server's time.

Connections are kept and used again, the latest first. A kept one may have died meanwhile; a request that finds that
before any byte of an answer goes out once more on a new connection, as every client library does it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import httptools

from concur_proxy.errors import ConfigError

KEEPALIVE_S = 5.0
"""An idle connection is not used again after this, which is what ``openai`` and ``httpx`` do."""
CONNECT_TIMEOUT_S = 10.0

Listener = Callable[[bytes], None]


class ConnectionLostError(OSError):
    """The connection ended before the answer did. ``early``: before any byte of it."""

    def __init__(self, *, early: bool) -> None:
        super().__init__(
            "the connection was closed" if early else "the connection was closed in the middle of an answer"
        )
        self.early = early


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    """By lower-case name; of several the last."""
    body: bytes


class Client:
    """Requests to one base URL. ``aclose`` ends the kept connections."""

    def __init__(self, base_url: str, *, keepalive_s: float = KEEPALIVE_S) -> None:
        """ConfigError where the URL is none of http or https."""
        parts = urlsplit(base_url.rstrip("/"))
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"{base_url!r} is not an http:// or https:// URL")
        self.base_url = base_url.rstrip("/")
        self._host, self._path = parts.hostname, parts.path
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._port = parts.port or (443 if self._tls else 80)
        self._authority = parts.netloc.rpartition("@")[2]
        self._keepalive_s = keepalive_s
        self._idle: list[_Connection] = []

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        on_data: Listener | None = None,
    ) -> Reply:
        """Send a request and return its whole answer; ``on_data`` sees the pieces of the body as they come.

        OSError where no connection can be made or it ends too early.
        """
        message = self._message(method, path, body, headers or {})
        kept = self._kept()
        if kept is not None:
            try:
                return await self._exchange(kept, message, on_data)
            except ConnectionLostError as error:
                if not error.early:
                    raise
        return await self._exchange(await self._connect(), message, on_data)

    async def aclose(self) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()
        await asyncio.sleep(0)

    def _message(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> bytes:
        lines = [f"{method} {self._path}{path} HTTP/1.1", f"host: {self._authority}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if body is not None:
            lines += ["content-type: application/json", f"content-length: {len(body)}"]
        return "\r\n".join([*lines, "", ""]).encode() + (body or b"")

    def _kept(self) -> _Connection | None:
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed and now - connection.idle_since < self._keepalive_s:
                return connection
            connection.close()
        return None

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            _, connection = await loop.create_connection(_Connection, self._host, self._port, ssl=self._tls)
        return connection

    async def _exchange(self, connection: _Connection, message: bytes, on_data: Listener | None) -> Reply:
        try:
            reply = await connection.exchange(message, on_data)
        except BaseException:
            connection.close()
            raise
        if connection.reusable:
            connection.idle_since = asyncio.get_running_loop().time()
            self._idle.append(connection)
        else:
            connection.close()
        return reply


class _Connection(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self) -> None:
        self.closed = False
        self.reusable = False
        self.idle_since = 0.0
        self._transport: asyncio.Transport
        self._answer: asyncio.Future[Reply] | None = None
        self._on_data: Listener | None = None
        self._begin()

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._early = True
        self._in_body = False

    async def exchange(self, message: bytes, on_data: Listener | None) -> Reply:
        if self.closed:
            raise ConnectionLostError(early=True)
        self._begin()
        self._on_data = on_data
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(message)
        try:
            return await self._answer
        finally:
            self._answer = self._on_data = None

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._transport.close()

    # what the event loop and the parser call

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._early = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(OSError(f"the answer is not HTTP: {error}"))
            self.close()

    def eof_received(self) -> None:
        """An answer without a length ends with its connection."""
        framed = "content-length" in self._headers or "transfer-encoding" in self._headers
        if self._in_body and not framed:
            self.on_message_complete()

    def connection_lost(self, _: Exception | None) -> None:
        self.closed = True
        self._fail(ConnectionLostError(early=self._early))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._in_body = self._parser.get_status_code() >= 200

    def on_body(self, data: bytes) -> None:
        self._body.append(data)
        if self._on_data is not None:
            self._on_data(data)

    def on_message_complete(self) -> None:
        if not self._in_body:  # "100 Continue" and its like come before the answer
            self._headers.clear()
            return
        self.reusable = self._parser.should_keep_alive() and not self.closed
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(Reply(self._parser.get_status_code(), self._headers, b"".join(self._body)))

    def _fail(self, error: OSError) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
