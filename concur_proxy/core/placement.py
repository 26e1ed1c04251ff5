"""Where a turn may run: back to where its context is while that is warm, else where there is most room."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from concur_proxy.core.backend import Backend
from concur_proxy.core.sessions import Turn


def home(turn: Turn) -> Backend | None:
    """Return the only backend for a turn: where its session is active, or where its context is still warm."""
    session = turn.session
    origin = session.place or session.origin
    if origin is None or not may_run(turn, origin):
        return None
    return origin if session.place is origin or origin.shadow.is_warm(session) else None


def candidates(turn: Turn, backends: Collection[Backend]) -> Sequence[Backend]:
    """Return those of a pool's ``backends`` that may take a turn, the best first; empty where none may."""
    only = home(turn)
    if only is not None:
        return (only,) if only in backends else ()
    able = [backend for backend in backends if may_run(turn, backend)]
    if len(able) > 1:
        able.sort(key=lambda backend: _rank(backend, turn.session.origin))
    return able


def may_run(turn: Turn, backend: Backend) -> bool:
    return backend.up and backend.id not in turn.avoid and backend.pool == turn.facts.pool


def _rank(backend: Backend, origin: Backend | None) -> tuple[float, int]:
    if backend is origin and backend.shadow.capacity is None:
        return -1.0, 0  # nobody knows whether the context is still alive there: it may be
    return backend.fill, backend.running
