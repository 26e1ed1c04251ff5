"""A way into the proxy's own data path that nobody else has: HTTP over a Unix socket in a folder of our own.

What comes in here is identified, gated, counted and logged like any other turn. No TLS, no limits of clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from concur_proxy.batch.sending import BrokenOffError
from concur_proxy.config import UpstreamSettings
from concur_proxy.gateway.connection import Failure
from concur_proxy.gateway.handler import Handler
from concur_proxy.gateway.headers import HeaderList, ResponseHead
from concur_proxy.gateway.limits import ClientLimits
from concur_proxy.gateway.protocol import fast_lane_protocol
from concur_proxy.gateway.upstream import UpstreamPool

UNLIMITED = ClientLimits(head_timeout_s=0, body_timeout_s=0, body_bytes_per_s=0, idle_timeout_s=0, stall_timeout_s=0)
MAX_CONNECTIONS = 100_000
"""How many requests there are at once is for who sends them to say."""


class Entry:
    """Serves ``handler`` on a private socket, and is its only client."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._server: asyncio.Server | None = None
        self._state = ServerState()
        self._pool: UpstreamPool | None = None

    async def open(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="concur-batch-")  # only we may look into it
        path = Path(self._folder.name, "socket")
        protocol = fast_lane_protocol(self._handler, UNLIMITED)
        config = uvicorn.Config(_nothing_else, http=protocol, ws="none", log_config=None, access_log=False)
        config.load()
        factory = partial(config.http_protocol_class, config=config, server_state=self._state, app_state={})  # type: ignore[call-arg]
        self._server = await asyncio.get_running_loop().create_unix_server(factory, str(path))
        self._pool = UpstreamPool(f"unix:{path}", UpstreamSettings(max_connections=MAX_CONNECTIONS))

    async def close(self) -> None:
        """Requests that are under way end as if their client had left."""
        if self._pool is not None:
            self._pool.close()
        if self._server is not None:
            self._server.close()
        for connection in list(self._state.connections):
            connection.transport.abort()
        if self._folder is not None:
            with contextlib.suppress(OSError):
                self._folder.cleanup()

    async def post(self, path: str, headers: HeaderList, body: bytes) -> tuple[ResponseHead, bytes]:
        """Return the whole answer; OSError where none comes. Cancelling it is a client that leaves."""
        assert self._pool is not None
        lines = [b"%b: %b\r\n" % header for header in headers]
        head = self._pool.request_head(b"POST", path.encode(), lines, len(body))
        answer = WholeAnswer()
        call = self._pool.send(head, body, answer)
        try:
            return await answer.future
        finally:
            call.abort()


class WholeAnswer:
    """A sink that keeps a response until it is complete."""

    def __init__(self) -> None:
        self.future: asyncio.Future[tuple[ResponseHead, bytes]] = asyncio.get_running_loop().create_future()
        self._head: ResponseHead | None = None
        self._pieces: list[bytes] = []

    def on_informational(self, head: ResponseHead) -> None:
        pass

    def on_head(self, head: ResponseHead) -> None:
        self._head = head

    def on_data(self, raw: bytes, pieces: list[bytes], *, end: bool, trailers: HeaderList) -> None:  # noqa: ARG002  # Sink
        self._pieces += pieces
        if end and not self.future.done():
            assert self._head is not None
            self.future.set_result((self._head, b"".join(self._pieces)))

    def on_failure(self, failure: Failure, detail: str) -> None:
        if not self.future.done():
            kind = OSError if self._head is None else BrokenOffError
            self.future.set_exception(kind(f"{failure.value}: {detail}"))


async def _nothing_else(scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG001  # an application's signature
    """Only what is on the data path is asked for here."""
    await send({"type": "http.response.start", "status": 404, "headers": []})
    await send({"type": "http.response.body", "body": b""})
