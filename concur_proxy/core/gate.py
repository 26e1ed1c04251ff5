"""Who may run: the state machine of turns and places. No clock, no I/O: time comes as ``now=``, decisions are returned.

A *place* is a session's share of its backend's window; a *lease* is one turn's right to run.

    turn     arrive ─▶ held ─▶ running ─▶ finished        session   held ─▶ running ⇄ idle ─▶ gone
                        │ ▲       │                                  ▲ paused ◀──┘
                        │ └requeue┘
                        └─▶ refused | abandoned

Rules
- A turn of a session with a place passes. Where a law has shrunk the window below what is active, it passes while the
  session's context is warm by the shadow, and is held, as paused, when it is cold or the limit is hard.
- Any other turn needs room: its charge and what is active must fit the window; a turn that fits no window runs alone.
- A second turn of a session at the same time is a branch and needs room of its own.
- Held turns go in the order of ``queue``; one that does not fit keeps those behind it from the backends it may use.
- An idle place is given up when its lease runs out, when its session ends, when a child needs it, and when turns wait
  while the engine runs nothing, or little and the session is overdue.

Invariants
1. arrived = admitted + held + refused + abandoned; admitted = running + finished.
2. A lease ends exactly once.
3. No grant beyond the window but those whose ``why`` says so: warm, oversize, forced, observed.
4. After any call no turn waits beside room that it may use, nor for an idle place beside an engine that runs nothing.
5. minimum <= window <= maximum.
9. Nothing here grows without bound.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import Literal

from concur_proxy.core import placement
from concur_proxy.core.backend import Backend
from concur_proxy.core.footprint import FootprintEstimator
from concur_proxy.core.queue import HeldQueue, HeldTurn
from concur_proxy.core.report import BackendSnapshot, GateSnapshot, SessionView
from concur_proxy.core.sessions import Session, SessionTable
from concur_proxy.core.timers import Timers
from concur_proxy.model import (
    Admitted,
    AdmitWhy,
    BackendEvent,
    BackendId,
    FinishReason,
    Held,
    Lease,
    Outcome,
    PoolId,
    RefusalReason,
    Refused,
    SessionKey,
    TurnFacts,
    TurnRecord,
    Usage,
)
from concur_proxy.windows.base import Unit, WindowView

Decision = Admitted | Refused

READ_TIMEOUT_SHARE = 0.9
"""Refused in time for the client to hear it."""

HEAD_START = 0.5
"""Share of the longest wait that paused sessions go ahead of new ones."""

RETRIES = 10_000
SCAN = 128
FAR_BELOW = 0.25
"""An engine that runs less than this share of its recent peak has room for more."""

STOP_LEASE = 0.5
"""A session whose last answer was final is less likely to come back."""


@dataclass(frozen=True, slots=True)
class GatePolicy:
    """Settings of the gate, with the settings tree's names and meanings."""

    mode: Literal["enforce", "observe"] = "enforce"
    pause: Literal["lazy", "eager"] = "lazy"
    max_wait_s: float = 540.0
    force_after_max_wait: bool = False
    max_held: int = 20_000
    lease_min_s: float = 30.0
    lease_max_s: float = 600.0
    max_sessions: int = 100_000
    retry_after_s: float = 2.0


@dataclass(frozen=True, slots=True)
class Finished:
    """The record of a finished turn, and what its end has decided."""

    record: TurnRecord
    decisions: list[Decision]


@dataclass(slots=True, eq=False)
class _Running:
    """An admitted turn with what it counts for beyond its session's place."""

    lease: Lease
    held: HeldTurn
    branch_tokens: float | None
    was_warm: bool


