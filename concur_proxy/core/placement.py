"""Where a turn may run: back to where its context is while that is warm, else where there is most room."""

from __future__ import annotations

from collections.abc import Iterable

from concur_proxy.core.backend import Backend
from concur_proxy.core.queue import HeldTurn


def candidates(held: HeldTurn, backends: Iterable[Backend]) -> list[Backend]:
    """Return the backends that may take the turn, the best first; empty where none is up."""
    able = [backend for backend in backends if backend.up and backend.id not in held.avoid]
    if len(able) > 1:
        session = held.session
        origin = next((backend for backend in able if backend.id == session.backend), None)
        if origin is not None and (session.place or origin.shadow.is_warm(session.key, session.footprint)):
            return [origin]
        # Origin before its equals: where the shadow is wrong, some of the context may still be there.
        able.sort(key=lambda backend: (backend.fill(), backend is not origin))
    return able
