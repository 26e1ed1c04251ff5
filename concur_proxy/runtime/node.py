"""The parts of one proxy and the wires between them.

scraper ──▶ loop ──▶ dispatcher (gate) ◀── handler ◀── clients
health  ──▶ roster ─────┘                     │
   ▲                                          ▼
   └───────────── how turns ended ─── upstream pools ──▶ engines
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from concur_proxy.batch.service import BatchService
from concur_proxy.config import Settings
from concur_proxy.control.fetch import HttpFetch
from concur_proxy.control.health import Health
from concur_proxy.control.loop import ControlLoop
from concur_proxy.control.probe import Scrape
from concur_proxy.control.roster import Roster
from concur_proxy.control.scraper import Scraper
from concur_proxy.control.target import EngineTarget
from concur_proxy.core.gate import Gate
from concur_proxy.fleet.pool import Fleet, Models
from concur_proxy.gateway.dispatch import Dispatcher
from concur_proxy.gateway.handler import Handler
from concur_proxy.gateway.upstream import UpstreamPool
from concur_proxy.model import BackendEvent, BackendId, ColdLane, Outcome, PoolId
from concur_proxy.observe.decisions import DecisionLog
from concur_proxy.observe.lag import watch_loop
from concur_proxy.observe.logs import AccessLog
from concur_proxy.observe.metrics import Metrics
from concur_proxy.runtime import policy
from concur_proxy.runtime.account import Account
from concur_proxy.runtime.doorkeeper import Doorkeeper
from concur_proxy.runtime.grouping import grouper_of
from concur_proxy.runtime.historian import Historian
from concur_proxy.runtime.keeper import Keeper
from concur_proxy.runtime.membership import Membership, warm_up
from concur_proxy.runtime.replicas import Replicas
from concur_proxy.runtime.traces import tracing_of
from concur_proxy.runtime.watch import FileWatch
from concur_proxy.tasks import end


class Node:
    """One running proxy. ``start`` and ``stop`` belong to one event loop."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.clock = time.monotonic
        self.started_at = self.clock()
        self.gate = Gate(policy.gate_policy(settings.gate))
        self.dispatcher = Dispatcher(self.gate, clock=self.clock)
        self.fleet = Fleet()
        self.roster = Roster(self.fleet, self.dispatcher)
        self.pools: dict[BackendId, UpstreamPool] = {}
        self.targets: dict[BackendId, EngineTarget] = {}
        self.handler = Handler(
            self.dispatcher,
            self.pools,
            self.fleet.resolve,
            policy.handler_settings(settings),
            on_overloaded=self._on_overloaded,
            on_lost=self._on_lost,
        )
        self.handler.strangers = self.fleet.strangers
        self.doorkeeper = Doorkeeper(settings.auth) if settings.auth.is_on else None
        self.handler.access = self.doorkeeper.access if self.doorkeeper is not None else None
        self.batches = BatchService(settings, self.handler) if settings.batch.store is not None else None
        self.grouper = grouper_of(settings.batch, self.gate)
        self.handler.grouping = self.grouper
        self.access_log = AccessLog(settings.log, enabled=settings.server.access_log, defer=_soon)
        self.tracing = tracing_of(settings.tracing)
        self.handler.observer = self.tracing
        self.metrics = Metrics(max_tenants=settings.metrics.max_tenants)
        self._decisions = DecisionLog()
        self.gate.on_cold_lane(self._on_cold_lane)
        self._fetch = HttpFetch()
        self.health = Health(
            self._fetch,
            on_event=self._on_backend_event,
            on_models=self._on_models,
            clock=self.clock,
            prepare=warm_up(self, self._fetch.post),
        )
        self.replicas = None if settings.state.url is None else Replicas(settings, self.dispatcher)
        self.loop = ControlLoop(
            self.dispatcher if self.replicas is None else self.replicas.gate,
            policy.law_maker(settings.control),
            period_s=settings.control.scrape_interval_s,
            clock=self.clock,
            bounds=policy.window_bounds(settings.control),
            on_sleep=self._on_sleep,
            on_move=self._on_move,
        )
        account = Account(self.metrics.tallies, self.access_log, self.loop, self.health, self.replicas)
        self.dispatcher.on_record, self.handler.on_turn = account.record, account.turn
        self.scraper = Scraper(
            self._fetch,
            self._on_scrape,
            interval_s=settings.control.scrape_interval_s,
            timeout_s=settings.control.scrape_timeout_s,
            clock=self.clock,
        )
        path = settings.control.state_file
        self.keeper = None if path is None else Keeper(Path(path), self.loop.dump)
        self.membership = Membership(self)
        self.historian = Historian(self)
        self.watches: list[FileWatch] = []
        """Of files that are read again when they change, from start to stop."""
        self._loop_task: asyncio.Task[None] | None = None
        self._lag_task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start with every backend down; the first probes bring them up."""
        if self.replicas is not None:
            await self.replicas.start(self.handler, self.loop)
        self.membership.start()
        self._loop_task = asyncio.get_running_loop().create_task(self.loop.run(), name="control loop")
        self._lag_task = asyncio.get_running_loop().create_task(watch_loop(self.metrics.lagged), name="loop lag")
        self.historian.start()
        if self.keeper is not None:
            self.keeper.start()
        if self.doorkeeper is not None:
            self.doorkeeper.start()
        for watch in self.watches:
            watch.start()
        if self.batches is not None:
            await self.batches.start()

    async def stop(self) -> None:
        if self.batches is not None:
            await self.batches.stop()
        if self.grouper is not None:
            await self.grouper.close()
        for watch in self.watches:
            await watch.stop()
        if self.doorkeeper is not None:
            await self.doorkeeper.stop()
        if self.keeper is not None:
            await self.keeper.stop()
        await self.historian.stop()
        await self.membership.aclose()
        await self.scraper.aclose()
        await self.health.aclose()
        await end(self._loop_task, self._lag_task)
        for pool in self.pools.values():
            pool.close()
        await self._fetch.aclose()
        if self.replicas is not None:
            await self.replicas.stop()
        self.dispatcher.close()
        if self.tracing is not None:
            await asyncio.to_thread(self.tracing.close)
        self.access_log.flush()

    def pools_up(self) -> dict[BackendId, UpstreamPool]:
        """Return the connections to backends that are up."""
        return {backend: pool for backend, pool in self.pools.items() if self.dispatcher.is_up(backend)}

    # what the data path tells

    def _on_backend_event(self, backend: BackendId, event: BackendEvent) -> None:
        self.dispatcher.backend_event(backend, event)
        if event in (BackendEvent.LOST, BackendEvent.FLUSHED):
            self.handler.background.lost(backend)

    def _on_models(self, backend: BackendId, models: Models) -> None:
        self.metrics.learn_models(str(model["id"]) for model in models)
        self.roster.learn(backend, models)

    def _on_cold_lane(self, pool: PoolId, becomes: ColdLane, p99_s: float | None) -> None:
        self._decisions.cold_lane(pool, becomes, p99_s, objective_s=self.settings.gate.hot_objective_s)

    def _on_move(self, backend: BackendId, before: float, after: float) -> None:
        self.metrics.window_moved(backend, before, after)
        if (regulator := self.loop.regulator(backend)) is not None:
            unit, reason = regulator.law.unit.value, regulator.verdict.reason
            self._decisions.moved(backend, before, after, unit=unit, reason=reason)

    def _on_sleep(self, backend: BackendId, asleep: bool) -> None:  # noqa: FBT001
        self.health.sleeping(backend, asleep=asleep)
        if asleep and self.dispatcher.in_flight(backend):
            self.handler.leave(backend)

    def _on_scrape(self, scrape: Scrape) -> None:
        self.metrics.scraped(scrape.backend, failed=scrape.sample is None)
        self.loop.scraped(scrape)

    def _on_overloaded(self, backend: BackendId) -> None:
        self.loop.refused(backend)
        if self.replicas is not None:
            self.replicas.refused(backend)

    def _on_lost(self, backend: BackendId) -> None:
        self.health.turn_ended(backend, Outcome.BACKEND_LOST)


def _soon(function: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(function)
