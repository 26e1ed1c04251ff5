"""A proxy between raw sockets: engines that answer exact bytes, clients that send and read exact bytes."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import struct
import time
from dataclasses import dataclass, field
from socket import SO_LINGER, SOL_SOCKET

import uvicorn
import uvloop
from uvicorn.server import ServerState

from concur_proxy.config import UpstreamSettings
from concur_proxy.core.gate import Gate, GatePolicy
from concur_proxy.gateway.app import Readiness, create_app
from concur_proxy.gateway.dispatch import Dispatcher
from concur_proxy.gateway.handler import Handler, HandlerSettings
from concur_proxy.gateway.limits import ClientLimits
from concur_proxy.gateway.models import ask_all
from concur_proxy.gateway.protocol import fast_lane_protocol
from concur_proxy.gateway.secure import SecureListener
from concur_proxy.gateway.upstream import UpstreamPool
from concur_proxy.model import BackendEvent, BackendId, PoolId
from concur_proxy.windows.base import Unit

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
PATIENCE_S = 15
POOL = PoolId("default")
CHAT = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
STREAMED = b'{"model":"m","stream":true,"messages":[]}'


def run(coroutine, loop="uvloop"):
    """Run to the end, within a time limit that only a hang reaches."""

    async def limited():
        async with asyncio.timeout(90):
            await coroutine

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(limited())


async def until(condition):
    """Let the loop turn until something has come true."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0)


@dataclass
class Seen:
    """One request as an engine got it."""

    line: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes
    connection: int

    @property
    def target(self):
        return self.line.split(b" ")[1]

    def values(self, name):
        return [value for key, value in self.headers if key.lower() == name]


async def read_head(reader):
    head = await reader.readuntil(b"\r\n\r\n")
    line, *rest = head[:-4].split(b"\r\n")
    return line, [tuple(one.split(b": ", 1)) for one in rest]


class Wire:
    """An engine's side of one connection."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    async def send(self, *parts):
        for part in parts:
            self.writer.write(part)
            await self.writer.drain()

    def reset(self):
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def hang_up(self):
        self.writer.close()

    async def gone(self):
        """Wait until the proxy has closed the connection."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(1 << 16):
                pass


def ok(body=b'{"ok":true}', *, kind=b"application/json", status=b"200 OK", extra=b""):
    head = b"HTTP/1.1 %b\r\ncontent-type: %b\r\ncontent-length: %d\r\n%b\r\n" % (status, kind, len(body), extra)
    return head + body


def chunked(*pieces, kind=b"text/event-stream", trailers=b"", extra=b""):
    head = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ntransfer-encoding: chunked\r\n%b\r\n" % (kind, extra)
    body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return head + body + b"0\r\n" + trailers + b"\r\n"


class Engine:
    """A fake engine on a real socket. ``script(seen, wire)`` answers one request; False: close the connection."""

    def __init__(self, script=None, *, host="127.0.0.1", path=None, ssl=None):
        self._script = script or self._plain
        self._host, self._path, self._ssl = host, path, ssl
        self.seen: list[Seen] = []
        self.connections = 0
        self.open = 0

    @staticmethod
    async def _plain(_seen, wire):
        await wire.send(ok())

    async def __aenter__(self):
        self._tasks = set()
        if self._path:
            self._server = await asyncio.start_unix_server(self._serve, self._path)
            self.url = f"unix:{self._path}"
        else:
            self._server = await asyncio.start_server(self._serve, self._host, 0, ssl=self._ssl, backlog=4096)
            self.port = self._server.sockets[0].getsockname()[1]
            name = f"[{self._host}]" if ":" in self._host else self._host
            self.url = f"{'https' if self._ssl else 'http'}://{name}:{self.port}"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader, writer):
        task = asyncio.current_task()
        self._tasks.add(task)
        self.connections += 1
        self.open += 1
        number = self.connections
        try:
            await self._answer_all(reader, writer, number)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.open -= 1
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer_all(self, reader, writer, number):
        while True:
            line, headers = await read_head(reader)
            length = next((int(value) for name, value in headers if name.lower() == b"content-length"), 0)
            seen = Seen(line, headers, await reader.readexactly(length), number)
            self.seen.append(seen)
            if await self._script(seen, Wire(reader, writer)) is False:
                return


