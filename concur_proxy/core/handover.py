"""What is known of a session, as a value that moves between the gates of several replicas, and how a gate takes it in.

A session is known to one gate at a time. The one that lets it go forgets it without a word to anybody: its place moves
with it, and so does the part of the window that this place was.
"""

from __future__ import annotations

from dataclasses import dataclass

from concur_proxy.core.backend import Backend
from concur_proxy.core.sessions import Session
from concur_proxy.core.statistics import ThinkTime
from concur_proxy.model import BackendId, FinishReason, PoolId, SessionKey


@dataclass(frozen=True, slots=True)
class SessionState:
    """One session between two of its turns. Ages are in seconds before the moment at which this is said."""

    pool: PoolId
    key: SessionKey
    rule: str
    parent: SessionKey | None
    prefix_key: int | None
    origin: BackendId | None
    """Where its context is."""
    busy: bool
    """A turn of it runs or waits."""
    charge: float
    """What its place counts for in the window's unit; 0 where it has none."""
    charged_tokens: int
    lease_s: float
    """For how long it still keeps its place."""
    idle_s: float | None
    """Since its last answer; None where that was no good one."""
    footprint: int
    turns: int
    paused: bool
    resident: int = 0
    """Tokens of its context that are in the cache, as far as is known, a shared prefix apart."""
    tokens_per_byte: float | None = None
    reuse: float | None = None
    think: tuple[int, float, float] | None = None
    """Count, mean and deviation of its think times."""
    finish_reason: FinishReason | None = None
    goes_on_after_stop: bool = False


def state_of(session: Session, *, now: float) -> SessionState:
    place, think = session.place, session.think
    return SessionState(
        pool=session.pool,
        key=session.key,
        rule=session.rule,
        parent=session.parent,
        prefix_key=session.prefix_key,
        origin=session.origin.id if session.origin is not None else None,
        busy=bool(session.running or session.held),
        charge=float(place.charged(session)) if place is not None else 0.0,
        charged_tokens=session.charged,
        lease_s=max(0.0, session.lease_until - now) if session.idle else 0.0,
        idle_s=None if session.left_at is None else now - session.left_at,
        footprint=session.footprint,
        turns=session.turns,
        paused=session.paused,
        resident=session.origin.shadow.resident(session) if session.origin is not None else 0,
        tokens_per_byte=session.tokens_per_byte,
        reuse=session.reuse,
        think=None if think is None else (think.count, think.mean, think.deviation),
        finish_reason=session.finish_reason,
        goes_on_after_stop=session.goes_on_after_stop,
    )


def learn(session: Session, state: SessionState, origin: Backend | None, *, now: float) -> None:
    """Know of a session what another gate has known; of turns that came here first, what they have taught stays."""
    if session.origin is None:  # else it is counted under the prefix that its turns here have told
        session.rule, session.parent = state.rule, state.parent
        session.prefix_key = state.prefix_key
    if session.turns == 0:
        session.footprint, session.turns = state.footprint, state.turns
        session.tokens_per_byte, session.reuse = state.tokens_per_byte, state.reuse
        session.finish_reason = state.finish_reason
        session.goes_on_after_stop = state.goes_on_after_stop
        session.think = _think_time(state.think)
        if state.idle_s is not None:
            session.left_at = now - state.idle_s
            session.finished_at = session.left_at
    if session.origin is None and origin is not None:
        session.origin = origin
        session.computed_before = -1  # what other replicas' turns have computed since is not known here


def _think_time(state: tuple[int, float, float] | None) -> ThinkTime | None:
    if state is None:
        return None
    think = ThinkTime()
    think.count, think.mean, think.deviation = state
    return think
