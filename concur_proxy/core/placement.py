"""Where a turn may run: back to where its context is while that may be alive, else where there is most room.

A context is alive as long as the shadow says so. Where an engine does not tell its capacity nobody knows: the origin
comes first then while its agent was not away for long, and others take the turn where it has no room.

Among those with most room a session with nothing to come back to goes where the prefix is resident that it shares with
others. That never outweighs the load: a backend counts as one of those with most room while it is at most ``SPREAD``
fuller than the emptiest, and a session, so that equal backends stay equally loaded and a prefix that many use comes to
all of them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Final

from concur_proxy.core.backend import Backend
from concur_proxy.core.sessions import Turn

SPREAD: Final = 0.1
"""Share by which loads of equal backends may differ."""

KEPT_S: Final = 600.0
"""Time away after which a context is presumed gone from an engine that does not tell its capacity."""


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
        able.sort(key=_room)
        origin = turn.session.origin
        if origin is not None and origin in able and _may_be_kept(origin, turn):
            able.remove(origin)
            able.insert(0, origin)
        elif turn.facts.prefix_key is not None:
            _put_first(able, turn.facts.prefix_key)
    return able


def may_run(turn: Turn, backend: Backend) -> bool:
    return backend.up and backend.id not in turn.avoid and backend.pool == turn.facts.pool


def _room(backend: Backend) -> float:
    return backend.room


def _may_be_kept(origin: Backend, turn: Turn) -> bool:
    """Tell of an origin without a shadow whether its context may be alive there."""
    return origin.shadow.capacity is None and (turn.think_s is None or turn.think_s <= KEPT_S)


def _put_first(able: list[Backend], prefix_key: int) -> None:
    """Let the backend go first that has the prefix, if it is among those with most room."""
    most_room = able[0]
    for index, backend in enumerate(able):
        if not _is_near(backend, most_room):
            return
        if backend.has_prefix(prefix_key):
            able.insert(0, able.pop(index))
            return


def _is_near(backend: Backend, emptiest: Backend) -> bool:
    """Tell whether a backend is hardly fuller than the emptiest one."""
    if math.inf in (backend.brim, emptiest.brim):
        return backend.load <= (1.0 + SPREAD) * emptiest.load + backend.one
    return backend.load <= (1.0 + SPREAD) * emptiest.fill * backend.brim + backend.one
