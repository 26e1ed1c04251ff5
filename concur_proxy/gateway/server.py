"""uvicorn's server with the end that a proxy in front of long streams needs."""

from __future__ import annotations

import asyncio
import logging
import math
import socket
from types import FrameType
from typing import Any, cast

import uvicorn

from concur_proxy.gateway.handler import Handler
from concur_proxy.gateway.limits import ClientLimits
from concur_proxy.gateway.secure import SecureListener

logger = logging.getLogger(__name__)


class Server(uvicorn.Server):
    """First signal: held turns are refused, running ones get ``grace_s``, exit status 0. Second one: end at once."""

    def __init__(
        self, config: uvicorn.Config, handler: Handler, *, grace_s: float, limits: ClientLimits | None = None
    ) -> None:
        super().__init__(config)
        self._handler = handler
        self._limits = limits or ClientLimits()
        self._grace_s = grace_s
        config.timeout_graceful_shutdown = math.ceil(grace_s) + 1

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002  # a signal handler's signature
        """Take a signal, which is not raised again at the end: the exit was orderly."""
        if self.should_exit:
            self.force_exit = True
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen; where TLS is spoken by ourselves, as uvicorn leaves handshakes without limits."""
        context = self.config.ssl
        if context is None or not sockets:
            await super().startup(sockets)
            return
        await super().startup([])
        self.servers = cast(
            "list[asyncio.base_events.Server]",
            [SecureListener(sock, self._protocol, context, self._limits) for sock in sockets],
        )

    def _protocol(self) -> asyncio.Protocol:
        make = cast("Any", self.config.http_protocol_class)
        made = make(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)
        return cast("asyncio.Protocol", made)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._handler.begin_shutdown()
        timer = asyncio.get_running_loop().call_later(self._grace_s, self._end_grace)
        await super().shutdown(sockets)
        timer.cancel()
        self._handler.abort_all()

    def _end_grace(self) -> None:
        if self._handler.turns:
            logger.warning("%d requests did not end within the grace time", len(self._handler.turns))
        self._handler.abort_all()
