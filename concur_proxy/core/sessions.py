"""Live sessions: what each is doing, how large its context is, and when it may be taken for gone."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from concur_proxy.core.statistics import ThinkTime
from concur_proxy.model import BackendId, FinishReason, SessionKey

SCAN = 64
"""How many of the oldest sessions are looked at for one that may be forgotten."""


@dataclass(slots=True, eq=False)
class Session:
    """One agent's run. ``place`` and ``branches`` are what it holds of its backend's window."""

    key: SessionKey
    rule: str
    parent: SessionKey | None
    one_turn: bool
    seen_at: float
    backend: BackendId | None = None
    """Where its context is, or was last."""
    place: bool = False
    running: int = 0
    held: int = 0
    turns: int = 0
    footprint: float = 0.0
    """Prompt and completion of the last turn; 0 before the first usage."""
    charged: float = 0.0
    """Tokens that its place counts for, without what it shares."""
    prefix_key: int | None = None
    prefix_tokens: float = 0.0
    paused: bool = False
    """Was active, lost its place between two turns."""
    ended: bool = False
    """Said goodbye while a turn ran: gives its place back with it."""
    finished_at: float | None = None
    finish_reason: FinishReason | None = None
    lease_until: float = 0.0
    timer_at: float | None = None
    think: ThinkTime = field(default_factory=ThinkTime)

    @property
    def idle(self) -> bool:
        return self.place and self.running == 0


class SessionTable:
    """Bounded: the longest untouched session that neither runs nor waits makes room (invariant 9)."""

    __slots__ = ("_sessions", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._sessions: OrderedDict[SessionKey, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, key: SessionKey) -> Session | None:
        return self._sessions.get(key)

    def touch(self, session: Session) -> None:
        self._sessions[session.key] = session
        self._sessions.move_to_end(session.key)

    def drop(self, session: Session) -> None:
        self._sessions.pop(session.key, None)

    def newest_first(self) -> list[Session]:
        return list(reversed(self._sessions.values()))

    def surplus(self) -> Session | None:
        """Return a session to forget, None while there is room for all."""
        if len(self._sessions) <= self.limit:
            return None
        for _, session in zip(range(SCAN), self._sessions.values(), strict=False):
            if session.running == 0 and session.held == 0:
                return session
        return None
