"""Letting turns in: may this one run on this backend now, by which rule (invariant 3), and what it counts for then."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from concur_proxy.core import placement
from concur_proxy.core.backend import Backend
from concur_proxy.core.ledger import Ledger
from concur_proxy.core.places import Places
from concur_proxy.core.pools import Pools
from concur_proxy.core.report import Counts
from concur_proxy.core.sessions import Session, Turn
from concur_proxy.core.timers import Timers
from concur_proxy.model import AdmitWhy, Lease


def why_active(session: Session, backend: Backend, tokens: int) -> AdmitWhy | None:
    """Return why a session that is idle on ``backend`` may run its next turn of ``tokens``; None: it may not."""
    if backend.fits(backend.growth(session, tokens)):
        return AdmitWhy.WINDOW
    if len(backend.places) == 1 and not backend.branches and backend.is_all_ours:
        return AdmitWhy.OVERSIZE
    if not backend.hard and not backend.is_second(session) and backend.shadow.is_warm(session):
        return AdmitWhy.WARM
    return None


def has_room(session: Session, backend: Backend, tokens: int) -> bool:
    """Tell whether a turn without a place on ``backend``, or a branch, fits there as things are."""
    return backend.fits(backend.charge_new(session, tokens))


def why_new(session: Session, backend: Backend, tokens: int, places: Places, *, now: float) -> AdmitWhy | None:
    """Return why such a turn may run; None: it may not. Idle places are taken back for it where that is right."""
    charge = backend.charge_new(session, tokens)
    if backend.fits(charge):
        return AdmitWhy.WINDOW
    observes = places.policy.mode == "observe"
    if not backend.is_empty and (observes or not _made_room(session, backend, charge, tokens, places, now)):
        return None
    if backend.fits(charge):
        return AdmitWhy.WINDOW
    return AdmitWhy.OVERSIZE if backend.is_empty and backend.is_all_ours else None


def _made_room(session: Session, backend: Backend, charge: int, tokens: int, places: Places, now: float) -> bool:
    """Take places back for a session: cold ones step aside for hot ones, and leave theirs to them where anything runs.

    True where ``charge`` may fit now.
    """
    if backend.has_lanes:
        if not session.cold:
            if places.step_aside(backend, charge, now=now):
                return True
        elif backend.running:
            return False
    arriving = max(0, tokens - backend.shadow.resident(session))
    return places.reclaim(backend, charge, arriving, now=now)


def inherits(session: Session, donor: Session, tokens: int, places: Places) -> bool:
    """Take the idle place of a relative for a session without one, if that makes room for it."""
    backend = donor.place
    if backend is None or session.place is not None or session.running:
        return False
    return places.inherit(donor, session, backend, backend.charge_new(session, tokens))


class Admission:
    """The turns that run, by the id of their lease."""

    __slots__ = ("_counts", "_leases", "_ledger", "_places", "_pools", "_timers", "running")

    def __init__(
        self, places: Places, ledger: Ledger, pools: Pools, counts: Counts, timers: Timers[Session | Turn]
    ) -> None:
        self._places = places
        self._ledger = ledger
        self._pools = pools
        self._counts = counts
        self._timers = timers
        self._leases = 0
        self.running: dict[int, Turn] = {}

    @property
    def _observes(self) -> bool:
        return self._places.policy.mode == "observe"

    def ride(self, turn: Turn, backend: Backend, now: float) -> Lease | None:
        """Let the next turn of an idle session ride its place, where that is permitted."""
        tokens = self._ledger.tokens(turn, backend)
        why = why_active(turn.session, backend, tokens)
        if why is None:
            backend.bound = True
            if self._observes:
                why = AdmitWhy.OBSERVED
            elif backend.is_second(turn.session):
                why = self._ride_instead(turn.session, backend, tokens)
            if why is None:
                return None
        return self._admit(turn, backend, tokens, why, now)

    def _ride_instead(self, session: Session, backend: Backend, tokens: int) -> AdmitWhy | None:
        """Let a cold session go on instead of smaller ones, whose contexts are less work to compute again."""
        while (other := backend.smallest_cold(session)) is not None:
            self._places.pause(other, at_once=True)
            why = why_active(session, backend, tokens)
            if why is not None:
                return why
        return None

    def enter(self, turn: Turn, backends: Iterable[Backend], now: float) -> Lease | None:
        """Let a turn in on the first of ``backends`` that has room."""
        for backend in backends:
            tokens = self._ledger.tokens(turn, backend)
            why = why_new(turn.session, backend, tokens, self._places, now=now)
            if why is not None:
                return self._admit(turn, backend, tokens, why, now)
            backend.bound = True
        return None

    def enter_for(self, turn: Turn, donor: Session, now: float) -> Lease | None:
        """Let a turn in on the idle place of a relative, which waits for it or is done."""
        backend = donor.place
        if backend is None or donor.running or self._observes:
            return None
        if placement.home(turn) not in {None, backend} or not placement.may_run(turn, backend):
            return None
        tokens = self._ledger.tokens(turn, backend)
        if not inherits(turn.session, donor, tokens, self._places):
            return None
        backend.bound = True
        self._timers.wake(now)  # the donor may have had more than its heir needs
        return self._admit(turn, backend, tokens, AdmitWhy.WINDOW, now)

    def enter_anyway(self, turn: Turn, backend: Backend, why: AdmitWhy, now: float) -> Lease:
        return self._admit(turn, backend, self._ledger.tokens(turn, backend), why, now)

    def has_room(self, turn: Turn, backends: Iterable[Backend]) -> bool:
        """Tell whether one of ``backends`` has room as things are."""
        return any(has_room(turn.session, backend, self._ledger.tokens(turn, backend)) for backend in backends)

    def relocate(self, cooled: Sequence[Session], now: float) -> None:
        """These contexts are gone: the turns that waited for their origin may run elsewhere."""
        for session in cooled:
            for turn in session.held.values():
                self._pools.line_up_anew(turn)
                self._timers.wake(now)

    def _admit(self, turn: Turn, backend: Backend, tokens: int, why: AdmitWhy, now: float) -> Lease:
        session = turn.session
        turn.backend, turn.tokens = backend, tokens
        if session.running:
            turn.is_branch = True
        else:
            if backend is session.origin:
                turn.history, turn.was_warm = session.footprint, backend.shadow.is_warm(session)
            self._places.ride(turn, backend)
        session.running = (*session.running, turn)
        backend.start(turn, now)
        if cooled := backend.shadow.start(session, tokens):
            self.relocate(cooled, now)
        admitted = self._counts.admitted_by
        admitted[why] = admitted.get(why, 0) + 1
        self._leases += 1
        turn.lease = lease = Lease(self._leases, turn.facts, session.key, backend.id, turn.arrived_at, now, why)
        self.running[lease.id] = turn
        return lease
