"""What the management API may do with a running proxy."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from concur_proxy import __version__
from concur_proxy.admin import changes
from concur_proxy.admin.past import Past
from concur_proxy.admin.reports import (
    BackendReport,
    HeldReport,
    HotLaneReport,
    Queue,
    SessionList,
    SessionReport,
    SessionState,
    SignalsReport,
    StatusReport,
)
from concur_proxy.config import BackendSettings, Settings
from concur_proxy.core.listing import Query
from concur_proxy.core.regulator import Bounds
from concur_proxy.core.report import BackendSnapshot, GateSnapshot, HeldView, SessionView
from concur_proxy.model import BackendId, Signals
from concur_proxy.runtime import policy
from concur_proxy.runtime.census import Census, unhurried
from concur_proxy.windows.base import WindowView

if TYPE_CHECKING:
    from concur_proxy.runtime.node import Node

logger = logging.getLogger(__name__)

GATE_NAMES = frozenset(changes.GATE)
BOUND_NAMES = frozenset(changes.BOUNDS)
LAW_NAMES = frozenset(changes.CONTROL) - BOUND_NAMES


class Operations:
    """Implements ``admin.port.AdminPort`` over a node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        gate = node.gate
        self._census = Census(gate.session_states, size=lambda: gate.session_count, clock=node.clock)

    def settings(self) -> Settings:
        return self._node.settings

    def status(self) -> StatusReport:
        node, now = self._node, self._node.clock()
        books = node.gate.snapshot(now=now)
        states = self._census.states()
        described = node.loop.status(now=now)
        return StatusReport(
            version=__version__,
            uptime_s=now - node.started_at,
            mode=node.settings.gate.mode,
            law=node.settings.control.law.value,
            held=books.held,
            longest_wait_s=books.longest_wait_s,
            hot_lanes=self._hot_lanes(books),
            sessions={state: states.get(state.value, 0) for state in SessionState},
            turns={
                "arrived": books.arrived,
                "admitted": books.admitted,
                "finished": sum(books.finished.values()),
                "refused": sum(books.refused.values()),
                "abandoned": books.abandoned,
            },
            backends=[self._backend(books.backends[name], described[name]) for name in node.targets],
        )

    def _hot_lanes(self, books: GateSnapshot) -> list[HotLaneReport]:
        objective_s = self._node.settings.gate.hot_objective_s
        return [
            HotLaneReport(pool=pool, p99_s=lane.p99_s, objective_s=objective_s, batch=lane.cold_lane.value)
            for pool, lane in books.hot_lanes.items()
        ]

    def _backend(self, books: BackendSnapshot, control: dict[str, Any]) -> BackendReport:
        node = self._node
        health = node.health.report(books.id)
        return BackendReport(
            name=books.id,
            url=node.targets[books.id].base_url,
            state=health.state if health else "unknown",
            problem=health.reason or health.models_problem if health else None,
            engine=control["kind"],
            unit=books.unit.value,
            window=books.window,
            window_min=books.minimum,
            window_max=books.maximum,
            hard=books.hard,
            reason=control["reason"],
            law=control["law"],
            active=books.active,
            running=books.running,
            held=books.held,
            idle=books.idle,
            footprint_tokens=books.footprint_tokens,
            capacity_tokens=books.capacity_tokens,
            recent_hit_rate=node.metrics.spent(books.id).recent_hit_rate,
            keepalive_s=node.settings.upstream.keepalive_s,
            connection_retries=node.pools[books.id].retries,
            signals=self._signals(node.loop.signals(books.id), control),
        )

    def _signals(self, signals: Signals | None, control: dict[str, Any]) -> SignalsReport:
        age = control["sample_age_s"]
        return SignalsReport(
            age_s=age,
            stale=age is None or age > self._node.settings.control.stale_after_s,
            kv_usage=signals.kv_usage if signals else None,
            hit_rate=signals.hit_rate if signals else None,
            running=signals.running if signals else None,
            waiting=signals.waiting if signals else None,
            problem=control["scrape_error"],
        )

    async def sessions(self, query: Query) -> SessionList:
        found = await unhurried(self._node.gate.find_sessions(query, now=self._node.clock()))
        return SessionList(total=found.total, sessions=[_report(view) for view in found.sessions])

    def queue(self, *, limit: int) -> Queue:
        node = self._node
        turns = node.gate.held_turns(now=node.clock(), limit=limit)
        return Queue(total=node.dispatcher.held, turns=[_held(turn) for turn in turns])

    def past(self) -> Past:
        node = self._node
        return Past(node.historian.history, node.clock(), time.time(), frozenset(node.targets))

    def ending(self) -> bool:
        return self._node.handler.shutting_down

    def end_sessions(self, session_id: str, *, namespace: str | None) -> int:
        node = self._node
        keys = node.gate.keys_of(session_id, namespace)
        for key in keys:
            node.dispatcher.end_session(key)
        return len(keys)

    def bounds(self) -> list[tuple[float, float]]:
        books = self._node.gate.snapshot(now=self._node.clock())
        return [(backend.minimum, backend.maximum) for backend in books.backends.values()]

    def change(self, change: changes.Change) -> None:
        """Put a checked change in force."""
        node, now = self._node, self._node.settings.control
        if policy.unit(change.settings.control) is not policy.unit(now):
            # Bounds that shares have led to are in the unit of the law before.
            node.loop.set_bounds(policy.window_bounds(change.settings.control))
        if change.names & LAW_NAMES:
            node.loop.set_law(policy.law_maker(change.settings.control))
        if change.names & BOUND_NAMES:
            node.loop.set_bounds(policy.window_bounds(change.settings.control), of=lambda view: _bounds(change, view))
        if change.names & GATE_NAMES:
            node.dispatcher.set_policy(policy.gate_policy(change.settings.gate))
        if "retry_after_s" in change.names:
            node.handler.settings = replace(node.handler.settings, retry_after_s=change.settings.gate.retry_after_s)
        node.settings = change.settings
        logger.info("changed by the management API: %s", ", ".join(sorted(change.names)))

    # backends by hand

    def add_backend(self, settings: BackendSettings) -> None:
        self._node.membership.add(settings)

    def remove_backend(self, name: str) -> bool:
        return self._node.membership.remove(BackendId(name))

    def drain_backend(self, name: str, *, drained: bool) -> bool:
        return self._node.membership.members.drain(BackendId(name), drained=drained)


def _bounds(change: changes.Change, view: WindowView) -> Bounds:
    return Bounds(*changes.bounds(change, view))


def _held(turn: HeldView) -> HeldReport:
    return HeldReport(
        session=turn.session.id if turn.named else None,
        state=SessionState.PAUSED if turn.paused else SessionState.HELD,
        rule=turn.rule,
        backend=turn.backend,
        waited_s=turn.waited_s,
        left_s=turn.left_s,
        footprint_tokens=turn.footprint_tokens,
    )


def _report(view: SessionView) -> SessionReport:
    return SessionReport(
        id=view.key.id,
        state=SessionState(view.state),
        rule=view.rule,
        backend=view.backend,
        footprint_tokens=view.footprint_tokens,
        turns=view.turns,
        idle_s=view.idle_s,
        lease_s=view.lease_s,
        parent=view.parent.id if view.parent else None,
    )
