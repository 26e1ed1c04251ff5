"""Finds sessions and held turns for people to look at: one page of many, in one pass, whatever their number."""

from __future__ import annotations

import enum
import heapq
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from concur_proxy.core.pictures import session_state, session_view
from concur_proxy.core.report import HeldView, SessionView
from concur_proxy.core.sessions import Session, Turn
from concur_proxy.model import BackendId


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


def find(sessions: Iterable[Session], query: Query, *, now: float) -> Found:
    """Return the page of ``sessions`` that is asked for; they come with those heard of last first.

    Largest, longest and newest come first, names in the order of the alphabet; ``reverse`` turns that round.
    """
    matching = _matching(sessions, query)
    end = query.offset + query.limit
    counted = _Counted()
    page = _first(counted.over(matching), query, end, now)[query.offset :]
    return Found(counted.number, [session_view(session, now=now) for session in page])


def held(turns: Iterable[Turn], *, now: float, limit: int) -> list[HeldView]:
    """Return the turns that have waited longest."""
    return [_held_view(turn, now) for turn in heapq.nsmallest(limit, turns, key=_arrival)]


def states(sessions: Iterable[Session]) -> dict[str, int]:
    """Return how many sessions are in each state; those that hold nothing and want nothing are left out."""
    counts: dict[str, int] = {}
    for session in sessions:
        state = session_state(session)
        counts[state] = counts.get(state, 0) + 1
    counts.pop("gone", None)
    return counts


class _Counted:
    """Counts what passes through."""

    def __init__(self) -> None:
        self.number = 0

    def over(self, sessions: Iterable[Session]) -> Iterator[Session]:
        for session in sessions:
            self.number += 1
            yield session


def _matching(sessions: Iterable[Session], query: Query) -> Iterator[Session]:
    text = query.text.casefold()
    for session in sessions:
        state = session_state(session)
        if state == "gone" or query.state not in (None, state):
            continue
        if query.backend is not None and (session.origin is None or session.origin.id != query.backend):
            continue
        if not text or text in session.key.id.casefold():
            yield session


def _first(sessions: Iterator[Session], query: Query, end: int, now: float) -> list[Session]:
    if query.sort is Sort.RECENT and not query.reverse:
        first = list(islice(sessions, end))
        for _ in sessions:  # the rest is only counted
            pass
        return first
    if query.sort is Sort.RECENT:
        return list(reversed(list(sessions)))[:end]
    select = heapq.nlargest if query.reverse else heapq.nsmallest
    return select(end, sessions, key=_key(query.sort, now))


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
