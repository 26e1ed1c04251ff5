"""The turns that are held: who waits, who goes next, who is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from concur_proxy.core import placement
from concur_proxy.core.admission import Admission
from concur_proxy.core.backend import Backend
from concur_proxy.core.breaker import Breaker
from concur_proxy.core.intake import Intake
from concur_proxy.core.limits import Over
from concur_proxy.core.places import Places
from concur_proxy.core.policy import Decision
from concur_proxy.core.pools import Pool, Pools
from concur_proxy.core.report import Counts
from concur_proxy.core.sessions import NOBODY, Session, Turn
from concur_proxy.core.timers import Timers
from concur_proxy.model import Admitted, AdmitWhy, ColdLane, Lease, PoolId, RefusalReason, Refused

LOOK_AHEAD: Final = 8
"""Blocked turns with a choice that reserve one backend each; the next reserves all it may use: no round takes long."""


class Waiting:
    """All held turns, by ticket; those that may run now stand in the line of their pool, too."""

    __slots__ = ("_admission", "_counts", "_intake", "_places", "_pools", "_timers", "on_cold_lane", "paused", "turns")

    def __init__(
        self,
        pools: Pools,
        admission: Admission,
        intake: Intake,
        places: Places,
        counts: Counts,
        timers: Timers[Session | Turn],
    ) -> None:
        self._pools = pools
        self._admission = admission
        self._intake = intake
        self._places = places
        self._counts = counts
        self._timers = timers
        self.turns: dict[int, Turn] = {}
        self.on_cold_lane: Callable[[PoolId, ColdLane, float | None], None] = _ignore
        """Told what becomes of cold turns from now on, and the p99 of hot ones that it was decided by."""
        self.paused: set[int] = set()
        """Tickets of those whose sessions had run before."""

    @property
    def is_full(self) -> bool:
        return len(self.turns) >= self._places.policy.max_held

    def longest_wait_s(self, now: float) -> float | None:
        """Return how long the turn that was held first has stood in line; None where nobody waits."""
        first = next(iter(self.turns.values()), None)
        return None if first is None else now - first.arrived_at

    # coming and going

    def hold(self, turn: Turn, pool: Pool, now: float) -> None:
        """Let a turn wait until it may go, or for as long as it may wait."""
        if turn.session.held is NOBODY:
            turn.session.held = {}
        self.turns[turn.ticket] = turn.session.held[turn.ticket] = turn
        if turn.account is not None:
            turn.account.held += 1
        if turn.session.was_active:
            self.paused.add(turn.ticket)
        for donor in turn.donors:
            if donor.heirs is None:
                donor.heirs = {}
            donor.heirs[turn.ticket] = turn
        if turn.not_before > now:
            self._timers.set(turn, min(turn.not_before, turn.deadline))
        else:
            self._line_up(turn, pool)

    def release(self, turn: Turn) -> None:
        """The turn waits no more."""
        del self.turns[turn.ticket], turn.session.held[turn.ticket]
        if not turn.session.held:
            turn.session.held = NOBODY
        if turn.account is not None:
            turn.account.held -= 1
        self.paused.discard(turn.ticket)
        for donor in turn.donors:
            if donor.heirs is not None:
                donor.heirs.pop(turn.ticket, None)
        turn.donors = ()
        self._timers.clear(turn)
        pool = self._pools.get(turn.facts.pool)
        if pool is not None:
            pool.line.discard(turn)

    def reconsider(self, session: Session) -> None:
        """More is known of a session than when its turns began to wait: they stand where that puts them."""
        for turn in session.held.values():
            if session.was_active:
                self.paused.add(turn.ticket)
            self._pools.line_up_anew(turn)

    def admitted(self, turn: Turn, lease: Lease) -> Admitted:
        pool = self._pools.get(turn.facts.pool)
        if pool is not None:
            pool.line.grant(turn, lease.admitted_at)
        self.release(turn)
        return Admitted(turn.ticket, lease)

    def alarm(self, turn: Turn, now: float) -> list[Decision]:
        """A turn has waited as long as it may, or as long as it should have at least."""
        pool = self._pools.get(turn.facts.pool)
        assert pool is not None
        if turn.deadline > now:
            self._line_up(turn, pool)
            return []
        able = placement.candidates(turn, pool.backends.values())
        if self._places.policy.force_after_max_wait and able:
            return [self.admitted(turn, self._admission.enter_anyway(turn, able[0], AdmitWhy.FORCED, now))]
        return self.refuse_held([turn], RefusalReason.QUEUE_TIMEOUT)

    def _line_up(self, turn: Turn, pool: Pool) -> None:
        pool.line.join(turn)
        self._timers.set(turn, turn.deadline)

    # refusals

    def refuse(self, turn: Turn, reason: RefusalReason, retry_after_s: float | None = None) -> Refused:
        """Refuse a turn that is not held; where it is tried again, it has its place in line."""
        self._counts.refused[reason] += 1
        self._intake.tries.remember(turn.facts, turn.first_arrived_at)
        self._intake.forget_if_nothing(turn.session)
        return Refused(turn.ticket, reason, retry_after_s or self._places.policy.retry_after_s)

    def refuse_held(
        self, turns: Sequence[Turn], reason: RefusalReason, retry_after_s: float | None = None
    ) -> list[Decision]:
        for turn in turns:
            self.release(turn)
        return [self.refuse(turn, reason, retry_after_s) for turn in turns]

    def refuse_over(self, over: Over) -> Refused:
        """Refuse a turn of a tenant that asks for more than it may, before anything is made for it."""
        self._counts.refused[over.reason] += 1
        return Refused(self._intake.ticket(), over.reason, over.wait_s)

    # batch work that is held back

    def turn_away(self, turn: Turn, pool: Pool) -> Refused | None:
        """Refuse a cold turn that has arrived where those are sent away; None: it may stay."""
        breaker = pool.breaker
        if breaker is None or breaker.state is not ColdLane.REFUSED or not pool.line.holds(turn):
            return None
        return self.refuse(turn, RefusalReason.BATCH_PAUSED, breaker.retry_after_s)

    def watch(self, now: float) -> list[Decision]:
        """See whether hot turns meet their objective, where a window has ended."""
        decisions: list[Decision] = []
        for pool in self._pools:
            if pool.breaker is not None and pool.breaker.ends_at <= now:
                decisions += self._watch(pool, pool.breaker, now)
        return decisions

    def _watch(self, pool: Pool, breaker: Breaker, now: float) -> list[Decision]:
        here = [turn for turn in self.turns.values() if turn.facts.pool == pool.id]
        waiting_s = [now - turn.arrived_at for turn in here if not turn.session.cold]
        runs = any(not each.session.cold and each.facts.pool == pool.id for each in self._admission.running.values())
        if breaker.close_window(waiting_s, runs=runs, now=now):
            self._counts.cold_lane[breaker.state] += 1
            self.on_cold_lane(pool.id, breaker.state, breaker.p99_s)
        self._pools.hold_cold(pool)
        if breaker.state is not ColdLane.REFUSED:
            return []
        cold = [turn for turn in here if pool.line.holds(turn)]
        return self.refuse_held(cold, RefusalReason.BATCH_PAUSED, breaker.retry_after_s)

    # who goes next

    def dispatch(self, pool_id: PoolId, now: float) -> list[Decision]:
        """Admit held turns in their order until every backend of the pool is full or reserved (invariant 4)."""
        pool = self._pools.get(pool_id)
        if pool is None:
            return []
        if pool.line.order.has_lanes:
            pool.see_hot(now)
        pool.line.start_round(now)
        if not pool.line.waiting:
            return []
        able = {backend.id: backend for backend in pool.backends.values() if backend.up}
        observes = self._places.policy.mode == "observe"
        decisions: list[Decision] = []
        undecided = 0
        while able and (turn := pool.line.first(able)) is not None:
            backends = placement.candidates(turn, pool.line.open_for(turn, able))
            lease = self._admission.enter(turn, backends, now)
            if lease is None and observes and backends:
                lease = self._admission.enter_anyway(turn, backends[0], AdmitWhy.OBSERVED, now)
            if lease is not None:
                decisions.append(self.admitted(turn, lease))
                continue
            undecided += len(backends) > 1
            for backend in backends if undecided > LOOK_AHEAD else _kept_for(backends):
                if pool.line.reserve(backend, turn):
                    del able[backend.id]
            if able:
                pool.line.set_aside(turn)
        pool.line.put_back()
        return decisions

    def dispatch_all(self, now: float) -> list[Decision]:
        return [decision for pool in self._pools for decision in self.dispatch(pool.id, now)]

    def follow(self, before: PoolId, after: PoolId) -> None:
        """A backend has changed its pool: where nobody is left who could serve them, those who wait go with it."""
        left, home = self._pools.get(before), self._pools.get(after)
        if left is None or home is None or left.is_up:
            return
        for turn in [each for each in self.turns.values() if each.facts.pool == before]:
            stands = turn.lane is not None
            left.line.discard(turn)
            turn.facts = replace(turn.facts, pool=after)
            self._intake.sessions.move(turn.session, after)
            if stands:
                home.line.join(turn)

    def look_again(self, pool_id: PoolId, now: float) -> list[Decision]:
        """What a backend can do has changed: everybody who waits in its pool looks where to wait now."""
        pool = self._pools.get(pool_id)
        if pool is None:
            return []
        waiting = [turn for turn in self.turns.values() if turn.facts.pool == pool_id]
        if not pool.is_up:
            decisions = self.refuse_held(waiting, RefusalReason.NO_BACKEND)
            self._pools.clean_up(pool_id)
            return decisions
        stranded = [turn for turn in waiting if turn.avoid and not _may_run(turn, pool)]
        decisions = self.refuse_held(stranded, RefusalReason.NO_BACKEND)
        for turn in waiting:
            pool.line.move(turn)
        return decisions + self.dispatch(pool_id, now)


def _may_run(turn: Turn, pool: Pool) -> bool:
    return any(placement.may_run(turn, backend) for backend in pool.backends.values())


def _kept_for(backends: Sequence[Backend]) -> list[Backend]:
    """Return what a blocked turn keeps those behind it from: the backend it would take, and those that nobody can."""
    return [backend for backend in backends if backend is backends[0] or backend.is_uniform]


def _ignore(pool: PoolId, cold_lane: ColdLane, p99_s: float | None) -> None:
    """Nobody wants to know."""