class Gate:
    """One per proxy. Every method returns what it decided about turns that waited."""

    def __init__(self, policy: GatePolicy) -> None:
        self._policy = policy
        self._backends: dict[BackendId, Backend] = {}
        self._queues: dict[PoolId, HeldQueue] = {}
        self._held: dict[int, HeldTurn] = {}
        self._running: dict[int, _Running] = {}
        self._sessions = SessionTable(policy.max_sessions)
        self._first_tries: OrderedDict[tuple[SessionKey, int], float] = OrderedDict()
        self._timers = Timers()
        self._estimator = FootprintEstimator()
        self._closed: RefusalReason | None = None
        self._tickets = self._leases = 0
        self._arrived = self._abandoned = self._requeued = 0
        self._paused = self._resumed = self._reclaimed = self._expired = 0
        self._admitted_by: Counter[AdmitWhy] = Counter()
        self._finished: Counter[Outcome] = Counter()
        self._refused: Counter[RefusalReason] = Counter()

    # ------------------------------------------------------------------ what an operator and the control loop change

    @property
    def policy(self) -> GatePolicy:
        return self._policy

    def set_policy(self, policy: GatePolicy, *, now: float) -> list[Decision]:
        """Change the rules; held turns keep the deadline they were told."""
        self._policy = policy
        self._sessions.limit = policy.max_sessions
        for queue in self._queues.values():
            queue.head_start_s = HEAD_START * policy.max_wait_s
        return self._dispatch_all(now)

    def add_backend(
        self,
        backend: BackendId,
        pool: PoolId,
        *,
        unit: Unit,
        window: float,
        minimum: float = 1.0,
        maximum: float = math.inf,
        capacity_tokens: float | None = None,
        now: float,
    ) -> list[Decision]:
        """Take in a backend; it takes turns from its ``UP`` on."""
        state = self._backends[backend] = Backend(backend, pool, unit)
        state.minimum, state.maximum = minimum, maximum
        state.set_window(window)
        state.shadow.capacity = capacity_tokens
        return self._dispatch(pool, now)

    def remove_backend(self, backend: BackendId, *, now: float) -> list[Decision]:
        """Forget a backend; turns that run there may still finish."""
        state = self._backends[backend]
        decisions = self._lose(state, now)
        state.removed = True
        del self._backends[backend]
        return decisions

    def set_pool(self, backend: BackendId, pool: PoolId, *, now: float) -> list[Decision]:
        """Its models became known: it stands in for other backends now."""
        state = self._backends[backend]
        before, state.pool = state.pool, pool
        return [*self._refuse_hopeless(before, now), *self._dispatch(pool, now)]

    def set_capacity(self, backend: BackendId, capacity_tokens: float | None, *, now: float) -> None:  # noqa: ARG002
        self._backends[backend].shadow.capacity = capacity_tokens

    def set_bounds(self, backend: BackendId, *, minimum: float, maximum: float, now: float) -> list[Decision]:
        state = self._backends[backend]
        state.minimum, state.maximum = minimum, maximum
        state.set_window(state.window)
        return self._dispatch(state.pool, now)

    def set_unit(self, backend: BackendId, unit: Unit, window: float, *, now: float) -> list[Decision]:
        """Another law counts in another unit; every session keeps its place."""
        state = self._backends[backend]
        state.unit = unit
        state.set_window(window)
        return self._dispatch(state.pool, now)

    def resize(self, backend: BackendId, window: float, *, hard: bool = False, now: float) -> list[Decision]:
        """Set the window in force; ``hard``: it holds warm turns, too."""
        state = self._backends[backend]
        state.bound = False
        state.hard = hard
        state.set_window(window)
        self._pause_surplus(state)
        return self._dispatch(state.pool, now)

    def backend(self, backend: BackendId, event: BackendEvent, *, now: float) -> list[Decision]:
        """Hear what became of a backend."""
        state = self._backends[backend]
        if event is BackendEvent.UP:
            state.up = True
            return self._dispatch(state.pool, now)
        if event is BackendEvent.FLUSHED:
            state.shadow.flush()
            return self._dispatch(state.pool, now)
        if event is BackendEvent.LOST:
            return self._lose(state, now)
        state.up = False
        return self._refuse_hopeless(state.pool, now)

    # ------------------------------------------------------------------ turns

    def arrive(
        self, turn: TurnFacts, *, now: float, avoid: frozenset[BackendId] = frozenset()
    ) -> Admitted | Held | Refused:
        """Decide about a turn; where it is held, the answer comes from a later call."""
        self._arrived += 1
        self._tickets += 1
        held = self._new_turn(self._tickets, turn, avoid, now)
        if self._closed is not None:
            return self._refuse(held, self._closed)
        if not placement.candidates(held, self._pool(turn.pool)):
            return self._refuse(held, RefusalReason.NO_BACKEND)
        self._borrow_from_parent(held)
        queue = self._queue(turn.pool)
        if held.session.place or queue.waiting == 0 or self._policy.mode == "observe":
            running = self._try(held, now)
            if running is not None:
                return Admitted(held.ticket, running.lease)
        if len(self._held) >= self._policy.max_held:
            return self._refuse(held, RefusalReason.QUEUE_FULL)
        return self._hold(held, queue, now)

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
        running = self._end_lease(lease)
        self._finished[outcome] += 1
        session, state = running.held.session, self._state_of(lease.backend)
        history = session.footprint or None
        expected = self._account(running, usage, state)
        record = TurnRecord(
            backend=lease.backend,
            session=session.key,
            outcome=outcome,
            arrived_at=lease.arrived_at,
            admitted_at=lease.admitted_at,
            finished_at=now,
            first_token_at=first_token_at,
            think_s=self._think_time(session, running.held),
            usage=usage,
            expected_cached_tokens=expected if history else None,
            finish_reason=finish_reason,
        )
        session.finished_at, session.finish_reason, session.turns = now, finish_reason, session.turns + 1
        if outcome is not Outcome.COMPLETED:
            self._remember_try(running.held, now)
        if state is None:
            self._leave_table_if_one_turn(session)
            return Finished(record, [])
        state.record_at = now
        self._settle(session, state, lost=outcome is Outcome.BACKEND_LOST, now=now)
        return Finished(record, self._dispatch(state.pool, now))

    def requeue(
        self, lease: Lease, *, not_before: float, avoid: frozenset[BackendId] = frozenset(), now: float
    ) -> list[Decision]:
        """Put a running turn back among the held, its place in line kept: the engine was full, or is lost."""
        running = self._end_lease(lease)
        held, state = running.held, self._state_of(lease.backend)
        self._requeued += 1
        held.avoid, held.not_before = avoid, not_before
        session = held.session
        if state is not None and session.place and session.running == 0:
            self._pause(session, state)
        self._held[held.ticket] = held
        session.held += 1
        self._timers.add(held.deadline, held)
        if not placement.candidates(held, self._pool(held.turn.pool)):
            self._unhold(held)
            return [self._refuse(held, RefusalReason.NO_BACKEND), *(self._dispatch(state.pool, now) if state else [])]
        if not_before > now:
            self._timers.add(not_before, held)
        else:
            self._queue(held.turn.pool).push(held)
        decisions = self._dispatch(held.turn.pool, now)
        if state is not None and state.pool != held.turn.pool:
            decisions += self._dispatch(state.pool, now)
        return decisions

    def abandon(self, ticket: int, *, now: float) -> list[Decision]:
        """The client of a held turn went away; raise ``KeyError`` where no such turn is held."""
        held = self._held[ticket]
        self._unhold(held)
        self._abandoned += 1
        self._remember_try(held, now)
        self._leave_table_if_one_turn(held.session)
        return self._dispatch(held.turn.pool, now)

    def end_session(self, key: SessionKey, *, now: float) -> list[Decision]:
        """The session says goodbye: its place is free, or will be when its running turn ends."""
        session = self._sessions.get(key)
        if session is None:
            return []
        state = self._state_of(session.backend)
        if session.running:
            session.ended = True
            return []
        if session.place and state is not None:
            state.take_place(session)
            state.shadow.forget(key)
        if not session.held:
            self._sessions.drop(session)
        return self._dispatch(state.pool, now) if state is not None else []

    def refuse_all(self, reason: RefusalReason, *, now: float) -> list[Decision]:  # noqa: ARG002
        """Refuse what is held, and whatever arrives from now on."""
        self._closed = reason
        held = list(self._held.values())
        for one in held:
            self._unhold(one)
        return [self._refuse(one, reason) for one in held]

    def tick(self, *, now: float) -> list[Decision]:
        """Do what is due: longest waits, leases, turns that were to wait a while."""
        decisions: list[Decision] = []
        pools: set[PoolId] = {pool for pool, queue in self._queues.items() if queue.waiting}
        for item in self._timers.due(now):
            if isinstance(item, HeldTurn):
                decisions += self._held_due(item, now)
                pools.add(item.turn.pool)
            elif isinstance(item, Session) and (pool := self._lease_due(item, now)) is not None:
                pools.add(pool)
        for pool in pools:
            decisions += self._dispatch(pool, now)
        return decisions

    def next_deadline(self) -> float | None:
        """Return when ``tick`` has something to do; it may turn out to be nothing."""
        return self._timers.next()

    # ------------------------------------------------------------------ how a turn gets in

    def _new_turn(self, ticket: int, turn: TurnFacts, avoid: frozenset[BackendId], now: float) -> HeldTurn:
        session = self._session_of(turn, ticket, now)
        wait = self._policy.max_wait_s
        if turn.read_timeout_s is not None:
            wait = min(wait, READ_TIMEOUT_SHARE * turn.read_timeout_s)
        first = self._first_tries.pop((session.key, turn.body_digest), now) if self._first_tries else now
        if now - first > 2.0 * self._policy.max_wait_s:
            first = now
        return HeldTurn(ticket, turn, session, now, first, now + wait, avoid)

    def _session_of(self, turn: TurnFacts, ticket: int, now: float) -> Session:
        key = turn.session
        if key is None:
            return Session(
                SessionKey("", f"turn-{ticket}"), turn.rule, turn.parent, True, now, prefix_key=turn.prefix_key
            )
        session = self._sessions.get(key)
        if session is None:
            session = Session(key, turn.rule, turn.parent, False, now, prefix_key=turn.prefix_key)
        session.seen_at = now
        session.ended = session.ended or turn.final
        self._sessions.touch(session)
        while (surplus := self._sessions.surplus()) is not None:
            self._forget(surplus)
        return session

    def _forget(self, session: Session) -> None:
        state = self._state_of(session.backend)
        if session.place and state is not None:
            state.take_place(session)
        self._sessions.drop(session)

    def _try(self, held: HeldTurn, now: float) -> _Running | None:
        """Admit the turn where the rules permit it."""
        for state in placement.candidates(held, self._pool(held.turn.pool)):
            why = self._why(held, state, now)
            if why is not None:
                return self._admit(held, state, why, now)
            state.bound = True
        if self._policy.mode == "observe":
            return self._admit(held, placement.candidates(held, self._pool(held.turn.pool))[0], AdmitWhy.OBSERVED, now)
        return None

    def _why(self, held: HeldTurn, state: Backend, now: float) -> AdmitWhy | None:
        """Return why the turn may run on this backend now; None: it may not."""
        session = held.session
        if session.place and session.backend == state.id and session.running == 0:
            return self._why_active(session, state)
        charge = state.charge(self._tokens(held, state))
        while not state.has_room(charge):
            if state.load == 0.0 and state.running == 0:
                return AdmitWhy.OVERSIZE
            if self._policy.mode == "observe" or not self._reclaim(state, now):
                return None
        return AdmitWhy.WINDOW

    def _why_active(self, session: Session, state: Backend) -> AdmitWhy | None:
        if not state.is_over():
            return AdmitWhy.WINDOW
        if len(state.places) == 1 and state.branches == 0:
            return AdmitWhy.OVERSIZE
        if not state.hard and state.shadow.is_warm(session.key, session.footprint):
            return AdmitWhy.WARM
        return None

    def _tokens(self, held: HeldTurn, state: Backend) -> float:
        session = held.session
        footprint = self._estimator.footprint(held.turn, session.footprint or None)
        session.prefix_tokens = session.prefix_tokens or state.prefix_of(session)
        return state.own_tokens(session, footprint)

    def _admit(self, held: HeldTurn, state: Backend, why: AdmitWhy, now: float) -> _Running:
        session = held.session
        footprint = self._estimator.footprint(held.turn, session.footprint or None)
        was_warm = state.id == session.backend and state.shadow.is_warm(session.key, session.footprint)
        branch = None
        if session.running or (session.place and session.backend != state.id):
            branch = footprint
            state.branches += 1
            state.branch_tokens += footprint
        else:
            if session.paused:
                self._resumed += 1
            if session.place:
                state.recharge(session, footprint)
                state.idle.pop(session.key, None)
            else:
                state.give_place(session, footprint)
        session.running += 1
        session.seen_at = now
        state.running += 1
        state.peak_running.see(state.running, now=now)
        state.shadow.start(session.key, footprint)
        self._admitted_by[why] += 1
        self._leases += 1
        lease = Lease(self._leases, held.turn, session.key, state.id, held.arrived_at, now, why)
        running = self._running[lease.id] = _Running(lease, held, branch, was_warm)
        return running

    def _borrow_from_parent(self, held: HeldTurn) -> None:
        """A child takes the place of its idle parent: the parent waits for it, and would wait for ever otherwise."""
        session = held.session
        if session.parent is None or session.place or session.running:
            return
        parent = self._sessions.get(session.parent)
        state = self._state_of(parent.backend) if parent is not None else None
        if parent is None or state is None or not parent.idle or state.id in held.avoid:
            return
        if not state.has_room(state.charge(self._tokens(held, state))):
            self._pause(parent, state)

    # ------------------------------------------------------------------ held turns

    def _hold(self, held: HeldTurn, queue: HeldQueue, now: float) -> Held:
        session, state = held.session, self._state_of(held.session.backend)
        if session.idle and state is not None:
            self._pause(session, state)
        self._held[held.ticket] = held
        session.held += 1
        queue.push(held)
        self._timers.add(held.deadline, held)
        self._timers.add(now, None)  # a place that was given up just now may suit somebody
        return Held(held.ticket, held.deadline)

    def _unhold(self, held: HeldTurn) -> None:
        del self._held[held.ticket]
        held.session.held -= 1
        self._queue(held.turn.pool).discard(held)

    def _held_due(self, held: HeldTurn, now: float) -> list[Decision]:
        if held.ticket not in self._held:
            return []
        if held.deadline <= now:
            self._unhold(held)
            return [self._overdue(held, now)]
        if not held.waiting and held.not_before <= now:
            self._queue(held.turn.pool).push(held)
        return []

    def _overdue(self, held: HeldTurn, now: float) -> Decision:
        able = placement.candidates(held, self._pool(held.turn.pool))
        if self._policy.force_after_max_wait and able:
            return Admitted(held.ticket, self._admit(held, able[0], AdmitWhy.FORCED, now).lease)
        self._remember_try(held, now)
        return self._refuse(held, RefusalReason.QUEUE_TIMEOUT)

    def _refuse(self, held: HeldTurn, reason: RefusalReason) -> Refused:
        self._refused[reason] += 1
        self._leave_table_if_one_turn(held.session)
        return Refused(held.ticket, reason, self._policy.retry_after_s)

    def _refuse_hopeless(self, pool: PoolId, now: float) -> list[Decision]:
        """Refuse what waits in a pool where nobody is up any more."""
        if any(state.up for state in self._pool(pool)):
            return self._dispatch(pool, now)
        hopeless = [held for held in self._held.values() if held.turn.pool == pool]
        for held in hopeless:
            self._unhold(held)
        return [self._refuse(held, RefusalReason.NO_BACKEND) for held in hopeless]

    def _dispatch_all(self, now: float) -> list[Decision]:
        return [decision for pool in list(self._queues) for decision in self._dispatch(pool, now)]

    def _dispatch(self, pool: PoolId, now: float) -> list[Decision]:
        """Admit held turns in their order until every backend of the pool is full (invariant 4)."""
        queue = self._queues.get(pool)
        if queue is None or queue.waiting == 0:
            return []
        decisions: list[Decision] = []
        able = {state.id for state in self._pool(pool) if state.up}
        for held in queue.in_order(SCAN):
            wanted = {state.id for state in placement.candidates(held, self._pool(pool))}
            if wanted & able:
                running = self._try_within(held, able, now)
                if running is None:
                    able -= wanted
                else:
                    self._unhold(held)
                    decisions.append(Admitted(held.ticket, running.lease))
            if not able:
                break
        return decisions

    def _try_within(self, held: HeldTurn, able: set[BackendId], now: float) -> _Running | None:
        avoid, held.avoid = held.avoid, held.avoid | (self._backends.keys() - able)
        try:
            return self._try(held, now)
        finally:
            held.avoid = avoid

    # ------------------------------------------------------------------ places

    def _pause(self, session: Session, state: Backend) -> None:
        state.take_place(session)
        if not session.one_turn:
            session.paused = True
            self._paused += 1

    def _pause_surplus(self, state: Backend) -> None:
        """Pause eagerly, where that is the policy: idle sessions over the window lose their places."""
        if self._policy.pause != "eager" or self._policy.mode == "observe":
            return
        while state.is_over() and state.idle:
            self._pause(next(iter(state.idle.values())), state)

    def _reclaim(self, state: Backend, now: float) -> bool:
        """Free the longest idle place where the engine would wait for nothing otherwise."""
        if not state.idle:
            return False
        longest = next(iter(state.idle.values()))
        overdue = self._is_overdue(longest, state, now)
        if state.running == 0 or (
            overdue and state.running < FAR_BELOW * state.peak_running.see(state.running, now=now)
        ):
            self._pause(longest, state)
            self._reclaimed += 1
            return True
        return False

    @staticmethod
    def _is_overdue(session: Session, state: Backend, now: float) -> bool:
        think = session.think if session.think.count else state.think
        return session.finished_at is not None and now - session.finished_at > think.mean

    def _settle(self, session: Session, state: Backend, *, lost: bool, now: float) -> None:
        """A turn has ended: its session waits for its agent now, or is gone."""
        over = session.one_turn or session.ended
        if session.place and session.running == 0 and session.backend == state.id:
            if over or lost or not state.up:
                state.take_place(session)
            else:
                state.idle[session.key] = session
                self._start_lease(session, state, now)
                self._pause_surplus(state)
        if over and session.running == 0 and session.held == 0:
            self._sessions.drop(session)

    def _start_lease(self, session: Session, state: Backend, now: float) -> None:
        policy = self._policy
        upper = session.think.upper() or state.think.upper()
        lease = policy.lease_max_s if upper is None else upper
        if session.finish_reason is FinishReason.STOP:
            lease *= STOP_LEASE
        session.lease_until = now + min(max(lease, policy.lease_min_s), policy.lease_max_s)
        if session.timer_at is None or session.timer_at > session.lease_until:
            session.timer_at = session.lease_until
            self._timers.add(session.lease_until, session)

    def _lease_due(self, session: Session, now: float) -> PoolId | None:
        """End the lease of an idle session; return the pool that has room now."""
        session.timer_at = None
        state = self._state_of(session.backend)
        if not session.idle or state is None:
            return None
        if session.lease_until > now:
            session.timer_at = session.lease_until
            self._timers.add(session.lease_until, session)
            return None
        state.take_place(session)
        self._expired += 1
        return state.pool

    def _lose(self, state: Backend, now: float) -> list[Decision]:
        """The engine is gone, and all contexts with it."""
        state.up = False
        state.shadow.flush()
        for session in list(state.idle.values()):
            self._pause(session, state)
        return self._refuse_hopeless(state.pool, now)

    # ------------------------------------------------------------------ accounts

    def _end_lease(self, lease: Lease) -> _Running:
        running = self._running.pop(lease.id, None)
        if running is None:
            raise ValueError(f"lease {lease.id} has ended already")
        session, state = running.held.session, self._state_of(lease.backend)
        session.running -= 1
        if state is not None:
            state.running -= 1
            if running.branch_tokens is not None:
                state.branches -= 1
                state.branch_tokens = state.branch_tokens - running.branch_tokens if state.branches else 0.0
            state.shadow.release(session.key, session.footprint or 1.0, keep=not session.one_turn)
        return running

    def _account(self, running: _Running, usage: Usage | None, state: Backend | None) -> int | None:
        """Take in what the engine counted; return the cached tokens that an undisturbed cache would have given."""
        if usage is None or state is None:
            return None
        session, turn = running.held.session, running.held.turn
        history = session.footprint
        expected = self._estimator.expected_cached(history, usage.prompt_tokens) if history else 0
        self._estimator.learn(turn, usage, history=history or None, was_warm=running.was_warm)
        if usage.cached_tokens is not None:
            self._compare(running, state, usage.cached_tokens, expected)
        if running.branch_tokens is None or not session.footprint:
            session.footprint = float(usage.prompt_tokens + usage.completion_tokens)
            state.recharge(session, session.footprint)
            state.mean_footprint.add(session.footprint)
            if not session.running and not session.one_turn:
                state.shadow.start(session.key, session.footprint)
                state.shadow.release(session.key, session.footprint, keep=True)
        return expected

    def _compare(self, running: _Running, state: Backend, cached: int, expected: int) -> None:
        session = running.held.session
        if not session.turns:
            state.learn_prefix(session, float(cached))
        elif expected:
            state.hits_seen += min(cached, expected)
            state.hits_expected += expected
            if session.backend == state.id:
                state.shadow.correct(believed_warm=running.was_warm, was_warm=cached > 0.5 * expected)

    def _think_time(self, session: Session, held: HeldTurn) -> float | None:
        """Return and learn the time between the previous answer and this turn's arrival."""
        if session.finished_at is None or held.first_arrived_at < session.finished_at:
            return None
        think = held.first_arrived_at - session.finished_at
        session.think.add(think)
        state = self._state_of(session.backend)
        if state is not None:
            state.think.add(think)
        return think

    def _remember_try(self, held: HeldTurn, now: float) -> None:  # noqa: ARG002
        if held.turn.session is None:
            return
        self._first_tries[(held.session.key, held.turn.body_digest)] = held.first_arrived_at
        if len(self._first_tries) > RETRIES:
            self._first_tries.popitem(last=False)

    def _leave_table_if_one_turn(self, session: Session) -> None:
        if session.one_turn or (session.ended and not session.running and not session.held and not session.place):
            self._sessions.drop(session)

    # ------------------------------------------------------------------ look-ups

    def _state_of(self, backend: BackendId | None) -> Backend | None:
        return self._backends.get(backend) if backend is not None else None

    def _pool(self, pool: PoolId) -> list[Backend]:
        return [state for state in self._backends.values() if state.pool == pool]

    def _queue(self, pool: PoolId) -> HeldQueue:
        queue = self._queues.get(pool)
        if queue is None:
            queue = self._queues[pool] = HeldQueue(HEAD_START * self._policy.max_wait_s)
        return queue

    # ------------------------------------------------------------------ pictures

    def view(self, backend: BackendId, *, now: float) -> WindowView:
        """Return a backend as its law sees it."""
        state = self._backends[backend]
        active = len(state.places)
        typical = state.tokens / active if active else (state.mean_footprint.value or None)
        return WindowView(
            window=state.window,
            minimum=state.minimum,
            maximum=state.maximum,
            active=active,
            running=state.running,
            held=self._queue(state.pool).waiting,
            bound=state.bound,
            footprint_tokens=state.footprint,
            typical_footprint_tokens=typical,
            records_age_s=math.inf if state.record_at is None else now - state.record_at,
        )

    def snapshot(self, *, now: float) -> GateSnapshot:  # noqa: ARG002
        """Return the books."""
        finished = sum(self._finished.values())
        return GateSnapshot(
            arrived=self._arrived,
            admitted=finished + len(self._running),
            running=len(self._running),
            finished=dict(self._finished),
            held=len(self._held),
            refused=dict(self._refused),
            abandoned=self._abandoned,
            admitted_by=dict(self._admitted_by),
            requeued=self._requeued,
            paused=self._paused,
            resumed=self._resumed,
            reclaimed=self._reclaimed,
            leases_expired=self._expired,
            sessions=len(self._sessions),
            backends={state.id: self._picture(state) for state in self._backends.values()},
        )

    def _picture(self, state: Backend) -> BackendSnapshot:
        return BackendSnapshot(
            id=state.id,
            pool=state.pool,
            up=state.up,
            unit=state.unit,
            window=state.window,
            minimum=state.minimum,
            maximum=state.maximum,
            hard=state.hard,
            active=len(state.places),
            running=state.running,
            idle=len(state.idle),
            held=self._queue(state.pool).waiting,
            footprint_tokens=state.footprint,
            capacity_tokens=state.shadow.capacity,
            cached_tokens=state.hits_seen,
            expected_cached_tokens=state.hits_expected,
        )

    def sessions(self, *, now: float, limit: int = 1000) -> list[SessionView]:
        """Return sessions, those seen last first."""
        return [self._session_view(session, now) for session in self._sessions.newest_first()[:limit]]

    @staticmethod
    def _session_view(session: Session, now: float) -> SessionView:
        if session.running:
            state = "running"
        elif session.place:
            state = "idle"
        elif session.paused:
            state = "paused"
        else:
            state = "held" if session.held else "gone"
        return SessionView(
            key=session.key,
            state=state,
            backend=session.backend,
            turns=session.turns,
            footprint_tokens=session.footprint,
            idle_s=None if session.running or session.finished_at is None else now - session.finished_at,
            lease_s=session.lease_until - now if session.idle else None,
            rule=session.rule,
            parent=session.parent,
        )
