"""Draws the pictures of ``report`` from the gate's state."""

from __future__ import annotations

import math
from collections.abc import Iterable

from concur_proxy.core.backend import Backend
from concur_proxy.core.pools import Pool
from concur_proxy.core.report import BackendSnapshot, HotLane, SessionView
from concur_proxy.core.sessions import Session
from concur_proxy.model import PoolId
from concur_proxy.windows.base import WindowView


def window_view(backend: Backend, *, held: int, now: float) -> WindowView:
    active = backend.active
    return WindowView(
        window=backend.window,
        minimum=backend.minimum,
        maximum=backend.maximum,
        active=active,
        running=backend.running,
        held=held,
        bound=backend.bound,
        footprint_tokens=float(backend.footprint),
        typical_footprint_tokens=backend.footprint / active if active else (backend.typical.value or None),
        records_age_s=math.inf if backend.record_at is None else now - backend.record_at,
        shared_tokens=float(backend.shared_tokens),
        running_tokens=float(backend.running_tokens),
        busy_s=backend.busy_s(now),
        cache_tokens=backend.shadow.limit,
        departed=backend.departed,
    )


def backend_snapshot(backend: Backend, *, held: int) -> BackendSnapshot:
    return BackendSnapshot(
        id=backend.id,
        pool=backend.pool,
        up=backend.up,
        unit=backend.unit,
        window=backend.window,
        minimum=backend.minimum,
        maximum=backend.maximum,
        hard=backend.hard,
        active=backend.active,
        running=backend.running,
        idle=len(backend.idle),
        held=held,
        footprint_tokens=float(backend.footprint),
        capacity_tokens=backend.shadow.capacity,
        cached_tokens=backend.hits_seen,
        expected_cached_tokens=backend.hits_expected,
        cache_tokens=backend.shadow.limit,
    )


def hot_lanes(pools: Iterable[Pool]) -> dict[PoolId, HotLane]:
    return {pool.id: HotLane(pool.breaker.state, pool.breaker.p99_s) for pool in pools if pool.breaker is not None}


def session_view(session: Session, *, now: float) -> SessionView:
    return SessionView(
        key=session.key,
        state=session_state(session),
        backend=session.origin.id if session.origin is not None else None,
        turns=session.turns,
        footprint_tokens=float(session.footprint),
        idle_s=None if session.running or session.finished_at is None else now - session.finished_at,
        lease_s=session.lease_until - now if session.idle else None,
        rule=session.rule,
        parent=session.parent,
    )


def session_state(session: Session) -> str:
    """Return what a session is doing; "gone" holds nothing and wants nothing, but is remembered."""
    if session.running:
        return "running"
    if session.place is not None:
        return "idle"
    if session.paused:
        return "paused"
    return "held" if session.held else "gone"
