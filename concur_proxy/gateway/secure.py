"""TLS handshakes that clients begin: how many at once, by whom, for how long. Limits of connections begin behind them.

A handshake takes milliseconds, and as much memory as ten connections. Where there is no room for one more, the oldest
makes way: an honest one has long ended by then.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final

from concur_proxy.gateway.limits import Census, ClientLimits

MOST_AT_ONCE: Final = 1024
ACCEPTED_AT_ONCE: Final = 64
BACKLOG: Final = 2048
PAUSE_S: Final = 1.0
"""Before connections are accepted again, where the system has no more files for us."""
LONGEST_S: Final = 30.0

logger = logging.getLogger(__name__)


class SecureListener:
    """Accepts connections at ``sock``; each gets a protocol of ``make`` once TLS is agreed on. Has a server's end."""

    def __init__(
        self,
        sock: socket.socket,
        make: Callable[[], asyncio.Protocol],
        context: ssl.SSLContext,
        limits: ClientLimits,
        *,
        most: int = MOST_AT_ONCE,
        longest_s: float = LONGEST_S,
    ) -> None:
        """``most``: handshakes at once. ``longest_s``: how long each may take."""
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._make = make
        self._context = context
        self._longest_s = longest_s
        self._census = Census(limits.max_connections_per_client)
        self._most = most
        self._begun: dict[asyncio.Task[None], str | None] = {}
        """Handshakes under way, oldest first, and what their clients are counted by."""
        self._pause: asyncio.TimerHandle | None = None
        sock.setblocking(False)
        sock.listen(BACKLOG)
        self._go_on()

    def __len__(self) -> int:
        return len(self._begun)

    def close(self) -> None:
        """Accept nothing more; what is being agreed on ends."""
        self._loop.remove_reader(self._sock)
        if self._pause is not None:
            self._pause.cancel()
        for task in self._begun:
            task.cancel()

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._begun, return_exceptions=True)

    def _go_on(self) -> None:
        self._pause = None
        self._loop.add_reader(self._sock, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                sock, address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                logger.warning("cannot accept connections: %s", error)
                self._loop.remove_reader(self._sock)
                self._pause = self._loop.call_later(PAUSE_S, self._go_on)
                return
            self._begin(sock, address[0])

    def _begin(self, sock: socket.socket, host: str) -> None:
        client = self._census.enter(host)
        if client is not None and self._census.is_over(client):
            self._census.leave(client)
            sock.close()
            return
        if len(self._begun) >= self._most:
            oldest = next(iter(self._begun))
            self._end(oldest)
            oldest.cancel()
        sock.setblocking(False)
        task = self._loop.create_task(self._agree(sock))
        self._begun[task] = client
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        if task in self._begun and (client := self._begun.pop(task)) is not None:
            self._census.leave(client)

    async def _agree(self, sock: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._make, sock, ssl=self._context, ssl_handshake_timeout=self._longest_s
            )
        except OSError as error:  # of which ssl.SSLError is one
            logger.debug("no TLS with a client: %s", error)
            sock.close()
        except asyncio.CancelledError:
            sock.close()
            raise
