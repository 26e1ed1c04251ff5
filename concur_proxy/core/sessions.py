"""Sessions and their turns: what each is doing, how large its context is, what it holds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from concur_proxy.core.statistics import ThinkTime
from concur_proxy.model import BackendId, FinishReason, Lease, PoolId, SessionKey, TurnFacts

if TYPE_CHECKING:
    from concur_proxy.core.backend import Backend
    from concur_proxy.core.lane import Entry, Lane
    from concur_proxy.core.limits import Account

_Name = tuple[PoolId, str, str]
"""Pool, namespace and id: a tuple of texts is found faster than one of values."""

SCAN: Final = 64
"""How many of the oldest sessions are looked at for one that may be forgotten."""


@dataclass(init=False, slots=True, eq=False)
class Turn:
    """One turn from its arrival to its end; ticket and place in line stay with it when it is put back."""

    ticket: int
    facts: TurnFacts
    session: Session
    arrived_at: float
    first_arrived_at: float
    """Of the first try, where this is a retry."""
    deadline: float
    avoid: frozenset[BackendId]
    think_s: float | None
    wakes_at: float | None

    # while held
    not_before: float
    lane: Lane | None
    """The line it stands in; None while it may not run yet."""
    entry: Entry | None
    """Its place in line; kept while it is taken out to be looked at."""
    prepaid: float
    """Tokens that its tenant was charged before it ran."""
    donors: tuple[Session, ...]
    """Relatives whose idle place it may take."""
    account: Account | None
    """Of its tenant, where that has limits."""
    topic: int | None
    """What it is about, where somebody has found out."""

    # while running
    lease: Lease | None
    backend: Backend | None
    is_branch: bool
    """Runs beside the turn that rides the session's place, in room of its own."""
    tokens: int
    """What it counts for, a shared prefix apart."""
    was_warm: bool
    """The shadow's belief when it started."""
    history: int
    """Footprint of the session when it started here; 0 where the context is not from this backend, or not known."""

    def __init__(
        self,
        ticket: int,
        facts: TurnFacts,
        session: Session,
        arrived_at: float,
        first_arrived_at: float,
        deadline: float,
        avoid: frozenset[BackendId],
        think_s: float | None = None,
    ) -> None:
        self.ticket = ticket
        self.facts = facts
        self.session = session
        self.arrived_at = arrived_at
        self.first_arrived_at = first_arrived_at
        self.deadline = deadline
        self.avoid = avoid
        self.think_s = think_s
        self.wakes_at = None
        self.not_before = 0.0
        self.lane = None
        self.entry = None
        self.prepaid = 0.0
        self.donors = ()
        self.account = None
        self.topic = None
        self.lease = None
        self.backend = None
        self.is_branch = False
        self.tokens = 0
        self.was_warm = False
        self.history = 0


NOBODY: Final[dict[int, Turn]] = {}
"""Stands for the turns that wait where none do, as of almost all sessions; never written to."""


@dataclass(slots=True, eq=False)
class Session:
    """One agent's run within one pool. While turns run, exactly one of them rides the place."""

    key: SessionKey
    pool: PoolId
    rule: str = "anonymous"
    parent: SessionKey | None = None
    prefix_key: int | None = None
    one_turn: bool = False
    """Made for a turn without a session: in no table, gone with it."""

    # what it holds
    origin: Backend | None = None
    """Where its context is, or was last."""
    place: Backend | None = None
    """Where it holds a place in the window; the same as ``origin``."""
    charged: int = 0
    """Tokens that its place counts for, a shared prefix apart."""
    running: tuple[Turn, ...] = ()
    held: dict[int, Turn] = field(default_factory=lambda: NOBODY)
    paused: bool = False
    """Was active, lost its place between two turns."""
    cold: bool = False
    """Batch work: leaves a part of the window to others, where lanes are told apart. Fixed while it waits or runs."""
    ended: bool = False
    """Has said goodbye: gives its place back with its last turn."""
    heirs: dict[int, Turn] | None = None
    """Held turns of relatives that take its place when it falls idle."""
    borrower: Session | None = None
    """The relative that has taken its place."""

    # what is known of it
    turns: int = 0
    footprint: int = 0
    """Prompt and completion of its last turn; 0 before the first success."""
    tokens_per_byte: float | None = None
    reuse: float | None = None
    think: ThinkTime | None = None
    left_at: float | None = None
    """When its last answer ended, until its next turn arrives."""
    finished_at: float | None = None
    finish_reason: FinishReason | None = None
    computed_before: int = 0
    """``Backend.computed`` when its last turn ended."""
    goes_on_after_stop: bool = False
    """Has come back after a final answer before."""
    overdue: bool = False
    """Has been away for so long that it counts among those who do not come back."""
    lease_until: float = 0.0
    wakes_at: float | None = None

    @property
    def idle(self) -> bool:
        """Between turns, and active."""
        return self.place is not None and not self.running

    @property
    def is_active(self) -> bool:
        """Holds a place, or wants one."""
        return self.place is not None or bool(self.running) or bool(self.held)

    @property
    def was_active(self) -> bool:
        """Has run before: where it waits, it is paused, not new."""
        return self.paused or self.footprint > 0

    @property
    def is_over(self) -> bool:
        """Nothing will come of it any more."""
        return (self.one_turn or self.ended) and not self.running and not self.held


class SessionTable:
    """Bounded: the session untouched for longest that neither runs nor waits makes room (invariant 9)."""

    __slots__ = ("_sessions", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._sessions: OrderedDict[_Name, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, pool: PoolId, key: SessionKey) -> Session | None:
        return self._sessions.get((pool, key.namespace, key.id))

    def seen(self, pool: PoolId, key: SessionKey) -> Session | None:
        """Return a session that is heard of now: it becomes the newest."""
        name = (pool, key.namespace, key.id)
        session = self._sessions.get(name)
        if session is not None:
            self._sessions.move_to_end(name)
        return session

    def keep(self, session: Session) -> None:
        """Keep a session as the newest."""
        name = _name(session)
        self._sessions[name] = session
        self._sessions.move_to_end(name)

    def drop(self, session: Session) -> None:
        name = _name(session)
        if self._sessions.get(name) is session:
            del self._sessions[name]

    def move(self, session: Session, pool: PoolId) -> bool:
        """Keep a session under another pool; False where there is one of its name already."""
        if self.get(pool, session.key) is not None:
            return False
        self.drop(session)
        session.pool = pool
        self.keep(session)
        return True

    def newest_first(self) -> Iterator[Session]:
        return reversed(self._sessions.values())

    def surplus(self) -> Session | None:
        """Return a session to forget, None while there is room for all; busy ones and the newest are passed over."""
        if len(self._sessions) <= self.limit:
            return None
        for _ in range(min(SCAN, len(self._sessions) - 1)):
            session = next(iter(self._sessions.values()))
            if not session.running and not session.held:
                return session
            self.keep(session)
        return None


def _name(session: Session) -> _Name:
    return session.pool, session.key.namespace, session.key.id
