"""Follows the caches of engines that publish their KV events."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from concur_proxy.config import BackendSettings
from concur_proxy.errors import ConfigError
from concur_proxy.gateway.dispatch import Dispatcher
from concur_proxy.model import BackendId

if TYPE_CHECKING:
    from concur_proxy.control.kv_events import KvEvents

NO_LIBRARY = "kv_events_url needs ZeroMQ: pip install 'concur-proxy[kv-events]', or leave kv_events_url out"


class Caches:
    """One follower for each backend that names where its events are."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._followers: dict[BackendId, KvEvents] = {}

    def add(self, settings: BackendSettings) -> None:
        """Follow a backend from now on, if it names its events; raise ``ConfigError`` without the library."""
        if settings.kv_events_url is None:
            return
        try:
            from concur_proxy.control.kv_events import KvEvents  # noqa: PLC0415 - an extra: only who wants it needs it
        except ModuleNotFoundError as error:
            if error.name != "zmq":
                raise
            raise ConfigError(f"backend {settings.id}: {NO_LIBRARY}") from None
        follower = KvEvents(settings.id, settings.kv_events_url, self._dispatcher.follow_cache)
        self._followers[settings.id] = follower
        follower.start()

    async def remove(self, backend: BackendId) -> None:
        follower = self._followers.pop(backend, None)
        if follower is not None:
            await follower.stop()

    async def aclose(self) -> None:
        await asyncio.gather(*(self.remove(backend) for backend in list(self._followers)))
