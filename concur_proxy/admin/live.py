"""Server-sent events: the state of the proxy about once a second, to a bounded number of listeners.

Every event says everything, so that a listener that was away, or reads slowly, has missed nothing. One picture serves
all listeners, and a large one is drawn less often.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from concur_proxy.errors import TooManyListenersError

PERIOD_S = 1.0
MAX_LISTENERS = 32
BYTES_PER_S = 64 * 1024
"""To one listener: pictures of large fleets come less often."""
COME_BACK_MS = 2000
"""When a browser connects again."""


class Live:
    """``read`` draws the picture; ``over`` tells that the proxy ends, and listeners must not keep it."""

    def __init__(
        self,
        read: Callable[[], bytes],
        *,
        over: Callable[[], bool],
        limit: int = MAX_LISTENERS,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._read = read
        self._over = over
        self._clock = clock
        self._pause = pause
        self._frame = b""
        self._drawn_at: float | None = None
        self._number = 0
        self.limit = limit
        self.listeners = 0

    @property
    def period_s(self) -> float:
        """Seconds between two events."""
        return max(PERIOD_S, len(self._frame) / BYTES_PER_S)

    async def events(self) -> AsyncIterator[bytes]:
        """Yield events until the proxy ends."""
        yield b"retry: %d\n\n" % COME_BACK_MS
        while not self._over():
            yield self._latest()
            await self._pause(self.period_s)

    def _latest(self) -> bytes:
        """Return the newest event; two listeners within one period get the same one."""
        now = self._clock()
        if self._drawn_at is None or now - self._drawn_at >= self.period_s / 2:
            self._drawn_at = now
            self._number += 1
            self._frame = b"id: %d\nevent: state\ndata: %b\n\n" % (self._number, self._read())
        return self._frame


class LiveResponse(StreamingResponse):
    """Occupies a listener's seat from its first byte to its last; ``TooManyListenersError`` where none is free."""

    media_type = "text/event-stream"

    def __init__(self, live: Live) -> None:
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(live.events(), headers=headers)
        self._live = live

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        live = self._live
        if live.listeners >= live.limit:
            raise TooManyListenersError(
                f"{live.limit} pages listen already: close one, or ask GET /concur/status.", retry_after_s=10
            )
        live.listeners += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            live.listeners -= 1
