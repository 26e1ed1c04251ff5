"""Giving places to sessions and taking them back: pauses, leases, reclaiming, relatives.

A session's lease follows the think times seen: its own, else those of its backend. An answer with tool calls says that
it will be back; a final answer that it may be done, unless it has gone on after one before; a failed or cancelled turn
says nothing good.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from concur_proxy.core import patience
from concur_proxy.core.backend import Backend
from concur_proxy.core.policy import GatePolicy
from concur_proxy.core.report import Counts
from concur_proxy.core.sessions import Session, Turn
from concur_proxy.core.timers import Timers
from concur_proxy.model import FinishReason, Outcome

STOP_LEASE: Final = 0.5
"""Share of the lease after a final answer."""


class Places:
    """Who is active. ``policy`` is the one in force."""

    __slots__ = ("_counts", "_timers", "on_paused", "on_vacated", "on_vanished", "policy")

    def __init__(self, policy: GatePolicy, counts: Counts, timers: Timers[Session | Turn]) -> None:
        self.policy = policy
        self._counts = counts
        self._timers = timers
        self.on_vanished: Callable[[Session], None] = _ignore
        """Told of a session that had a place and is not expected to come back."""
        self.on_paused: Callable[[Session], None] = _ignore
        """Told of a session that has lost its place between two turns."""
        self.on_vacated: Callable[[Session, Backend, int], None] | None = None
        """Told of a place of so many tokens whose room stays taken until ``Backend.free``; None: it is free at once."""

    # riding a place

    def ride(self, turn: Turn, backend: Backend) -> None:
        """The turn rides its session's place on ``backend``; the session gets one, or moves, where it must."""
        session = turn.session
        if session.place is backend:
            backend.set_busy(session)
            backend.recharge(session, turn.tokens)
            return
        self.give_up(session)
        if session.paused:
            session.paused = False
            self._counts.resumed += 1
        session.borrower = None
        backend.give_place(session, turn.tokens)

    def promote(self, session: Session) -> None:
        """The turn that rode the place has ended before a branch of its session: the branch rides it now."""
        branch = session.running[0]
        backend = branch.backend
        assert backend is not None
        backend.end_branch(branch)
        if session.place is backend:
            backend.recharge(session, branch.tokens)
        else:
            self.give_up(session)
            backend.give_place(session, branch.tokens)

    def rest(self, session: Session, outcome: Outcome, now: float) -> None:
        """A session that waits for its agent now keeps its place for the time of its lease."""
        assert session.place is not None
        session.place.set_idle(session)
        if outcome is Outcome.COMPLETED:
            session.place.returns.left(session, now)
        session.lease_until = now + self._lease_s(session, session.place, outcome)
        if session.wakes_at is None or session.wakes_at > session.lease_until:
            self._timers.set(session, session.lease_until)

    def _lease_s(self, session: Session, backend: Backend, outcome: Outcome) -> float:
        policy = self.policy
        if outcome is not Outcome.COMPLETED:
            return policy.lease_min_s
        known = session.think or backend.think
        upper = known.upper()
        lease = policy.lease_max_s if upper is None else upper
        if session.finish_reason is FinishReason.STOP and not session.goes_on_after_stop:
            lease *= STOP_LEASE
        return min(max(lease, policy.lease_min_s), policy.lease_max_s)

    def restore(self, session: Session, backend: Backend, tokens: int, lease_s: float, now: float) -> None:
        """Give a session that has come from another replica the idle place that it had there."""
        session.paused = False
        backend.give_place(session, tokens)
        backend.set_idle(session)
        session.lease_until = now + lease_s
        if session.wakes_at is None or session.wakes_at > session.lease_until:
            self._timers.set(session, session.lease_until)

    def let_go(self, session: Session) -> None:
        """Another replica has the session now, and its place: how long its agent thinks is for that one to see."""
        session.left_at = None
        self.give_up(session)
        self._timers.clear(session)

    # taking places back

    @staticmethod
    def give_up(session: Session) -> None:
        """Take the place away from a session that has one."""
        if session.place is not None:
            session.place.take_place(session)

    def dismiss(self, session: Session) -> None:
        """Nothing will come of the session any more."""
        if session.place is not None:
            session.place.departed += 1
            self.on_vanished(session)
        self.give_up(session)
        self._timers.clear(session)

    def pause(self, session: Session, *, at_once: bool = False) -> None:
        """Take an idle session's place: its next turn waits, ahead of new ones. ``at_once``: somebody else has it."""
        if at_once:
            self.give_up(session)
        else:
            self._vacate(session)
        session.paused = True
        self._counts.paused += 1
        self.on_paused(session)

    def _vacate(self, session: Session) -> None:
        """Take an idle session's place; where others share the window one of them may have it by now."""
        backend, tell = session.place, self.on_vacated
        if backend is None or tell is None or session.running:
            self.give_up(session)
        else:
            tell(session, backend, backend.vacate(session))

    def pause_surplus(self, backend: Backend) -> bool:
        """Pause eagerly, where that is the policy: idle sessions over the window, longest idle first."""
        if self.policy.pause != "eager" or self.policy.mode == "observe":
            return False
        some = False
        while backend.is_over and backend.idle:
            self.pause(next(iter(backend.idle)))
            some = True
        return some

    def reclaim(self, backend: Backend, charge: int, arriving: int, *, now: float) -> bool:
        """Free the longest idle places of a starved engine until ``charge`` fits; none where that would not do.

        It has been starved for long enough then, for the contexts that ``arriving`` tokens in its cache put at risk
        (``patience``). One that runs nothing is emptied for a session larger than its window, which then runs alone.
        """
        if not backend.idle or backend.may_have_room or not backend.is_starved(now):
            return False
        missing = charge - backend.coming
        if backend.running and not backend.fits(missing - backend.idle_load):
            return False
        losers = patience.victims(backend, missing)
        if not losers:
            return False
        due_at = patience.due_at(backend, losers, arriving, now)
        if due_at > now:
            self._look_again(losers[0], due_at)
            return False
        for session in losers:
            self.pause(session)
            self._counts.reclaimed += 1
        return True

    def _look_again(self, idle: Session, at: float) -> None:
        """Have everything dispatched then, by the alarm of an idle session: it stays set for the end of the lease."""
        if idle.wakes_at is None or idle.wakes_at > at:
            self._timers.set(idle, at)

    def step_aside(self, backend: Backend, charge: int, *, now: float) -> bool:
        """Free the places of cold sessions that are between two turns until ``charge`` fits: as little as will do.

        Where it does not fit yet they are free all the same: else they would be taken again by their next turns, and a
        hot turn would wait for the end of a whole cold session.
        """
        if backend.idle_cold:
            self._timers.wake(now)  # somebody smaller may fit beside
        while backend.idle_cold and not backend.fits(charge - backend.coming):
            self.pause(backend.cheapest_cold(charge - backend.coming))
        return backend.fits(charge)

    def give_back(self, backend: Backend, elsewhere: float, *, now: float) -> None:
        """Pause idle sessions over a share that has fallen, where the engine is starved: others wait for the places.

        Whoever comes elsewhere in their stead is as large as they are, as far as is known. Where that one has room, or
        would have none if all idle sessions lost their places, nobody does, as with one proxy (``reclaim``).
        ``elsewhere``: what is active at other replicas.
        """
        while backend.idle and backend.is_over and backend.is_starved(now):
            missing = backend.load - backend.coming + elsewhere + backend.one - backend.whole
            runs = backend.running + backend.elsewhere
            if missing <= 0 or (runs and missing > backend.parts * backend.idle_load):
                return
            loser = next(iter(backend.idle))
            if patience.due_at(backend, [loser], loser.footprint, now) > now:
                return  # whoever is over a share looks again with the next sync
            self.pause(loser)
            self._counts.reclaimed += 1

    def inherit(self, donor: Session, heir: Session, backend: Backend, charge: int) -> bool:
        """Take the idle place of a relative for ``heir``, if ``charge`` fits in its stead."""
        if donor.place is not backend or donor.running or not backend.fits(charge - backend.charged(donor)):
            return False
        self.pause(donor, at_once=True)
        donor.borrower = heir
        return True

    def alarm(self, session: Session, now: float) -> None:
        """End the lease of an idle session where it is over; it may have been renewed since the alarm was set."""
        if not session.idle:
            return
        if session.lease_until > now:
            self._timers.set(session, session.lease_until)
        else:
            assert session.place is not None
            session.place.departed += 1
            self._vacate(session)
            self._counts.leases_expired += 1
            self.on_vanished(session)


def _ignore(session: Session) -> None:
    """Nobody wants to know."""
