"""Finds sessions and held turns for people to look at: one page of many, in parts, so that no turn waits for it."""

from __future__ import annotations

import enum
import heapq
import math
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain

from concur_proxy.core.pictures import session_state, session_view
from concur_proxy.core.report import HeldView, SessionView
from concur_proxy.core.sessions import Session, Turn
from concur_proxy.model import BackendId

PART = 1000
"""Sessions looked at without a pause: about a millisecond."""


class Sort(enum.Enum):
    """What sessions are listed by."""

    RECENT = "recent"
    """Heard of last."""
    ID = "id"
    STATE = "state"
    FOOTPRINT = "footprint"
    TURNS = "turns"
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class Query:
    """Which sessions, in which order, and which page of them."""

    text: str = ""
    """Part of their id, in any case."""
    state: str | None = None
    backend: BackendId | None = None
    sort: Sort = Sort.RECENT
    reverse: bool = False
    offset: int = 0
    limit: int = 100


@dataclass(frozen=True, slots=True)
class Found:
    """One page, and how many there are on all."""

    total: int
    sessions: list[SessionView]


class Search:
    """Keeps the page that a query asks for, while it is shown sessions, those heard of last first.

    Largest, longest and newest come first, names in the order of the alphabet; ``reverse`` turns that round. What is
    kept is no more than the pages up to the one that is asked for.
    """

    __slots__ = ("_end", "_first", "_key", "_last", "_query", "now", "total")

    def __init__(self, query: Query, *, now: float) -> None:
        self.now = now
        self.total = 0
        """Sessions that match."""
        self._query = query
        self._end = query.offset + query.limit
        self._key = None if query.sort is Sort.RECENT else _key(query.sort, now)
        self._first: list[Session] = []
        self._last: deque[Session] = deque(maxlen=self._end)

    def show(self, sessions: Iterable[Session]) -> None:
        matching = [session for session in sessions if _matches(session, self._query)]
        self.total += len(matching)
        if self._key is not None:
            select = heapq.nlargest if self._query.reverse else heapq.nsmallest
            self._first = select(self._end, chain(self._first, matching), key=self._key)
        elif self._query.reverse:
            self._last.extend(matching)
        else:
            self._first += matching[: self._end - len(self._first)]

    def found(self) -> Found:
        newest_last = self._key is None and self._query.reverse
        page = (list(reversed(self._last)) if newest_last else self._first)[self._query.offset :]
        return Found(self.total, [session_view(session, now=self.now) for session in page])


def held(turns: Iterable[Turn], *, now: float, limit: int) -> list[HeldView]:
    """Return the turns that have waited longest."""
    return [_held_view(turn, now) for turn in heapq.nsmallest(limit, turns, key=_arrival)]


def states(sessions: Iterable[Session], counts: Counter[str]) -> None:
    """Count how many sessions are in each state; those that hold nothing and want nothing are left out."""
    for session in sessions:
        counts[session_state(session)] += 1
    del counts["gone"]


def _matches(session: Session, query: Query) -> bool:
    state = session_state(session)
    if state == "gone" or query.state not in (None, state):
        return False
    if query.backend is not None and (session.origin is None or session.origin.id != query.backend):
        return False
    return not query.text or query.text.casefold() in session.key.id.casefold()


def _key(sort: Sort, now: float) -> Callable[[Session], tuple[float, str]]:
    if sort is Sort.STATE:
        return lambda session: (0.0, session_state(session))
    if sort is Sort.FOOTPRINT:
        return lambda session: (-float(session.footprint), session.key.id)
    if sort is Sort.TURNS:
        return lambda session: (-float(session.turns), session.key.id)
    if sort is Sort.IDLE:
        return lambda session: (-_idle_s(session, now), session.key.id)
    return lambda session: (0.0, session.key.id)


def _idle_s(session: Session, now: float) -> float:
    return -math.inf if session.running or session.finished_at is None else now - session.finished_at


def _arrival(turn: Turn) -> tuple[float, int]:
    return turn.arrived_at, turn.ticket


def _held_view(turn: Turn, now: float) -> HeldView:
    session = turn.session
    return HeldView(
        session=session.key,
        named=not session.one_turn,
        paused=session.was_active,
        rule=session.rule,
        pool=turn.facts.pool,
        backend=session.origin.id if session.origin is not None else None,
        waited_s=now - turn.arrived_at,
        left_s=turn.deadline - now,
        footprint_tokens=float(session.footprint),
    )
