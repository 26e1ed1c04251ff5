"""One KV pool as the gate sees it: its window, who holds a place in it, and what is running."""

from __future__ import annotations

import math
from collections import OrderedDict

from concur_proxy.core.sessions import Session
from concur_proxy.core.shadow import Shadow
from concur_proxy.core.statistics import Mean, Peak, ThinkTime
from concur_proxy.model import BackendId, PoolId, SessionKey
from concur_proxy.windows.base import Unit

PREFIXES = 1024
PEAK_HORIZON_S = 120.0
EPSILON = 1e-6


class Backend:
    """Bookkeeping without decisions; every place given is counted at once, so that a burst cannot overshoot."""

    __slots__ = (
        "_prefix_users",
        "bound",
        "branch_tokens",
        "branches",
        "hard",
        "hits_expected",
        "hits_seen",
        "id",
        "idle",
        "known_prefixes",
        "maximum",
        "mean_footprint",
        "minimum",
        "peak_running",
        "places",
        "pool",
        "record_at",
        "removed",
        "running",
        "shadow",
        "think",
        "tokens",
        "unit",
        "up",
        "window",
    )

    def __init__(self, backend: BackendId, pool: PoolId, unit: Unit) -> None:
        self.id = backend
        self.pool = pool
        self.unit = unit
        self.window = 0.0
        self.minimum, self.maximum = 1.0, math.inf
        self.hard = False
        self.up = False
        self.removed = False
        self.bound = False
        self.running = 0
        self.places: dict[SessionKey, Session] = {}
        self.idle: OrderedDict[SessionKey, Session] = OrderedDict()
        """Idle places, the one released longest ago first."""
        self.branches = 0
        self.branch_tokens = 0.0
        self.tokens = 0.0
        """What places and shared prefixes occupy."""
        self._prefix_users: dict[int, list[float]] = {}
        self.known_prefixes: OrderedDict[int, float] = OrderedDict()
        self.shadow = Shadow()
        self.think = ThinkTime()
        self.mean_footprint = Mean(0.0)
        self.peak_running = Peak(PEAK_HORIZON_S)
        self.record_at: float | None = None
        self.hits_seen = 0
        self.hits_expected = 0

    @property
    def load(self) -> float:
        """What is active, in the window's unit."""
        if self.unit is Unit.SESSIONS:
            return float(len(self.places) + self.branches)
        return self.tokens + self.branch_tokens

    @property
    def footprint(self) -> float:
        return self.tokens + self.branch_tokens

    def charge(self, tokens: float) -> float:
        """Return what a turn of ``tokens`` counts for in the window's unit."""
        return 1.0 if self.unit is Unit.SESSIONS else tokens

    def has_room(self, charge: float) -> bool:
        return self.load + charge <= self.window + EPSILON

    def is_over(self) -> bool:
        return self.load > self.window + EPSILON

    def fill(self) -> float:
        """Return how full the window is; unlimited ones compare by what runs."""
        return self.load / self.window if math.isfinite(self.window) else self.running * 1e-9

    def set_window(self, window: float) -> None:
        """Keep the window between its bounds (invariant 5)."""
        self.window = min(max(window, self.minimum), self.maximum)

    def own_tokens(self, session: Session, footprint: float) -> float:
        """Return the footprint without the prefix that others share, as far as it is known."""
        return max(1.0, footprint - self.prefix_of(session))

    def prefix_of(self, session: Session) -> float:
        if session.prefix_key is None:
            return 0.0
        return session.prefix_tokens or self.known_prefixes.get(session.prefix_key, 0.0)

    def give_place(self, session: Session, footprint: float) -> None:
        session.place, session.backend, session.paused = True, self.id, False
        session.prefix_tokens = self.prefix_of(session)
        session.charged = self.own_tokens(session, footprint)
        self.places[session.key] = session
        self.tokens += session.charged + self._join_prefix(session)

    def take_place(self, session: Session) -> None:
        session.place = False
        del self.places[session.key]
        self.idle.pop(session.key, None)
        self.tokens -= session.charged + self._leave_prefix(session)
        if not self.places:
            self.tokens = 0.0  # what rounding has left

    def recharge(self, session: Session, footprint: float) -> None:
        """The session's footprint is known better now."""
        if session.place:
            charged = self.own_tokens(session, footprint)
            self.tokens += charged - session.charged
            session.charged = charged

    def learn_prefix(self, session: Session, tokens: float) -> None:
        """The first turn of a session found this much in the cache: it is shared with others."""
        if session.prefix_key is None or tokens <= 0.0:
            return
        self.known_prefixes[session.prefix_key] = tokens
        self.known_prefixes.move_to_end(session.prefix_key)
        if len(self.known_prefixes) > PREFIXES:
            self.known_prefixes.popitem(last=False)
        if session.place:
            self.tokens -= self._leave_prefix(session)
            session.prefix_tokens = tokens
            self.tokens += self._join_prefix(session)

    def _join_prefix(self, session: Session) -> float:
        if session.prefix_key is None or not session.prefix_tokens:
            return 0.0
        users = self._prefix_users.setdefault(session.prefix_key, [0.0, session.prefix_tokens])
        users[0] += 1.0
        return users[1] if users[0] == 1.0 else 0.0

    def _leave_prefix(self, session: Session) -> float:
        if session.prefix_key is None or not session.prefix_tokens:
            return 0.0
        users = self._prefix_users[session.prefix_key]
        users[0] -= 1.0
        if users[0] > 0.0:
            return 0.0
        del self._prefix_users[session.prefix_key]
        return users[1]