@dataclass
class Proxy:
    """The data path on a port of its own, with the real gate in the middle."""

    engines: tuple = ()
    window: float = math.inf
    upstream: UpstreamSettings = field(default_factory=UpstreamSettings)
    settings: HandlerSettings = field(default_factory=HandlerSettings)
    policy: GatePolicy = field(default_factory=GatePolicy)
    resolve: object = None
    ssl_context: object = None
    limits: ClientLimits = field(default_factory=ClientLimits)
    serve_tls: object = None
    handshakes: dict = field(default_factory=dict)
    observer: object = None
    prefix: str = ""

    async def __aenter__(self):
        self.turns, self.records, self.overloaded, self.lost = [], [], [], []
        self.gate = Gate(self.policy)
        self.dispatcher = Dispatcher(self.gate, clock=time.monotonic, on_record=self.records.append)
        self.pools = {}
        for number, engine in enumerate(self.engines):
            self.add(BackendId(f"b{number}"), engine if isinstance(engine, str) else engine.url)
        self.handler = Handler(
            self.dispatcher,
            self.pools,
            self.resolve or (lambda _model: POOL),
            self.settings,
            on_turn=self.turns.append,
            on_overloaded=self.overloaded.append,
            on_lost=self.lost.append,
            observer=self.observer,
        )
        app = create_app(
            models=lambda headers: ask_all(self.pools, headers),
            readiness=lambda: Readiness(True, {"backends": len(self.pools)}),
        )
        config = uvicorn.Config(
            app,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
        )
        config.load()
        protocol = fast_lane_protocol(self.handler, self.limits)
        self.state = ServerState()
        make = lambda: protocol(config=config, server_state=self.state, app_state={})  # noqa: E731
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        if self.serve_tls is None:
            self.server = await asyncio.get_running_loop().create_server(make, sock=self.socket)
        else:
            self.server = SecureListener(self.socket, make, self.serve_tls, self.limits, **self.handshakes)
        return self

    def add(self, backend, url):
        self.pools[backend] = UpstreamPool(url + self.prefix, self.upstream, ssl_context=self.ssl_context)
        self.dispatcher.add_backend(backend, POOL, unit=Unit.SESSIONS, window=self.window)
        self.dispatcher.set_members(POOL, self.pools)
        self.dispatcher.backend_event(backend, BackendEvent.UP)

    async def __aexit__(self, *_):
        self.server.close()
        for connection in list(self.state.connections):
            connection.transport.abort()
        await until(lambda: not self.state.connections)
        for pool in self.pools.values():
            pool.close()
        await until(lambda: not any(pool.open_connections for pool in self.pools.values()))
        for task in list(self.state.tasks):
            task.cancel()
        await asyncio.gather(*self.state.tasks, return_exceptions=True)
        self.dispatcher.close()
        await self.server.wait_closed()
        self.socket.close()

    async def client(self, tls=None):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=tls)
        return Client(reader, writer)

    async def ask(self, body=CHAT, **kwargs):
        """Send one request on a connection of its own and return the answer."""
        client = await self.client()
        try:
            await client.send(request(body, **kwargs))
            return await client.answer(head_only=kwargs.get("method") == b"HEAD")
        finally:
            await client.close()

    def idle(self):
        """Tell whether nothing is left of any request: every gauge is back at zero."""
        snapshot = self.dispatcher.snapshot()
        in_flight = [self.dispatcher.in_flight(backend) for backend in self.pools]
        return not (snapshot.running or snapshot.held or any(in_flight) or self.dispatcher.held or self.handler.turns)


def request(body=CHAT, *, path=b"/v1/chat/completions", method=b"POST", headers=b"", length=True):
    size = b"content-length: %d\r\n" % len(body) if length else b""
    return b"%b %b HTTP/1.1\r\nHost: proxy.test\r\n%b%b\r\n%b" % (method, path, headers, size, body)


@dataclass
class Answer:
    """One response as a client got it, its framing taken off; ``whole``: it came to its end."""

    status: int
    line: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes
    whole: bool = True
    trailers: list[tuple[bytes, bytes]] = field(default_factory=list)

    def values(self, name):
        return [value for key, value in self.headers if key.lower() == name]

    def value(self, name):
        values = self.values(name)
        assert len(values) <= 1, values
        return values[0] if values else None


class Client:
    """A client that knows HTTP/1.1 well enough to notice what is wrong."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    async def send(self, *parts):
        for part in parts:
            self.writer.write(part)
            await self.writer.drain()

    async def answer(self, *, head_only=False):
        line, headers = await read_head(self.reader)
        answer = Answer(int(line.split(b" ")[1]), line, headers, b"")
        if not head_only and answer.status >= 200 and answer.status not in (204, 304):
            await self._body(answer)
        return answer

    async def _body(self, answer):
        try:
            if answer.value(b"transfer-encoding"):
                await self._chunks(answer)
            elif (length := answer.value(b"content-length")) is not None:
                answer.body = await self.reader.readexactly(int(length))
            else:
                answer.body = await self.reader.read()
        except asyncio.IncompleteReadError as error:
            answer.body += error.partial
            answer.whole = False
        except ConnectionError:
            answer.whole = False

    async def _chunks(self, answer):
        while True:
            size = int((await self.reader.readuntil(b"\r\n"))[:-2].partition(b";")[0], 16)
            if not size:
                break
            answer.body += await self.reader.readexactly(size)
            assert await self.reader.readexactly(2) == b"\r\n"
        while (line := await self.reader.readuntil(b"\r\n")) != b"\r\n":
            answer.trailers.append(tuple(line[:-2].split(b": ", 1)))

    async def at_end(self):
        """Tell whether the proxy has closed the connection, without a further byte and without a reset."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.reader.read() == b""

    def leave(self):
        self.writer.transport.abort()

    async def close(self):
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()
