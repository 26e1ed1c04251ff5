"""One request from left to right:

    ingress ──▶ identify ──▶ gate (admit | hold | refuse) ──▶ relay ──▶ account
    start()     _identify()  granted()  refused()             _send()   _end()

These are methods of ``turn.Turn``: a chain of callbacks, not a task, so that a held one costs little. Here is what all
turns share, and their begin and end.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from concur_proxy.auth.access import Access
from concur_proxy.core import identity as sessions
from concur_proxy.errors import NotAuthenticatedError
from concur_proxy.gateway.background import BackgroundLeases
from concur_proxy.gateway.conversations import Conversations
from concur_proxy.gateway.dispatch import Dispatcher, ignore
from concur_proxy.gateway.exchange import Exchange
from concur_proxy.gateway.grouping import Grouping
from concur_proxy.gateway.observer import TurnObserver
from concur_proxy.gateway.owners import Owners
from concur_proxy.gateway.paths import Routes
from concur_proxy.gateway.popular import PopularPrefixes
from concur_proxy.gateway.responses import ResponseOrigins
from concur_proxy.gateway.retries import RetryBudget
from concur_proxy.gateway.rounds import Rounds
from concur_proxy.gateway.turn import Turn
from concur_proxy.gateway.unnamed import lineage_of
from concur_proxy.gateway.upstream import UpstreamPool
from concur_proxy.model import BackendId, FinishReason, Lease, Outcome, PoolId, RefusalReason, Usage
from concur_proxy.observe.turnlog import TurnLog

logger = logging.getLogger(__name__)


MAX_NAMESPACES: Final = 4096
"""Digests of API keys that are remembered: making one takes longer than all else that identification does."""


@dataclass(frozen=True, slots=True)
class HandlerSettings:
    """``namespace_key`` is secret and shared by the replicas of one proxy.

    ``lineage_bytes``: memory for recognising sessions by their messages; 0: they are not.
    """

    max_body_bytes: int = 32 << 20
    request_usage: bool = True
    retry_after_s: float = 2.0
    session_headers: tuple[str, ...] = ("X-Session-ID",)
    tenant_header: str | None = None
    extra_paths: tuple[str, ...] = ()
    heartbeat_s: float = 0.0
    """Time between two signs of life for held streams; 0: none."""
    background_lease_s: float = 1800.0
    """After which a background response whose end nobody came to see gives its place back."""
    lineage_bytes: int = 0
    retry_budget: float = 0.1
    """Share of the requests that may be sent again."""
    retry_generation: bool = True
    resume_streams: bool = False
    """Plain streams whose engine has died go on from another one."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Further names of models, and what is served under them."""
    namespace_key: bytes = field(default_factory=lambda: secrets.token_bytes(32))


class Handler:
    """What all requests share. ``resolve_pool`` names the pool that serves a model, None where none does."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        pools: Mapping[BackendId, UpstreamPool],
        resolve_pool: Callable[[str | None], PoolId | None],
        settings: HandlerSettings | None = None,
        *,
        on_turn: Callable[[TurnLog], None] = ignore,
        on_overloaded: Callable[[BackendId], None] = ignore,
        on_lost: Callable[[BackendId], None] = ignore,
        observer: TurnObserver | None = None,
    ) -> None:
        self.settings = settings or HandlerSettings()
        self.dispatcher = dispatcher
        self.pools = pools
        self.resolve_pool = resolve_pool
        self.aliases = dict(self.settings.aliases)
        self.strangers: dict[str | None, frozenset[BackendId]] = {}
        """By model, the backends of its pool that do not serve it."""
        self.popular: PopularPrefixes | None = None
        """Learns which prefixes to warm caches with, where anybody wants to know."""
        self.retries = RetryBudget(self.settings.retry_budget)
        self.begun = 0
        """Requests so far."""
        self.on_turn = on_turn
        self.on_overloaded = on_overloaded
        """An engine answered that it is full; told once per answer."""
        self.on_lost = on_lost
        """A connection to an engine failed before any byte of an answer."""
        self.observer = observer
        self.access: Access | None = None
        """Knows the callers; None: the engines check keys."""
        self.owners: Owners | None = None
        """Knows whose the sessions are, where several replicas share them."""
        self.grouping: Grouping | None = None
        """Finds out what batch turns that wait are about, where that is wanted."""
        self.heartbeats = Rounds(self.settings.heartbeat_s) if self.settings.heartbeat_s else None
        self.routes = Routes(self.settings.extra_paths)
        self.origins = ResponseOrigins()
        self.background = BackgroundLeases(self._finish_background, limit_s=self.settings.background_lease_s)
        self.conversations = Conversations()
        self.lineage = lineage_of(self.settings.lineage_bytes)
        self._namespaces: dict[tuple[str | None, str | None], str] = {}
        self.max_upload_bytes = 0
        """Of a body for /v1/files, where that is served here; 0: as of any other."""
        self.turns: set[Turn] = set()
        self.shutting_down = False

    @property
    def max_body_bytes(self) -> int:
        return self.settings.max_body_bytes

    @property
    def retry_after_s(self) -> float:
        return self.settings.retry_after_s

    def namespace_of(self, headers: Mapping[str, str]) -> str:
        """Return the namespace of the sessions that a request's API key opens; ``headers`` by lower-case name.

        Raises ``NotAuthenticatedError`` for a key that is not taken, where the proxy checks keys.
        """
        if self.access is not None:
            caller = self.access.caller(headers)
            if caller is None:
                raise NotAuthenticatedError
            return caller.namespace
        credentials = headers.get("authorization"), headers.get("x-api-key")
        known = self._namespaces.get(credentials)
        if known is None:
            if len(self._namespaces) >= MAX_NAMESPACES:
                self._namespaces.clear()
            known = sessions.namespace_of(*credentials, self.settings.namespace_key)
            self._namespaces[credentials] = known
        return known

    def begin(self, exchange: Exchange) -> None:
        """Serve a request that has been read."""
        turn = Turn(self, exchange)
        self.begun += 1
        exchange.turn = turn
        self.turns.add(turn)
        try:
            turn.start()
        except Exception:
            logger.exception("a request could not be started")
            turn.fail()

    def leave(self, backend: BackendId) -> None:
        """An engine has been put to sleep: what it has not begun to answer goes elsewhere, or waits for it to wake."""
        for turn in list(self.turns):
            if turn.backend == backend:
                turn.leave_backend()

    def _finish_background(
        self, lease: Lease, outcome: Outcome, usage: Usage | None, reason: FinishReason | None
    ) -> None:
        self.dispatcher.finish(lease, outcome, usage, finish_reason=reason)

    def begin_shutdown(self) -> None:
        """Refuse held and new turns from now on; running ones go on."""
        self.shutting_down = True
        self.dispatcher.refuse_all(RefusalReason.SHUTTING_DOWN)

    def abort_all(self) -> None:
        """The grace time is over: end what still runs."""
        for turn in list(self.turns):
            turn.stop()
        self.background.close()
