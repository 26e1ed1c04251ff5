"""What is known of a turn when it comes: its session, its place in line, how long its agent has thought."""

from __future__ import annotations

from itertools import chain
from typing import Final

from concur_proxy.core.places import Places
from concur_proxy.core.policy import GatePolicy
from concur_proxy.core.retries import FirstTries
from concur_proxy.core.sessions import Session, SessionTable, Turn
from concur_proxy.core.statistics import ThinkTime
from concur_proxy.model import BackendId, FinishReason, SessionKey, TurnFacts

READ_TIMEOUT_SHARE: Final = 0.9
"""Refused in time for the client to hear it."""

RETRY_AGE: Final = 2.0
"""Tries older than this many longest waits are forgotten."""


class Intake:
    """Makes turns; keeps the sessions and the tries that failed."""

    __slots__ = ("_places", "_tickets", "sessions", "tries")

    def __init__(self, policy: GatePolicy, places: Places) -> None:
        self._places = places
        self._tickets = 0
        self.sessions = SessionTable(policy.max_sessions)
        self.tries = FirstTries()

    def ticket(self) -> int:
        """Return the ticket of a turn that arrives."""
        self._tickets += 1
        return self._tickets

    def turn(self, facts: TurnFacts, avoid: frozenset[BackendId], *, now: float) -> Turn:
        """Give a turn its ticket, its session and its first arrival."""
        ticket = self.ticket()
        max_wait = self._places.policy.max_wait_s
        session = self._session(facts)
        if session.place is None and not session.running and not session.held:
            session.cold = facts.urgency < 0
        first = self.tries.recall(facts, now=now, max_age_s=RETRY_AGE * max_wait)
        wait = max_wait
        if facts.read_timeout_s is not None:
            wait = min(wait, READ_TIMEOUT_SHARE * facts.read_timeout_s)
        think = _think_time(session, now) if session.left_at is not None else None
        return Turn(ticket, facts, session, now, first, now + wait, avoid, think)

    def came_back(self, session: Session) -> None:
        """Learn how long its agent was away, where the turn was here before what others know of the session."""
        turn = next(chain(session.held.values(), session.running), None)
        if turn is not None and session.left_at is not None:
            turn.think_s = _think_time(session, turn.arrived_at)

    def forget_surplus(self) -> bool:
        """Keep the number of sessions within its bound; True where a place has become free by that."""
        freed = False
        while (session := self.sessions.surplus()) is not None:
            freed = freed or session.place is not None
            self.forget(session)
        return freed

    def forget(self, session: Session) -> None:
        self._places.dismiss(session)
        self.sessions.drop(session)

    def forget_if_nothing(self, session: Session) -> None:
        """Forget a session that is over, or that has never come to anything."""
        if session.is_over or (session.origin is None and not session.held):
            self.forget(session)

    def relatives(self, session: Session) -> tuple[Session, ...]:
        """Return those whose idle place a session may take: its parent, and who has taken its own."""
        if session.parent is None and session.borrower is None:
            return ()
        found = []
        if session.parent is not None:
            parent = self.sessions.get(session.pool, session.parent)
            if parent is not None and parent is not session:
                found.append(parent)
        if session.borrower is not None:
            found.append(session.borrower)
        return tuple(found)

    def _session(self, facts: TurnFacts) -> Session:
        if facts.session is None:
            key = SessionKey("", f"turn-{self._tickets}")
            return Session(key, facts.pool, facts.rule, facts.parent, facts.prefix_key, one_turn=True)
        session = self.sessions.seen(facts.pool, facts.session)
        if session is None:
            session = Session(facts.session, facts.pool, facts.rule, facts.parent, facts.prefix_key)
            self.sessions.keep(session)
        return session


def _think_time(session: Session, now: float) -> float:
    """Learn how long the agent was away."""
    assert session.left_at is not None
    think = max(0.0, now - session.left_at)
    session.left_at = None
    if session.origin is not None:
        session.origin.returns.came_back(session)
    if session.think is None:
        session.think = ThinkTime()
    session.think.add(think)
    if session.origin is not None:
        session.origin.think.add(think)
    if session.finish_reason is FinishReason.STOP:
        session.goes_on_after_stop = True
    return think
