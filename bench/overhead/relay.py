"""The least that a proxy on this event loop can do: asyncio protocols with httptools on both sides, and no function.

    python -m bench.overhead.relay PORT ENGINE_PORT

It parses requests, their bodies as JSON, and responses as far as their end; keeps connections to the engine; copies
bytes. What a proxy with functions costs beside it is the price of the functions.
"""

from __future__ import annotations

import asyncio
import sys

import httptools
import orjson
import uvloop

REQUEST = b"POST %b HTTP/1.1\r\nhost: %b\r\n%bcontent-length: %d\r\n\r\n"
REPLACED = frozenset({b"host", b"content-length", b"transfer-encoding", b"connection"})


class Engine(asyncio.Protocol):
    """A connection to the engine; its bytes go to ``client`` as they come."""

    def __init__(self, idle: list[Engine]) -> None:
        self._idle = idle
        self._parser = httptools.HttpResponseParser(self)
        self.transport: asyncio.Transport
        self.client: Client | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self.client is not None:
            self.client.transport.write(data)
        self._parser.feed_data(data)

    def connection_lost(self, _: Exception | None) -> None:
        if self.client is not None:
            self.client.transport.close()
        elif self in self._idle:
            self._idle.remove(self)

    def on_message_complete(self) -> None:
        self.client = None
        self._idle.append(self)


class Client(asyncio.Protocol):
    """A client's connection."""

    def __init__(self, port: int, idle: list[Engine]) -> None:
        self._port, self._idle = port, idle
        self._parser = httptools.HttpRequestParser(self)
        self.transport: asyncio.Transport
        self._opening: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._url = b""
        self._headers: list[bytes] = []
        self._body: list[bytes] = []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() not in REPLACED:
            self._headers.append(b"%b: %b\r\n" % (name, value))

    def on_body(self, data: bytes) -> None:
        self._body.append(data)

    def on_message_complete(self) -> None:
        body = b"".join(self._body)
        orjson.loads(body)
        authority = b"127.0.0.1:%d" % self._port
        head = REQUEST % (self._url, authority, b"".join(self._headers), len(body))
        if self._idle:
            self._send(self._idle.pop(), head, body)
        else:
            task = asyncio.get_running_loop().create_task(self._open(head, body))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _open(self, head: bytes, body: bytes) -> None:
        loop = asyncio.get_running_loop()
        _, engine = await loop.create_connection(lambda: Engine(self._idle), "127.0.0.1", self._port)
        self._send(engine, head, body)

    def _send(self, engine: Engine, head: bytes, body: bytes) -> None:
        engine.client = self
        engine.transport.writelines((head, body))


async def serve(port: int, engine_port: int) -> None:
    loop = asyncio.get_running_loop()
    idle: list[Engine] = []
    server = await loop.create_server(lambda: Client(engine_port, idle), "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), int(sys.argv[2])))
