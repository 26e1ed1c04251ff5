"""The gate's invariants (design: 1, 2, 3, 4, 5, 9) under whatever may happen to it, in any order."""

import dataclasses
import math
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from concur_proxy.core import placement
from concur_proxy.core.admission import has_room
from concur_proxy.core.gate import Gate, GatePolicy
from concur_proxy.core.order.registry import ORDERS
from concur_proxy.model import (
    Admitted,
    AdmitWhy,
    BackendEvent,
    BackendId,
    FinishReason,
    Held,
    Outcome,
    PoolId,
    RefusalReason,
    Refused,
    SessionKey,
    TurnFacts,
    Usage,
)
from concur_proxy.windows.base import Unit

POOLS = [PoolId("p"), PoolId("q")]
BACKENDS = [BackendId(name) for name in "abc"]
NAMES = [SessionKey("tenant", str(number)) for number in range(8)]
MAX_SESSIONS = 6

windows = {
    Unit.SESSIONS: st.sampled_from([0.0, 1.0, 2.0, 2.5, 4.0, math.inf]),
    Unit.TOKENS: st.sampled_from([0.0, 200.0, 1000.0, 4000.0, math.inf]),
}
usages = st.none() | st.builds(
    Usage,
    prompt_tokens=st.sampled_from([0, 40, 400, 1500]),
    completion_tokens=st.sampled_from([0, 60]),
    cached_tokens=st.sampled_from([None, 0, 48, 400]),
)
facts = st.builds(
    TurnFacts,
    pool=st.sampled_from([*POOLS, POOLS[0], PoolId("nowhere")]),
    session=st.none() | st.sampled_from(NAMES),
    parent=st.none() | st.none() | st.sampled_from(NAMES),
    final=st.sampled_from([False, False, False, True]),
    body_bytes=st.sampled_from([0, 400, 4000]),
    media_bytes=st.sampled_from([0, 0, 400]),
    max_output_tokens=st.sampled_from([None, 0, 100]),
    choices=st.sampled_from([1, 1, 3]),
    read_timeout_s=st.sampled_from([None, 5.0]),
    is_retry=st.booleans(),
    body_digest=st.sampled_from([0, 1, 2]),
    prefix_key=st.sampled_from([None, 1, 2]),
    tenant=st.sampled_from(["", "", "x", "y"]),
    urgency=st.sampled_from([0, 0, -1, 5]),
    deadline_s=st.sampled_from([None, None, 1.0, 90.0]),
)
avoided = st.sampled_from([frozenset(), frozenset(), frozenset(BACKENDS[:1]), frozenset(BACKENDS)])


