"""Backends that come and go, as the running proxy carries it out: who must hear of one that enters or leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from concur_proxy.config import BackendSettings, FleetSettings, Priorities
from concur_proxy.control.target import RANK_HEADER, target_of
from concur_proxy.control.warmup import Post, Prefix, WarmUp, read_prefixes
from concur_proxy.errors import ConfigError, InvalidSettingError
from concur_proxy.fleet.members import Members
from concur_proxy.fleet.pool import DEFAULT_POOL
from concur_proxy.fleet.sources.base import Tell
from concur_proxy.fleet.sources.dns import watch_name
from concur_proxy.fleet.sources.endpoints import require_client, watch_service
from concur_proxy.fleet.sources.file import watch_file
from concur_proxy.gateway import credentials
from concur_proxy.gateway.popular import PopularPrefixes
from concur_proxy.gateway.upstream import UpstreamPool
from concur_proxy.model import BackendId
from concur_proxy.runtime.caches import Caches
from concur_proxy.tasks import end
from concur_proxy.windows.base import Unit

if TYPE_CHECKING:
    from concur_proxy.runtime.node import Node

PRIORITY_SIGNS = {Priorities.AS_SENT: 0, Priorities.LOWER_FIRST: -1, Priorities.HIGHER_FIRST: 1}

CONFIGURED = "configuration"
"""The source that is the settings' own list."""
BY_HAND = "management API"


class NodePort:
    """Implements ``fleet.members.MemberPort`` over a node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.caches = Caches(node.dispatcher)

    def enter(self, backend: BackendSettings) -> None:
        node, target = self._node, target_of(backend)
        node.targets[target.backend] = target
        credential = credentials.line(target.api_key) if node.doorkeeper is not None else b""
        node.pools[target.backend] = UpstreamPool(
            backend.url,
            node.settings.upstream,
            ssl_context=target.tls,
            credential=credential,
            priority_sign=PRIORITY_SIGNS[backend.priorities],
            lines=b"" if target.rank is None else b"%b: %d\r\n" % (RANK_HEADER.encode(), target.rank),
        )
        node.dispatcher.add_backend(
            target.backend, DEFAULT_POOL, unit=Unit.SESSIONS, window=node.settings.control.window_min
        )
        node.roster.add(target.backend)
        node.loop.add(target)
        if node.keeper is not None and (state := node.keeper.kept(target.backend)) is not None:
            node.loop.load(target.backend, state)
        node.scraper.add(target)
        node.health.add(target)
        self.caches.add(backend)
        fleet = node.settings.fleet
        if len(node.targets) > 1 and fleet.warm_up and fleet.warm_up_file is None and node.handler.popular is None:
            node.handler.popular = PopularPrefixes()

    def drain(self, backend: BackendId, *, drained: bool) -> None:
        self._node.health.drain(backend, drained=drained)

    def is_up(self, backend: BackendId) -> bool:
        return self._node.dispatcher.is_up(backend)

    def is_busy(self, backend: BackendId) -> bool:
        return self._node.dispatcher.in_flight(backend) > 0

    def has_stand_in(self, backend: BackendId) -> bool:
        node, models_of = self._node, self._node.fleet.models_of
        others = [other for other in node.dispatcher.up(node.fleet.pool_of(backend)) if other != backend]
        return bool(others) and {name for other in others for name in models_of(other)}.issuperset(models_of(backend))

    async def leave(self, backend: BackendId) -> None:
        node = self._node
        await node.scraper.remove(backend)
        await self.caches.remove(backend)
        await node.health.remove(backend)
        node.loop.remove(backend)
        node.handler.background.lost(backend)
        node.dispatcher.remove_backend(backend)
        node.roster.remove(backend)
        node.pools.pop(backend).close()
        del node.targets[backend]
        node.metrics.forget(backend)


class Membership:
    """The members, and the tasks that watch where further ones are named."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._port = NodePort(node)
        self.members = Members(self._port, clock=node.clock)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Take in what the settings name; raise ``ConfigError`` where that cannot be used."""
        self.members.say(CONFIGURED, self._node.settings.backends)
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(one, name="find backends") for one in self._watchers()]

    def add(self, settings: BackendSettings) -> None:
        """Take in a backend that an operator names; raise ``InvalidSettingError`` where it cannot be."""
        named = self.members.named(settings)
        if named is not None:
            raise InvalidSettingError(f"{settings.id} ({settings.url}): there is the backend {named} already")
        before = self.members.said(BY_HAND)
        try:
            self.members.say(BY_HAND, [*before, settings])
        except ConfigError as error:
            self.members.say(BY_HAND, before)
            raise InvalidSettingError(error.message) from None

    def remove(self, backend: BackendId) -> bool:
        """Let a backend go; False where there is none, ``InvalidSettingError`` where another source names it."""
        sources = self.members.named_by(backend)
        if found := [source for source in sources if source not in (CONFIGURED, BY_HAND)]:
            raise InvalidSettingError(f"{backend} is named by {found[0]}: take it out there, or drain it", param="name")
        for source in sources:
            self.members.say(source, [one for one in self.members.said(source) if one.id != backend])
        return bool(sources)

    async def aclose(self) -> None:
        await end(*self._tasks)
        await self.members.aclose()
        await self._port.caches.aclose()

    def _watchers(self) -> Iterator[Coroutine[Any, Any, None]]:
        return watchers(self._node.settings.fleet, self.members.say)


def warm_up(node: Node, post: Post) -> WarmUp:
    """Return what tries and warms backends that come up; raise ``ConfigError`` for a file that cannot be used."""
    fleet = node.settings.fleet
    named = read_prefixes(fleet.warm_up_file) if fleet.warm_up_file is not None else None

    def prefixes() -> Sequence[Prefix]:
        popular = node.handler.popular
        return named if named is not None else popular.replays() if popular is not None else ()

    return WarmUp(
        post,
        models_of=node.fleet.models_of,
        has_stand_in=NodePort(node).has_stand_in,
        prefixes=prefixes,
    )


def watchers(fleet: FleetSettings, tell: Tell) -> Iterator[Coroutine[Any, Any, None]]:
    """Yield what watches each source that the settings name; raise ``ConfigError`` where its library is missing."""
    if fleet.file is not None:
        yield watch_file(Path(fleet.file), tell, interval_s=fleet.file_interval_s)
    for url in fleet.dns:
        yield watch_name(url, tell, interval_s=fleet.dns_interval_s)
    if fleet.kubernetes_service is not None:
        require_client()
        yield watch_service(fleet.kubernetes_service, fleet.kubernetes_port, tell)
