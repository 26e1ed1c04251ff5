"""Who may run: the state machine of turns and places. No clock, no I/O: time comes as ``now=``, decisions are returned.

A *place* is a session's share of its backend's window; a *lease* is one turn's right to run.

    turn     arrive ─▶ held ─▶ running ─▶ finished        session   held ─▶ running ⇄ idle ─▶ gone
                │       │ ▲       │                                  ▲         ┌───┘
                │       │ └requeue┘                                  └─ paused ◀
                └───────┴─▶ refused | abandoned

Rules
- A turn of an idle session rides its place. Where what is active exceeds the window, since a law has shrunk it or
  contexts have grown, the turn still passes while its context is warm by the shadow; one that is cold, or over a hard
  limit, waits as paused (``admission``).
- Any other turn needs room: its charge and what is active must fit the window. A session larger than the whole window
  takes all of it: it runs alone.
- A second turn of a session at the same time is a branch and needs room of its own, until it can ride the place.
- Held turns go in the order of the pool's line; one that comes to the head and does not fit reserves a backend
  (``ordering``). A turn whose context is warm waits for its origin, any other goes where most room is (``placement``).
- A turn of a tenant that is over its limits is refused at once (``limits``). While hot turns miss their objective cold
  ones wait, whatever room there is, and are refused after a while (``breaker``).
- An idle place is given up when its lease runs out, when its session ends, when a relative needs it, and when turns
  wait beside an engine that has run nothing, or far below its best, for longer than its context is worth
  (``patience``).

Invariants
1. arrived = admitted + held + refused + abandoned; admitted = running + finished.
2. A lease ends exactly once.
3. No grant beyond the window but those whose ``why`` says so: warm, oversize, forced, observed.
4. After any call no turn waits beside room that it may use, nor for idle places beside an engine that has run nothing
   for as long as their contexts take to be computed again.
   A call that can answer for one turn only (``arrive``, ``set_capacity``) leaves the others to the ``tick`` that
   ``next_deadline`` asks for at once.
5. minimum <= window <= maximum.
9. Nothing here grows without bound.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final

from concur_proxy.core import demand, handover, listing, pictures, placement
from concur_proxy.core.admission import Admission
from concur_proxy.core.backend import Backend
from concur_proxy.core.demand import Asked
from concur_proxy.core.handover import SessionState
from concur_proxy.core.intake import Intake
from concur_proxy.core.ledger import Ledger
from concur_proxy.core.limits import Account, Limits
from concur_proxy.core.places import Places
from concur_proxy.core.policy import Decision, Finished, GatePolicy
from concur_proxy.core.pools import Pool, Pools
from concur_proxy.core.report import Counts, GateSnapshot, HeldView, SessionView
from concur_proxy.core.sessions import Session, Turn
from concur_proxy.core.timers import Timers
from concur_proxy.core.waiting import Waiting
from concur_proxy.model import (
    Admitted,
    AdmitWhy,
    BackendEvent,
    BackendId,
    ColdLane,
    FinishReason,
    Held,
    Lease,
    Outcome,
    PoolId,
    RefusalReason,
    Refused,
    SessionKey,
    TurnFacts,
    Usage,
)
from concur_proxy.windows.base import Unit, WindowView

__all__ = ["Decision", "Finished", "Gate", "GatePolicy"]

COMPUTED: Final = frozenset({Outcome.COMPLETED, Outcome.CANCELLED, Outcome.TIMED_OUT})
"""Outcomes that may leave a context behind, even of a first turn."""


class Gate:
    """One per proxy. Every method returns what it has decided about turns that waited."""

    def __init__(self, policy: GatePolicy) -> None:
        self._policy = policy
        self._counts = Counts()
        self._timers: Timers[Session | Turn] = Timers()
        self._places = Places(policy, self._counts, self._timers)
        self._intake = Intake(policy, self._places)
        self._ledger = Ledger()
        self._pools = Pools(policy, self._ledger.size)
        self._places.on_vanished = self._pools.vanished
        self._admission = Admission(self._places, self._ledger, self._pools, self._counts, self._timers)
        self._waiting = Waiting(self._pools, self._admission, self._intake, self._places, self._counts, self._timers)
        self._limits: Limits | None = None
        """What tenants may take; None where nothing limits them."""
        self._set_limits(0.0)
        self._closed: RefusalReason | None = None

    # ------------------------------------------------------------------ turns

    def arrive(
        self, turn: TurnFacts, *, now: float, avoid: frozenset[BackendId] = frozenset()
    ) -> Admitted | Held | Refused:
        """Decide about a turn; where it is held, the answer comes from a later call."""
        self._counts.arrived += 1
        if self._limits is None or self._closed is not None:
            return self._take_in(turn, avoid, None, now)
        account = self._limits.of(turn.tenant, now)
        over = account.ask(now) if account is not None else None
        if over is not None:
            return self._waiting.refuse_over(over)
        return self._take_in(turn, avoid, account, now)

    def _take_in(
        self, turn: TurnFacts, avoid: frozenset[BackendId], account: Account | None, now: float
    ) -> Admitted | Held | Refused:
        pool = self._pools.get(turn.pool)
        one = self._intake.turn(turn, avoid, now=now)
        one.account = account
        sessions = self._intake.sessions
        if len(sessions) > sessions.limit and self._intake.forget_surplus():
            self._timers.wake(now)
        if self._closed is not None:
            return self._waiting.refuse(one, self._closed)
        backends = placement.candidates(one, pool.backends.values()) if pool is not None else ()
        if pool is None or not backends:
            return self._waiting.refuse(one, RefusalReason.NO_BACKEND)
        if account is not None and not account.takes(one.session):
            return self._waiting.refuse(one, RefusalReason.TOO_MANY_SESSIONS)
        if pool.line.holds_cold and (refused := self._waiting.turn_away(one, pool)) is not None:
            return refused
        lease = self._enter(one, pool, backends, now)
        if lease is not None:
            return Admitted(one.ticket, lease)
        return self._hold(one, pool, now)

    def _hold(self, turn: Turn, pool: Pool, now: float) -> Held | Refused:
        if self._waiting.is_full:
            return self._waiting.refuse(turn, RefusalReason.QUEUE_FULL)
        if turn.account is not None and turn.account.is_full:
            return self._waiting.refuse(turn, RefusalReason.TOO_MANY_HELD)
        self._waiting.hold(turn, pool, now)
        return Held(turn.ticket, turn.deadline)

    def finish(
        self,
        lease: Lease,
        outcome: Outcome,
        usage: Usage | None,
        *,
        finish_reason: FinishReason | None = None,
        first_token_at: float | None = None,
        now: float,
    ) -> Finished:
        """Take a lease back; raise ``ValueError`` for one that has ended already (invariant 2)."""
        turn, backend = self._end_lease(lease)
        finished = self._counts.finished
        finished[outcome] = finished.get(outcome, 0) + 1
        record = self._ledger.close(
            turn, outcome, usage, finish_reason=finish_reason, first_token_at=first_token_at, now=now
        )
        self._detach(turn, backend, outcome, now)
        if turn.facts.final:
            turn.session.ended = True
        if turn.account is not None and usage is not None:
            turn.account.spend(usage, now)
        if self._pools.learns:
            self._pools.finished(turn, usage)
        if self._pools.watch_at < math.inf:
            self._pools.heard(turn, outcome, first_token_at, now)
        if outcome is not Outcome.COMPLETED and outcome is not Outcome.CLIENT_ERROR:
            self._intake.tries.remember(turn.facts, turn.first_arrived_at)
        return Finished(record, self._settle(turn.session, backend, outcome, now))

    def requeue(
        self, lease: Lease, *, not_before: float, avoid: frozenset[BackendId] = frozenset(), now: float
    ) -> list[Decision]:
        """Put a running turn back among the held, its place in line kept: the engine was full, or is lost."""
        turn, backend = self._end_lease(lease)
        session = turn.session
        self._counts.requeued += 1
        self._detach(turn, backend, Outcome.OVERLOADED, now)
        if session.one_turn:
            self._places.give_up(session)
        elif session.idle:
            self._places.pause(session)
        turn.avoid, turn.not_before = avoid, not_before
        turn.history, turn.was_warm = 0, False
        pool = self._pools.get(turn.facts.pool)
        decisions: list[Decision] = []
        if self._closed is not None:
            decisions.append(self._waiting.refuse(turn, self._closed))
        elif pool is None or not placement.candidates(turn, pool.backends.values()):
            decisions.append(self._waiting.refuse(turn, RefusalReason.NO_BACKEND))
        else:
            self._waiting.hold(turn, pool, now)
        if backend.pool != turn.facts.pool:
            decisions += self._waiting.dispatch(turn.facts.pool, now)
        return decisions + self._waiting.dispatch(backend.pool, now)

    def abandon(self, ticket: int, *, now: float) -> list[Decision]:
        """The client of a held turn went away; raise ``KeyError`` where no such turn is held."""
        turn = self._waiting.turns[ticket]
        self._waiting.release(turn)
        self._counts.abandoned += 1
        if turn.facts.final:
            turn.session.ended = True
        self._intake.tries.remember(turn.facts, turn.first_arrived_at)
        self._intake.forget_if_nothing(turn.session)
        return self._waiting.dispatch(turn.facts.pool, now)

    def is_held(self, ticket: int) -> bool:
        return ticket in self._waiting.turns

    def group(self, ticket: int, topic: int) -> None:
        """Hear what a turn is about: where it is held it goes next to others about the same, if the order groups them.

        Nobody is let in by that.
        """
        turn = self._waiting.turns.get(ticket)
        pool = self._pools.get(turn.facts.pool) if turn is not None else None
        if turn is not None and pool is not None:
            pool.line.regroup(turn, topic)

    def end_session(self, key: SessionKey, *, now: float) -> list[Decision]:
        """The session says goodbye: its places are free, or will be when its turns have ended."""
        decisions: list[Decision] = []
        for pool in self._pools:
            session = self._intake.sessions.get(pool.id, key)
            if session is None:
                continue
            session.ended = True
            if session.is_over:
                self._intake.forget(session)
            decisions += self._waiting.dispatch(pool.id, now)
        return decisions

    def refuse_all(self, reason: RefusalReason, *, now: float) -> list[Decision]:  # noqa: ARG002
        """Refuse what is held, and whatever arrives from now on."""
        self._closed = reason
        return self._waiting.refuse_held(list(self._waiting.turns.values()), reason)

    def reopen(self) -> None:
        """Take turns again after ``refuse_all``."""
        self._closed = None

    def tick(self, *, now: float) -> list[Decision]:
        """Do what is due: longest waits, leases, turns that were to wait a while."""
        decisions: list[Decision] = []
        for item in self._timers.due(now):
            if isinstance(item, Turn):
                decisions += self._waiting.alarm(item, now)
            else:
                self._places.alarm(item, now)
        if self._pools.watch_at <= now:
            decisions += self._waiting.watch(now)
        return decisions + self._waiting.dispatch_all(now)

    def next_deadline(self) -> float | None:
        """Return when ``tick`` has something to do; it may turn out to be nothing."""
        due, watch_at = self._timers.next(), self._pools.watch_at
        if watch_at == math.inf or (due is not None and due <= watch_at):
            return due
        return watch_at

    # ------------------------------------------------------------------ what operators, health and the laws say

    @property
    def policy(self) -> GatePolicy:
        return self._policy

    def set_policy(self, policy: GatePolicy, *, now: float) -> list[Decision]:
        """Change the rules; held turns keep the deadline and the place in line that they have."""
        self._policy = self._places.policy = policy
        self._set_limits(now)
        self._intake.sessions.limit = policy.max_sessions
        self._intake.forget_surplus()
        self._pools.set_policy(policy)
        for backend in self._pools.backends():
            self._places.pause_surplus(backend)
        return self._waiting.dispatch_all(now)

    def add_backend(
        self,
        backend: BackendId,
        pool: PoolId,
        *,
        unit: Unit,
        window: float,
        now: float,
        minimum: float = 1.0,
        maximum: float = math.inf,
        capacity_tokens: float | None = None,
    ) -> list[Decision]:
        """Take in a backend; it takes turns from its ``UP`` on. Raise ``ValueError`` where it is here already."""
        state = Backend(backend, pool, unit, minimum=minimum, maximum=maximum)
        state.set_window(window)
        state.shadow.set_capacity(capacity_tokens)
        self._pools.add(state)
        return self._waiting.dispatch(pool, now)

    def remove_backend(self, backend: BackendId, *, now: float) -> list[Decision]:
        """Forget a backend; turns that run there may still finish."""
        state = self._pools.backend(backend)
        self._lose(state)
        self._pools.remove(state)
        return self._waiting.look_again(state.pool, now)

    def set_pool(self, backend: BackendId, pool: PoolId, *, now: float) -> list[Decision]:
        """Its models became known: it stands in for other backends now."""
        state = self._pools.backend(backend)
        before = state.pool
        if before == pool:
            return []
        self._pools.move(state, pool)
        for session in list(state.places):
            if not self._intake.sessions.move(session, pool) and session.idle:
                self._intake.forget(session)
        self._waiting.follow(before, pool)
        return [*self._waiting.look_again(before, now), *self._waiting.look_again(pool, now)]

    def set_capacity(self, backend: BackendId, capacity_tokens: float | None, *, now: float) -> None:
        self._admission.relocate(self._pools.backend(backend).shadow.set_capacity(capacity_tokens), now)

    def follow_cache(self, backend: BackendId, resident: Callable[[str], int | None], *, now: float) -> list[Decision]:
        """Believe the engine in what is cached: tokens by session id, None where it does not tell."""
        state = self._pools.backend(backend)
        self._admission.relocate(state.shadow.follow(resident), now)
        return self._waiting.dispatch(state.pool, now)

    def set_bounds(self, backend: BackendId, *, minimum: float, maximum: float, now: float) -> list[Decision]:
        state = self._pools.backend(backend)
        state.minimum, state.maximum = minimum, maximum
        return self._set_window(state, state.window, now)

    def set_unit(self, backend: BackendId, unit: Unit, window: float, *, now: float) -> list[Decision]:
        """Another law counts in another unit; every session keeps its place."""
        state = self._pools.backend(backend)
        state.set_unit(unit)
        return self._set_window(state, window, now)

    def resize(self, backend: BackendId, window: float, *, hard: bool = False, now: float) -> list[Decision]:
        """Set the window in force; ``hard``: it holds warm turns, too. A new period begins for ``view().bound``."""
        state = self._pools.backend(backend)
        state.hard = hard
        state.bound = False
        return self._set_window(state, window, now)

    def backend(self, backend: BackendId, event: BackendEvent, *, now: float) -> list[Decision]:
        """Hear what became of a backend."""
        state = self._pools.backend(backend)
        if event is BackendEvent.LOST:
            self._lose(state)
        elif event is BackendEvent.FLUSHED:
            state.shadow.flush()
        else:
            state.up = event is BackendEvent.UP
        return self._waiting.look_again(state.pool, now)

    # ------------------------------------------------------------------ one of several replicas

    def set_share(
        self,
        backend: BackendId,
        window: float,
        *,
        whole: float,
        hard: bool = False,
        elsewhere: int = 0,
        may_have_room: bool = False,
        wanted_beside: float | None = None,
        now: float,
    ) -> list[Decision]:
        """Set this replica's share of a window that is ``whole``: no session runs alone unless it is all of it.

        ``elsewhere``: turns that other replicas run there. ``may_have_room``: they may have room to give.
        ``wanted_beside``: what is active at others, where turns wait at them for room.
        """
        state = self._pools.backend(backend)
        state.whole, state.may_have_room = whole, may_have_room
        state.set_window(window)
        state.see_elsewhere(elsewhere, now)
        if wanted_beside is not None:
            self._places.give_back(state, wanted_beside, now=now)
        return self.resize(backend, window, hard=hard, now=now)

    def asked(self, backend: BackendId, *, now: float) -> Asked:
        """Return what this replica would have of a window."""
        state = self._pools.backend(backend)
        pool = self._pools.get(state.pool)
        line = pool.line if pool is not None else None
        return demand.of(state, self._waiting.turns.values(), line, self._ledger, now=now)

    def has_room(self, pool: PoolId) -> bool:
        """Tell whether a turn of a session that nobody knows would hardly be held: nobody is, and a usual one fits."""
        state = self._pools.get(pool)
        if state is None or self._waiting.turns:
            return state is None
        return any(backend.up and backend.fits(math.ceil(backend.one)) for backend in state.backends.values())

    def pool_of(self, backend: BackendId) -> PoolId | None:
        """Return the pool of a backend, None where it is not here."""
        return next((state.pool for state in self._pools.backends() if state.id == backend), None)

    def pool_ids(self) -> list[PoolId]:
        return [pool.id for pool in self._pools]

    def on_cold_lane(self, tell: Callable[[PoolId, ColdLane, float | None], None]) -> None:
        """Have told what becomes of cold turns in a pool from now on, and the p99 of hot ones that decided it."""
        self._waiting.on_cold_lane = tell

    def on_paused(self, tell: Callable[[PoolId, SessionKey], None]) -> None:
        """Have sessions told that lose their place between two turns."""
        self._places.on_paused = lambda session: tell(session.pool, session.key)

    def on_vacated(self, tell: Callable[[BackendId, PoolId, SessionKey, int], None]) -> None:
        """Have places told that idle sessions lose, and their tokens: their room stays taken until ``free``."""

        def vacated(session: Session, backend: Backend, tokens: int) -> None:
            tell(backend.id, session.pool, session.key, tokens)

        self._places.on_vacated = vacated

    def free(self, places: Sequence[tuple[BackendId, int]], *, now: float) -> list[Decision]:
        """Let others have the room of places that sessions have lost: no other replica has them."""
        here = {state.id: state for state in self._pools.backends()}
        for backend, tokens in places:
            if backend in here and here[backend].vacated:
                here[backend].free(tokens)
        return self._waiting.dispatch_all(now)

    def session_state(self, pool: PoolId, key: SessionKey, *, now: float) -> SessionState | None:
        """Return what is known of a session; None where nothing is."""
        session = self._intake.sessions.get(pool, key)
        return None if session is None else handover.state_of(session, now=now)

    def take_in(self, state: SessionState, *, place: float, now: float) -> list[Decision]:
        """Know a session that another replica has known. ``place``: what of the window comes with it, 0 for nothing."""
        sessions = self._intake.sessions
        session = sessions.get(state.pool, state.key)
        if session is None:
            session = Session(state.key, state.pool)
            sessions.keep(session)
        origin = next((each for each in self._pools.backends() if each.id == state.origin), None)
        handover.learn(session, state, origin, now=now)
        self._intake.came_back(session)
        if origin is not None:
            origin.set_window(origin.window + place)
        if origin is None or not origin.up or session.place is not None or session.running:
            session.paused = session.place is None and session.footprint > 0
            self._waiting.reconsider(session)
            return self._waiting.dispatch(state.pool, now)
        tokens = state.charged_tokens or origin.own(session, session.footprint)
        origin.shadow.take_in(session, tokens)
        if not place:
            session.paused = session.footprint > 0
            self._waiting.reconsider(session)
            return self._waiting.dispatch(state.pool, now) if session.held else []
        self._places.restore(session, origin, tokens, state.lease_s, now)
        return [*self._pass_on(session, origin, now), *self._waiting.dispatch(state.pool, now)]

    def let_go(self, pool: PoolId, key: SessionKey) -> None:
        """Another replica has the session now; where a turn of it runs here, it is forgotten with that turn.

        Room that this makes is not ours: ``set_share`` comes next.
        """
        session = self._intake.sessions.get(pool, key)
        if session is None:
            return
        if session.running or session.held:
            session.ended = True
            return
        if session.origin is not None:
            session.origin.shadow.forget(session)
        self._places.let_go(session)
        self._intake.sessions.drop(session)

    def _set_limits(self, now: float) -> None:
        rules = self._policy.limits
        if not rules or self._policy.mode == "observe":
            self._limits = None
        elif self._limits is None:
            self._limits = Limits(rules)
        else:
            self._limits.set_rules(rules, now)

    # ------------------------------------------------------------------ how a turn gets in

    def _enter(self, turn: Turn, pool: Pool, backends: Sequence[Backend], now: float) -> Lease | None:
        """Let an arriving turn in where the rules and those who wait permit it."""
        session, admission = turn.session, self._admission
        held_back = pool.line.holds_cold and pool.line.holds(turn)
        if session.idle and session.place is backends[0]:
            lease = None if held_back else admission.ride(turn, backends[0], now)
            if lease is not None or self._waiting.is_full:
                return lease
            self._places.pause(session)
            self._timers.wake(now)
            backends = placement.candidates(turn, pool.backends.values())
        if held_back:
            turn.donors = self._intake.relatives(session)
            return None
        free = pool.line.open_to(turn, backends)
        lease = self._enter_for_relative(turn, free, now) or admission.enter(turn, free, now)
        if lease is None and self._policy.mode == "observe":
            return admission.enter_anyway(turn, backends[0], AdmitWhy.OBSERVED, now)
        if lease is None and free:
            pool.line.reserve(free[0], turn)
        return lease

    def _enter_for_relative(self, turn: Turn, free: Sequence[Backend], now: float) -> Lease | None:
        """Let a turn that would have to wait take the place of its parent, or its own from who has borrowed it."""
        turn.donors = self._intake.relatives(turn.session)
        if not turn.donors or self._admission.has_room(turn, free):
            return None
        leases = (self._admission.enter_for(turn, donor, now) for donor in turn.donors)
        return next((lease for lease in leases if lease is not None), None)

    # ------------------------------------------------------------------ how a turn ends

    def _end_lease(self, lease: Lease) -> tuple[Turn, Backend]:
        turn = self._admission.running.pop(lease.id, None)
        if turn is None:
            raise ValueError(f"lease {lease.id} has ended already")
        assert turn.backend is not None
        return turn, turn.backend

    def _detach(self, turn: Turn, backend: Backend, outcome: Outcome, now: float) -> None:
        """Take a turn out of what runs; where its session runs nothing more, ``_settle`` decides on the place."""
        session = turn.session
        session.running = tuple(other for other in session.running if other is not turn)
        rode = not turn.is_branch
        backend.end(turn, now)
        if rode and session.running:
            self._places.promote(session)
        if outcome is Outcome.BACKEND_LOST or not (session.footprint or outcome in COMPUTED):
            left = 0
        else:
            left = backend.own(session, session.footprint or turn.tokens)
        if cooled := backend.shadow.end(session, turn.tokens, left):
            self._admission.relocate(cooled, now)

    def _settle(self, session: Session, backend: Backend, outcome: Outcome, now: float) -> list[Decision]:
        """A turn has ended: its session runs on, waits for its agent, or is gone. See who may go now."""
        decisions: list[Decision] = []
        if not session.running and session.place is not None:
            decisions += self._rest_or_leave(session, session.place, outcome, now)
        if session.is_over:
            self._intake.forget(session)
        for turn in session.held.values():
            self._pools.line_up_anew(turn)
        return decisions + self._waiting.dispatch(backend.pool, now)

    def _rest_or_leave(self, session: Session, place: Backend, outcome: Outcome, now: float) -> list[Decision]:
        """Let a session that nothing runs for keep its place, if it has left a context there and will need it."""
        has_context = session.footprint > 0 and outcome is not Outcome.BACKEND_LOST
        if session.footprint:
            tokens = place.own(session, session.footprint)
            place.recharge(session, tokens)
            place.typical.add(tokens)
        if session.is_over or not has_context or not place.up:
            place.departed += session.is_over
            self._places.give_up(session)
            session.paused = session.footprint > 0 and not session.one_turn
            return []
        self._places.rest(session, outcome, now)
        return self._pass_on(session, place, now)

    def _pass_on(self, session: Session, place: Backend, now: float) -> list[Decision]:
        """Offer a place that has fallen idle to those who need not stand in line for it: its own turns, its heirs."""
        for turn in session.held.values():
            if turn.lane is not None and placement.may_run(turn, place) and not self._pools.holds(turn):
                lease = self._admission.ride(turn, place, now)
                if lease is None:
                    self._places.pause(session)
                    return []
                return [self._waiting.admitted(turn, lease)]
        for heir in session.heirs.values() if session.heirs else ():
            if heir.lane is None or self._pools.holds(heir):
                continue
            if (lease := self._admission.enter_for(heir, session, now)) is not None:
                return [self._waiting.admitted(heir, lease)]
        self._places.pause_surplus(place)
        return []

    # ------------------------------------------------------------------ places and windows

    def _set_window(self, state: Backend, window: float, now: float) -> list[Decision]:
        state.set_window(window)
        self._places.pause_surplus(state)
        return self._waiting.dispatch(state.pool, now)

    def _lose(self, state: Backend) -> None:
        """The engine is gone, and all contexts with it; what runs there will end by itself."""
        state.up = False
        state.shadow.flush()
        for session in list(state.idle):
            self._places.pause(session)

    # ------------------------------------------------------------------ pictures

    def view(self, backend: BackendId, *, now: float) -> WindowView:
        """Return a backend as its law sees it."""
        state = self._pools.backend(backend)
        return pictures.window_view(state, held=self._pools.held(state.pool), now=now)

    def snapshot(self, *, now: float) -> GateSnapshot:
        """Return the books."""
        counts = self._counts
        backends = {
            state.id: pictures.backend_snapshot(state, held=self._pools.held(state.pool))
            for state in self._pools.backends()
        }
        return GateSnapshot(
            arrived=counts.arrived,
            admitted=sum(counts.finished.values()) + len(self._admission.running),
            running=len(self._admission.running),
            finished=dict(counts.finished),
            held=len(self._waiting.turns),
            refused=dict(counts.refused),
            abandoned=counts.abandoned,
            admitted_by=dict(counts.admitted_by),
            requeued=counts.requeued,
            paused=counts.paused,
            resumed=counts.resumed,
            reclaimed=counts.reclaimed,
            leases_expired=counts.leases_expired,
            sessions=len(self._intake.sessions),
            backends=backends,
            held_paused=len(self._waiting.paused),
            longest_wait_s=self._waiting.longest_wait_s(now),
            hot_lanes=pictures.hot_lanes(self._pools),
            cold_lane_changes=dict(counts.cold_lane),
        )

    def sessions(self, *, now: float, limit: int = 1000) -> list[SessionView]:
        """Return sessions, those seen last first."""
        newest = islice(self._intake.sessions.newest_first(), limit)
        return [pictures.session_view(session, now=now) for session in newest]

    def find_sessions(self, query: listing.Query, *, now: float) -> Iterator[listing.Found | None]:
        """Look for one page of the sessions that are not gone: yield None after each part, at last the page."""
        search = listing.Search(query, now=now)
        for part in self._session_parts():
            search.show(part)
            yield None
        yield search.found()

    def session_states(self) -> Iterator[Counter[str] | None]:
        """Count how many sessions are in each state: yield None after each part, at last the counts."""
        counts: Counter[str] = Counter()
        for part in self._session_parts():
            listing.states(part, counts)
            yield None
        yield counts

    def _session_parts(self) -> Iterator[list[Session]]:
        every = list(self._intake.sessions.newest_first())
        return (every[start : start + listing.PART] for start in range(0, len(every), listing.PART))

    @property
    def session_count(self) -> int:
        """Sessions that are remembered, gone ones included."""
        return len(self._intake.sessions)

    def keys_of(self, session_id: str, namespace: str | None) -> list[SessionKey]:
        """Return the sessions with an id, in one namespace or (None) in all; one key for each pool that has it."""
        table = self._intake.sessions
        if namespace is None:
            return [session.key for session in table.newest_first() if session.key.id == session_id]
        key = SessionKey(namespace, session_id)
        return [key for pool in self._pools if table.get(pool.id, key) is not None]

    def held_turns(self, *, now: float, limit: int = 100) -> list[HeldView]:
        """Return the turns that have waited longest."""
        return listing.held(self._waiting.turns.values(), now=now, limit=limit)