class GateMachine(RuleBasedStateMachine):
    """Keeps its own books of what the gate has answered."""

    order = "fifo"

    @initialize(
        unit=st.sampled_from(Unit),
        mode=st.sampled_from(["enforce", "enforce", "enforce", "observe"]),
        pause=st.sampled_from(["lazy", "eager"]),
        force=st.booleans(),
        max_held=st.sampled_from([0, 2, 1000]),
    )
    def open(self, unit, mode, pause, force, max_held):
        self.now = 0.0
        self.unit = unit
        self.policy = GatePolicy(
            mode=mode,
            pause=pause,
            force_after_max_wait=force,
            max_held=max_held,
            max_wait_s=20.0,
            lease_min_s=1.0,
            lease_max_s=10.0,
            max_sessions=MAX_SESSIONS,
            order=self.order,
            weights={"x": 2.0},
        )
        self.gate = Gate(self.policy)
        self.here = set()
        self.running, self.held = {}, set()
        """Leases by ticket, and tickets."""
        self.arrived = self.abandoned = 0
        self.refused, self.finished = Counter(), Counter()
        for backend in BACKENDS[:2]:
            self._add(backend, POOLS[0], 2.0 if unit is Unit.SESSIONS else 1000.0, 3000.0)

    def _add(self, backend, pool, window, capacity):
        self.here.add(backend)
        least = 1.0 if self.unit is Unit.SESSIONS else 100.0
        self._take(
            self.gate.add_backend(
                backend, pool, unit=self.unit, window=window, minimum=least, capacity_tokens=capacity, now=self.now
            )
        )
        self._take(self.gate.backend(backend, BackendEvent.UP, now=self.now))

    def _take(self, decisions):
        """Take in answers to held turns, check their grants, and let the gate do what is due now."""
        for decision in decisions:
            self.held.remove(decision.ticket)  # each is answered once, and was held
            self._answer(decision)
        self._check_grants([decision for decision in decisions if isinstance(decision, Admitted)])
        at = self.gate.next_deadline()
        if at is not None and at <= self.now:
            self._take(self.gate.tick(now=self.now))

    def _answer(self, decision):
        if isinstance(decision, Admitted):
            self.running[decision.ticket] = decision.lease
        else:
            self.refused[decision.reason] += 1

    def _check_grants(self, admitted):
        """Invariant 3: what the window is said to have let in fits the window."""
        whys = {}
        for decision in admitted:
            whys.setdefault(decision.lease.backend, set()).add(decision.lease.why)
        for backend, reasons in whys.items():
            state = self.gate._pools.backend(backend)
            if reasons == {AdmitWhy.WINDOW}:
                assert state.load <= state.window + 1e-6
            if AdmitWhy.OVERSIZE in reasons:
                assert len(state.places) + state.branches == 1
            if AdmitWhy.WARM in reasons:
                assert not state.hard
            assert (AdmitWhy.OBSERVED in reasons) <= (self.policy.mode == "observe")
            assert (AdmitWhy.FORCED in reasons) <= self.policy.force_after_max_wait

    def _backend(self, data):
        return data.draw(st.sampled_from(sorted(self.here)))

    # turns

    @rule(turn=facts, avoid=avoided)
    def arrive(self, turn, avoid):
        self.arrived += 1
        answer = self.gate.arrive(turn, avoid=avoid, now=self.now)
        if isinstance(answer, Held):
            assert self.policy.mode == "enforce"
            assert answer.deadline > self.now
            self.held.add(answer.ticket)
        else:
            self._answer(answer)
            self._check_grants([answer] if isinstance(answer, Admitted) else [])
        self._take([])

    @precondition(lambda self: self.running)
    @rule(
        data=st.data(),
        usage=usages,
        outcome=st.sampled_from([*[Outcome.COMPLETED] * 9, *Outcome]),
        reason=st.none() | st.sampled_from(FinishReason),
    )
    def finish(self, data, usage, outcome, reason):
        lease = self.running.pop(data.draw(st.sampled_from(sorted(self.running))))
        self.finished[outcome] += 1
        finished = self.gate.finish(lease, outcome, usage, finish_reason=reason, now=self.now)
        assert finished.record.session == lease.session
        with pytest.raises(ValueError, match="ended already"):  # invariant 2
            self.gate.finish(lease, outcome, usage, now=self.now)
        self._take(finished.decisions)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), avoid=avoided, after=st.sampled_from([0.0, 2.0]))
    def requeue(self, data, avoid, after):
        ticket = data.draw(st.sampled_from(sorted(self.running)))
        self.held.add(ticket)
        self._take(self.gate.requeue(self.running.pop(ticket), not_before=self.now + after, avoid=avoid, now=self.now))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def abandon(self, data):
        ticket = data.draw(st.sampled_from(sorted(self.held)))
        self.held.remove(ticket)
        self.abandoned += 1
        self._take(self.gate.abandon(ticket, now=self.now))

    @rule(name=st.sampled_from(NAMES))
    def end_session(self, name):
        self._take(self.gate.end_session(name, now=self.now))

    @rule(seconds=st.sampled_from([0.0, 0.01, 1.0, 7.0]))
    def wait(self, seconds):
        self.now += seconds
        self._take(self.gate.tick(now=self.now))

    # backends, windows, rules

    @precondition(lambda self: len(self.here) < len(BACKENDS))
    @rule(data=st.data(), pool=st.sampled_from(POOLS), capacity=st.sampled_from([None, None, 500.0, 5000.0]))
    def add_backend(self, data, pool, capacity):
        free = sorted(set(BACKENDS) - self.here)
        self._add(data.draw(st.sampled_from(free)), pool, data.draw(windows[self.unit]), capacity)

    @precondition(lambda self: self.here)
    @rule(data=st.data())
    def remove_backend(self, data):
        backend = self._backend(data)
        self.here.remove(backend)
        self._take(self.gate.remove_backend(backend, now=self.now))

    @precondition(lambda self: self.here)
    @rule(data=st.data(), pool=st.sampled_from(POOLS))
    def set_pool(self, data, pool):
        self._take(self.gate.set_pool(self._backend(data), pool, now=self.now))

    @precondition(lambda self: self.here)
    @rule(data=st.data(), event=st.sampled_from([*[BackendEvent.UP] * 3, *BackendEvent]))
    def event(self, data, event):
        self._take(self.gate.backend(self._backend(data), event, now=self.now))

    @precondition(lambda self: self.here)
    @rule(data=st.data(), hard=st.booleans())
    def resize(self, data, hard):
        backend = self._backend(data)
        self._take(self.gate.resize(backend, data.draw(windows[self.unit]), hard=hard, now=self.now))

    @precondition(lambda self: self.here)
    @rule(data=st.data(), capacity=st.sampled_from([None, 100.0, 3000.0]))
    def set_capacity(self, data, capacity):
        self.gate.set_capacity(self._backend(data), capacity, now=self.now)
        self._take([])

    @precondition(lambda self: self.here)
    @rule(data=st.data(), told=st.dictionaries(st.sampled_from([name.id for name in NAMES]), st.integers(0, 2000)))
    def follow_cache(self, data, told):
        self._take(self.gate.follow_cache(self._backend(data), told.get, now=self.now))

    @precondition(lambda self: self.here)
    @rule(data=st.data(), unit=st.sampled_from(Unit))
    def set_unit(self, data, unit):
        backend = self._backend(data)
        self._take(self.gate.set_unit(backend, unit, data.draw(windows[unit]), now=self.now))

    @precondition(lambda self: self.here)
    @rule(data=st.data(), low=st.sampled_from([1.0, 3.0]), high=st.sampled_from([3.0, 2000.0, math.inf]))
    def set_bounds(self, data, low, high):
        self._take(self.gate.set_bounds(self._backend(data), minimum=low, maximum=high, now=self.now))

    @rule(mode=st.sampled_from(["enforce", "observe"]), pause=st.sampled_from(["lazy", "eager"]))
    def set_policy(self, mode, pause):
        self.policy = dataclasses.replace(self.policy, mode=mode, pause=pause)
        self._take(self.gate.set_policy(self.policy, now=self.now))

    @rule(order=st.sampled_from(sorted(ORDERS)))
    def set_order(self, order):
        """Whoever waits lines up anew; the next turns go in the new order."""
        self.policy = dataclasses.replace(self.policy, order=order)
        self._take(self.gate.set_policy(self.policy, now=self.now))

    # what always holds

    @invariant()
    def conservation(self):
        """Invariant 1, against the books of this machine."""
        if not hasattr(self, "gate"):
            return
        books = self.gate.snapshot(now=self.now)
        assert books.arrived == books.admitted + books.held + sum(books.refused.values()) + books.abandoned
        assert books.admitted == books.running + sum(books.finished.values())
        assert (books.arrived, books.held, books.abandoned) == (self.arrived, len(self.held), self.abandoned)
        assert (books.running, books.refused) == (len(self.running), self.refused)
        assert books.finished == self.finished
        by_backend = Counter(lease.backend for lease in self.running.values())
        for backend in books.backends.values():
            assert backend.running <= by_backend[backend.id]  # the rest run on one of the name that was removed
            assert backend.idle <= backend.active <= backend.idle + backend.running

    @invariant()
    def window_between_bounds(self):
        """Invariant 5."""
        if hasattr(self, "gate"):
            for backend in self.gate.snapshot(now=self.now).backends.values():
                assert backend.minimum <= backend.window
                assert backend.window <= backend.maximum

    @invariant()
    def work_conserving(self):
        """Invariant 4: gone through in order, nobody who waits could run on a backend that is not reserved."""
        if not hasattr(self, "gate") or self.policy.mode == "observe":
            return
        for pool in self.gate._pools:
            able = [backend for backend in pool.backends.values() if backend.up]
            waiting = [
                turn
                for turn in self.gate._waiting.turns.values()
                if turn.facts.pool == pool.id and turn.not_before <= self.now
            ]
            for turn in sorted(waiting, key=pool.line.place_of):
                wanted = placement.candidates(turn, able)
                for backend in wanted:
                    assert not has_room(turn.session, backend, self.gate._ledger.tokens(turn, backend))
                    assert backend.running > 0 or self._waits_for_idle(backend)
                if wanted:
                    able.remove(wanted[0])

    def _waits_for_idle(self, backend):
        """Those who are away may be back before their contexts are computed again: no longer than that takes."""
        longest_s = backend.prefill.token_s * sum(session.footprint for session in backend.idle)
        until = backend.starved_from(self.now) + longest_s
        return self.now < until and self.gate.next_deadline() <= until

    @invariant()
    def books_of_backends(self):
        """What is charged is what is there: no place without a session, no session with two, no tokens left over."""
        if not hasattr(self, "gate"):
            return
        for state in self.gate._pools.backends():
            turns = [turn for turn in self.gate._admission.running.values() if turn.backend is state]
            riders = [turn for turn in turns if not turn.is_branch]
            branches = [turn for turn in turns if turn.is_branch]
            assert (state.running, state.branches) == (len(turns), len(branches))
            assert {turn.session for turn in riders} == state.places - set(state.idle)
            assert all(session.place is state for session in state.places)
            keys = {session.prefix_key for session in state.places}
            charged = sum(session.charged for session in state.places) + sum(turn.tokens for turn in branches)
            assert state.footprint == charged + state._shared.tokens
            assert set(state._shared._users) == keys - {None}
            cold = [session.charged for session in state.places if session.cold]
            cold += [turn.tokens for turn in branches if turn.session.cold]
            assert (state._cold, state._cold_tokens) == (len(cold), sum(cold))
            assert state._idle_tokens == sum(session.charged for session in state.idle)
            assert len(state.shadow) <= len(turns) + (state.shadow.capacity or 0) / 16 + 1

    @invariant()
    def bounded(self):
        """Invariant 9."""
        if not hasattr(self, "gate"):
            return
        gate = self.gate
        busy = len(gate._waiting.turns) + len(gate._admission.running)
        assert len(gate._intake.sessions) <= MAX_SESSIONS + busy + 1
        assert len(list(gate._pools)) <= len(POOLS)
        assert len(gate._timers) <= 2 * (len(gate._waiting.turns) + len(gate._intake.sessions)) + 64 + 1
        for pool in gate._pools:
            lined_up = sum(turn.lane is not None for turn in gate._waiting.turns.values() if turn.facts.pool == pool.id)
            assert pool.line.waiting == lined_up
            if pool.line._ageing is not None:
                assert pool.line._ageing.waiting == lined_up
                assert len(pool.line._ageing) <= 6 * lined_up + 3 * 64

    def teardown(self):
        """Whatever has happened, everything can end, and leaves nothing behind but idle places."""
        if not hasattr(self, "gate"):
            return
        while self.running:
            self._take(self.gate.finish(self.running.popitem()[1], Outcome.COMPLETED, None, now=self.now).decisions)
        self._take(self.gate.refuse_all(RefusalReason.SHUTTING_DOWN, now=self.now))
        assert not self.held
        self.now += 3600.0
        self._take(self.gate.tick(now=self.now))
        assert self.gate.next_deadline() is None
        for state in self.gate._pools.backends():
            assert (state.running, state.load, state.footprint, len(state.idle)) == (0, 0, 0, 0)
        assert isinstance(self.gate.arrive(TurnFacts(pool=POOLS[0]), now=self.now), Refused)


def machine(order, examples):
    """Return the test case of a gate that begins with ``order``."""
    case = type(f"Gate_{order}", (GateMachine,), {"order": order}).TestCase
    case.settings = settings(
        max_examples=examples, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck)
    )
    case.order = order
    return case


TestFifo = machine("fifo", 100)
TestFurthest = machine("furthest", 100)
TestCacheAware = machine("cache_aware", 50)
TestSmallest = machine("smallest", 50)
TestFair = machine("fair", 100)
TestDeadline = machine("deadline", 50)
TestLanes = machine("lanes", 100)


def test_the_laws_run_over_every_order():
    here = {
        case.order for case in (TestFifo, TestFurthest, TestCacheAware, TestSmallest, TestFair, TestDeadline, TestLanes)
    }
    assert here == set(ORDERS)
