"""One KV pool as the gate sees it: its window, who holds a place in it, and what is running."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Final

from concur_proxy.core.prefill import PrefillTime
from concur_proxy.core.returns import Returns
from concur_proxy.core.sessions import Session, Turn
from concur_proxy.core.shadow import Shadow
from concur_proxy.core.shared import PrefixSizes, SharedTokens
from concur_proxy.core.statistics import Level, Mean, Peak, ThinkTime
from concur_proxy.model import BackendId, PoolId
from concur_proxy.windows.base import Unit

PEAK_HORIZON_S: Final = 120.0
SESSIONS: Final = Unit.SESSIONS  # of a class that is not compiled: each look into it would cost as much as the rest
STARVED: Final = 0.25
"""An engine that runs less than this share of the best it could run is starved."""

ROUNDING: Final = 1e-6

HOT_HORIZON_S: Final = 300.0
"""Time over which the need of hot sessions is learned."""

HOT_DEVIATIONS: Final = 2.5
"""What is kept for them beyond their mean, in mean deviations: they hardly ever need more."""

MOST_KEPT: Final = 0.75
"""Part of a window that their need may come to: cold sessions always find the rest."""

TIE: Final = 1e-12
"""What a turn that runs weighs against a window that is full."""

FULL: Final = 0.95
"""Part of the cache beyond which no cold session is let in: contexts of those that are let in grow."""

UNDISTURBED: Final = 0.5
"""Share of the cache beside what runs that may have been filled anew before an idle context is in any danger."""


def _charged(session: Session) -> int:
    return session.charged


class Backend:
    """Bookkeeping without decisions; whatever is let in counts at once, so that a burst cannot overshoot."""

    __slots__ = (
        "_busy_from",
        "_busy_s",
        "_cold",
        "_cold_tokens",
        "_hot",
        "_idle_tokens",
        "_overfull_at",
        "_peak_running",
        "_shared",
        "_starved_from",
        "_tokens",
        "bound",
        "branches",
        "busy",
        "computed",
        "departed",
        "elsewhere",
        "hard",
        "has_lanes",
        "hits_expected",
        "hits_seen",
        "hot_share",
        "id",
        "idle",
        "idle_cold",
        "maximum",
        "may_have_room",
        "minimum",
        "pool",
        "prefill",
        "prefixes",
        "record_at",
        "returns",
        "running",
        "running_tokens",
        "shadow",
        "think",
        "typical",
        "unit",
        "up",
        "vacated",
        "vacated_tokens",
        "whole",
        "window",
    )

    def __init__(self, backend: BackendId, pool: PoolId, unit: Unit, *, minimum: float, maximum: float) -> None:
        self.id = backend
        self.pool = pool
        self.unit = unit
        self.minimum, self.maximum = minimum, maximum
        self.window = minimum
        self.whole = 0.0
        """The window of all replicas, where ``window`` is this one's share of it; else 0."""
        self.elsewhere = 0
        """Turns that other replicas run there."""
        self.may_have_room = False
        """Other replicas may have room to give: nobody need lose a place for a turn that waits."""
        self.hard = False
        self.up = False
        self.bound = False
        """The window has kept a turn waiting since it was last set."""
        self.running = 0
        self.running_tokens = 0
        """Of the turns that run, a shared prefix apart."""
        # Vacated: places that idle sessions have lost, whose room is not free yet, as another replica may have them.
        # Branches: turns beside the one that rides their session's place, and these.
        self.branches = self.vacated = self.vacated_tokens = 0
        self.has_lanes = False
        """Cold sessions are told from hot ones."""
        self.hot_share = 0.0
        """Part of the window that cold sessions leave to hot ones at least."""
        self._hot = Level(HOT_HORIZON_S)
        self._cold = self._cold_tokens = 0
        self.busy: set[Session] = set()
        """Sessions with a place and something running."""
        self.idle: OrderedDict[Session, None] = OrderedDict()
        """Sessions with a place and nothing running, the one released longest ago first."""
        self.idle_cold: OrderedDict[Session, None] = OrderedDict()
        """Those of them that are cold."""
        self.prefixes = PrefixSizes()
        self.shadow = Shadow(self.prefixes)
        self.think = ThinkTime()
        self.returns = Returns(self.think)
        self.prefill = PrefillTime()
        self.typical = Mean(0.0)
        """Tokens that a session counts for after a turn."""
        self.record_at: float | None = None
        self._overfull_at = -1
        self.departed = 0
        """Sessions with a place that have ended, or whose lease has."""
        self.computed = 0
        """Tokens that finished turns have put into the cache, ever."""
        self.hits_seen = self.hits_expected = 0
        self._shared = SharedTokens()
        self._tokens = self._idle_tokens = 0
        self._peak_running = Peak(PEAK_HORIZON_S)
        self._starved_from: float | None = None
        self._busy_s = self._busy_from = 0.0

    # the window

    @property
    def footprint(self) -> int:
        """Tokens that places and branches occupy, shared prefixes once."""
        return self._tokens + self._shared.tokens

    @property
    def shared_tokens(self) -> int:
        """The part of it that is shared prefixes."""
        return self._shared.tokens

    @property
    def load(self) -> int:
        """What is active, in the window's unit."""
        return self.active + self.branches if self.unit is SESSIONS else self.footprint

    @property
    def idle_load(self) -> int:
        """The part of the load that idle sessions are."""
        return len(self.idle) if self.unit is SESSIONS else self._idle_tokens

    @property
    def brim(self) -> float:
        """What it is full at: the window, or the cache where that is smaller.

        A law that holds nobody gives as much as is active, and more: by windows alone whoever has most looked emptiest.
        """
        limit = self.shadow.limit if self.unit is Unit.TOKENS else None
        return self.window if limit is None else min(self.window, limit)

    @property
    def fill(self) -> float:
        """How full it is; a window without end is always empty."""
        brim = self.brim
        return self.load / brim if 0.0 < brim < math.inf else 0.0

    @property
    def room(self) -> float:
        """How full it is, for sorting: the emptiest first; where a window has no end, by what is active.

        One number, since a hundred of them are sorted for a turn; of two alike, the one goes first that runs less.
        """
        brim = self.brim
        fill = self.load / brim if 0.0 < brim < math.inf else -1.0 / (1.0 + self.load)
        return fill + TIE * self.running

    @property
    def one(self) -> float:
        """What a usual session counts for, in the window's unit."""
        return 1.0 if self.unit is SESSIONS else self.typical.value

    def has_prefix(self, key: int) -> bool:
        """Tell whether a prefix that sessions share is resident: some that use it are active, or left it behind."""
        return key in self._shared or self.shadow.has_prefix(key)

    @property
    def is_uniform(self) -> bool:
        """All turns without a place count alike: where one finds no room, none does."""
        return self.unit is SESSIONS

    @property
    def is_over(self) -> bool:
        return self.load - self.coming > self.window + ROUNDING

    @property
    def coming(self) -> int:
        """The part of the load that is about to be free."""
        return self.vacated if self.unit is SESSIONS else self.vacated_tokens

    @property
    def is_empty(self) -> bool:
        return not self.busy and not self.idle and not self.branches

    @property
    def is_all_ours(self) -> bool:
        """No other replica has a share of the window."""
        return self.window + ROUNDING >= self.whole

    @property
    def parts(self) -> float:
        """How many times as large the whole window is as this replica's share of it; 1 where that is not known."""
        return self.whole / self.window if 0.0 < self.window < self.whole < math.inf else 1.0

    def see_elsewhere(self, running: int, now: float) -> None:
        """Hear how many turns other replicas run there now."""
        self.elsewhere = running
        self._peak_running.see(self.running + running, now=now)
        self._see_starved(now)

    def charged(self, session: Session) -> int:
        """Return what a session that has a place counts for in the window's unit."""
        return 1 if self.unit is SESSIONS else session.charged

    def growth(self, session: Session, tokens: int) -> int:
        """Return how much more it would count for with ``tokens``, and what must be left free beside.

        Cold ones that are here already leave hot ones their share, and may stay in what these need beyond it until they
        come: whoever left sooner would have a context to compute again, which takes time from hot turns as well.
        """
        kept = self._kept_for_hot(0.0) if self.is_second(session) else 0
        return kept if self.unit is SESSIONS else tokens - session.charged + kept

    def charge_new(self, session: Session, tokens: int) -> int:
        """Return what one without a place would count for, with the prefix that it would be the first to use."""
        kept = self.kept_for_hot if self.is_second(session) else 0
        if self.unit is SESSIONS:
            return 1 + kept
        return tokens + self._shared.cost_of(session.prefix_key, self.prefixes.of(session.prefix_key)) + kept

    def is_second(self, session: Session) -> bool:
        """Tell whether it must leave a part of the window to others."""
        return session.cold and self.has_lanes

    @property
    def kept_for_hot(self) -> int:
        """Return the room that only hot sessions may take: what is left of their share, or of what they need.

        A law may fill the cache more than once where that brings throughput, at the cost of latency: not with batch
        work beside interactive turns. What a window has beyond the cache is for hot sessions, too.
        """
        return self._kept_for_hot(self._hot.upper(HOT_DEVIATIONS))

    def _kept_for_hot(self, need: float) -> int:
        if self.window == math.inf:
            return 0
        usable = self.window
        if self.unit is Unit.TOKENS and (limit := self.shadow.limit) is not None:
            usable = min(usable, FULL * limit)
        kept = 0.0
        if self.hot_share > 0.0:
            kept = max(0.0, max(self.hot_share * usable, min(need, MOST_KEPT * usable)) - self.hot_load)
        return int(self.window - usable + kept)

    @property
    def hot_load(self) -> int:
        """The part of the load that is not cold."""
        return self.load - (self._cold if self.unit is SESSIONS else self._cold_tokens)

    def smallest_cold(self, session: Session) -> Session | None:
        """Return the smallest of the cold sessions that are idle, if it is smaller than ``session``."""
        smallest = min(self.idle_cold, key=_charged, default=None)
        return smallest if smallest is not None and smallest.charged < session.charged else None

    def cheapest_cold(self, charge: int) -> Session:
        """Return the idle cold session whose context is the least to compute again, of those that make room enough.

        Where none does, the largest one: fewer are needed then.
        """
        if self.unit is Unit.SESSIONS:
            return min(self.idle_cold, key=_charged)
        missing = self.load + charge - self.window
        enough = [session for session in self.idle_cold if session.charged >= missing]
        return min(enough, key=_charged) if enough else max(self.idle_cold, key=_charged)

    def see_hot(self, now: float) -> None:
        """Learn how much hot sessions need."""
        self._hot.see(self.hot_load, now=now)

    def fits(self, change: int) -> bool:
        """Tell whether the load may change by that much."""
        return self.window == math.inf or self.load + change <= self.window + ROUNDING

    def set_unit(self, unit: Unit) -> None:
        """Count in another unit from now on; what was learned in the one before is of no use."""
        if unit is not self.unit:
            self.unit = unit
            self._hot = Level(HOT_HORIZON_S)

    def set_window(self, window: float) -> None:
        """Keep the window between its bounds (invariant 5)."""
        self.window = min(max(window, self.minimum), self.maximum)

    def is_starved(self, now: float) -> bool:
        """Nothing runs, or far less than has run lately and could run with the sessions that are active."""
        best = min(self._peak_running.at(now), self.active * self.parts)
        running = self.running + self.elsewhere
        return running == 0 or running < STARVED * best

    def starved_from(self, now: float) -> float:
        """Return since when it has been starved; it is now."""
        if self._starved_from is None:
            self._starved_from = now
        return self._starved_from

    def _see_starved(self, now: float) -> None:
        if not self.is_starved(now):
            self._starved_from = None
        elif self._starved_from is None:
            self._starved_from = now

    # places

    @property
    def active(self) -> int:
        """Return how many sessions have a place."""
        return len(self.busy) + len(self.idle)

    @property
    def places(self) -> set[Session]:
        """Return the sessions that have one; there may be very many."""
        return self.busy.union(self.idle)

    def own(self, session: Session, footprint: int) -> int:
        """Return a footprint without the prefix that others share, as far as it is known."""
        if session.prefix_key is None:
            return footprint
        own = footprint - self.prefixes.of(session.prefix_key)
        return own if own > 0 else 1

    def give_place(self, session: Session, tokens: int) -> None:
        session.place = session.origin = self
        session.charged = tokens
        self.busy.add(session)
        self._tokens += tokens
        if session.cold:
            self._count_cold(1, tokens)
        self._shared.join(session.prefix_key, self.prefixes.of(session.prefix_key))

    def take_place(self, session: Session) -> None:
        self.set_busy(session)
        session.place = None
        self.busy.remove(session)
        self._tokens -= session.charged
        if session.cold:
            self._count_cold(-1, -session.charged)
        self._shared.leave(session.prefix_key)

    def vacate(self, session: Session) -> int:
        """Take the place of an idle session, whose room stays taken until ``free``; return the tokens that it is."""
        tokens = session.charged
        self.take_place(session)
        self._count_vacated(1, tokens)
        return tokens

    def free(self, tokens: int) -> None:
        """The room of a place that was vacated is there for others."""
        self._count_vacated(-1, -tokens)

    def _count_vacated(self, places: int, tokens: int) -> None:
        self.branches += places
        self._tokens += tokens
        self.vacated += places
        self.vacated_tokens += tokens

    def recharge(self, session: Session, tokens: int) -> None:
        """A session with a place, not idle, counts for ``tokens`` from now on."""
        self._tokens += tokens - session.charged
        if session.cold:
            self._count_cold(0, tokens - session.charged)
        session.charged = tokens

    def _count_cold(self, sessions: int, tokens: int) -> None:
        self._cold += sessions
        self._cold_tokens += tokens

    def set_idle(self, session: Session) -> None:
        self.busy.remove(session)
        self.idle[session] = None
        if session.cold:
            self.idle_cold[session] = None
        self._idle_tokens += session.charged

    def set_busy(self, session: Session) -> None:
        if session in self.idle:
            del self.idle[session]
            self.busy.add(session)
            if session.cold:
                del self.idle_cold[session]
            self._idle_tokens -= session.charged

    def learn_prefix(self, key: int, cached_tokens: int) -> None:
        """A session's first turn has found this much cached: it is shared with others."""
        size = self.prefixes.learn(key, cached_tokens)
        self._shared.resize(key, size)
        self.shadow.resize_prefix(key, size)

    # turns

    def start(self, turn: Turn, now: float) -> None:
        if self.running == 0:
            self._busy_from = now
        self.running += 1
        self.running_tokens += turn.tokens
        self._peak_running.see(self.running + self.elsewhere, now=now)
        self._see_starved(now)
        if turn.is_branch:
            self.branches += 1
            self._tokens += turn.tokens
            if turn.session.cold:
                self._count_cold(1, turn.tokens)

    def end(self, turn: Turn, now: float) -> None:
        self.running -= 1
        self.running_tokens -= turn.tokens
        if self.running == 0:
            self._busy_s += now - self._busy_from
        self._see_starved(now)
        if turn.is_branch:
            self.end_branch(turn)

    def busy_s(self, now: float) -> float:
        """Return the seconds in which something ran."""
        return self._busy_s + (now - self._busy_from if self.running else 0.0)

    def note_overfull(self) -> None:
        """See whether what runs fits the cache; else turns wait in the engine, and contexts are evicted anyhow."""
        limit = self.shadow.limit
        if limit is not None and self.running_tokens + self._shared.tokens > limit:
            self._overfull_at = self.computed

    def is_in_doubt(self, session: Session) -> bool:
        """Tell whether what ran did not fit the cache at some time since the session's last turn ended."""
        return session.computed_before <= self._overfull_at

    def is_undisturbed(self, turn: Turn) -> bool:
        """Tell of a turn that ends whether so little was computed since the one before that its context was there."""
        limit = self.shadow.limit
        if limit is None:
            return False
        beside = self.running_tokens - turn.tokens + self._shared.tokens
        return self.computed - turn.session.computed_before <= UNDISTURBED * (limit - beside)

    def end_branch(self, turn: Turn) -> None:
        """The turn has ended, or rides its session's place now."""
        self.branches -= 1
        self._tokens -= turn.tokens
        if turn.session.cold:
            self._count_cold(-1, -turn.tokens)
        turn.is_branch = False
