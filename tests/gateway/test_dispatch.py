"""The gate's decisions reach those who wait, by calls and by the clock."""

import asyncio
import math

import pytest

from concur_proxy.core.gate import Gate, GatePolicy
from concur_proxy.gateway.dispatch import Dispatcher
from concur_proxy.model import (
    BackendEvent,
    BackendId,
    Outcome,
    PoolId,
    RefusalReason,
    SessionKey,
    TurnFacts,
)
from concur_proxy.windows.base import Unit
from tests.gateway.harness import run, until

POOL, A, B = PoolId("p"), BackendId("a"), BackendId("b")


class Waiter:
    def __init__(self, on_granted=None):
        self.admitted, self.refusal, self._on_granted = None, None, on_granted

    @property
    def lease(self):
        return self.admitted.lease if self.admitted else None

    def granted(self, admitted):
        assert not self.answered
        self.admitted = admitted
        if self._on_granted:
            self._on_granted(admitted)

    def refused(self, refused):
        assert not self.answered
        self.refusal = refused.reason

    @property
    def answered(self):
        return self.admitted is not None or self.refusal is not None


def turn(session=None):
    return TurnFacts(pool=POOL, session=SessionKey("-", session) if session else None)


def dispatching(test, *, backends=(A,), window=1.0, loop="uvloop", **policy):
    async def main():
        records = []
        dispatcher = Dispatcher(Gate(GatePolicy(**policy)), on_record=records.append)
        for backend in backends:
            dispatcher.add_backend(backend, POOL, unit=Unit.SESSIONS, window=window)
            dispatcher.backend_event(backend, BackendEvent.UP)
        dispatcher.set_members(POOL, backends)
        try:
            await test(dispatcher, records)
        finally:
            dispatcher.close()

    run(main(), loop)


def test_a_turn_that_fits_is_granted_before_arrive_returns():
    async def test(dispatcher, records):
        waiter = Waiter()
        assert dispatcher.arrive(turn(), waiter) == waiter.admitted.ticket
        assert dispatcher.in_flight(A) == 1
        dispatcher.finish(waiter.lease, Outcome.COMPLETED, None)
        assert dispatcher.in_flight(A) == 0
        assert [record.outcome for record in records] == [Outcome.COMPLETED]

    dispatching(test)


def test_a_held_turn_is_granted_when_another_ends():
    async def test(dispatcher, _records):
        first, second = Waiter(), Waiter()
        dispatcher.arrive(turn(), first)
        dispatcher.arrive(turn(), second)
        assert (second.answered, dispatcher.held) == (False, 1)
        dispatcher.finish(first.lease, Outcome.COMPLETED, None)
        assert second.lease is not None
        assert dispatcher.held == 0

    dispatching(test)


def test_a_turn_that_ends_within_its_grant_does_not_nest():
    depth = deepest = 0

    async def test(dispatcher, _records):
        def ends(admitted):
            nonlocal depth, deepest
            depth += 1
            deepest = max(deepest, depth)
            dispatcher.finish(admitted.lease, Outcome.COMPLETED, None)
            depth -= 1

        first = Waiter()
        dispatcher.arrive(turn(), first)
        waiters = [Waiter(ends) for _ in range(3000)]
        for waiter in waiters:
            dispatcher.arrive(turn(), waiter)
        dispatcher.finish(first.lease, Outcome.COMPLETED, None)
        assert all(waiter.answered for waiter in waiters)
        assert deepest == 1
        assert dispatcher.in_flight(A) == 0

    dispatching(test)


def test_abandoning_frees_the_ticket_and_twice_does_no_harm():
    async def test(dispatcher, _records):
        first, second = Waiter(), Waiter()
        dispatcher.arrive(turn(), first)
        ticket = dispatcher.arrive(turn(), second)
        dispatcher.abandon(ticket)
        dispatcher.abandon(ticket)
        dispatcher.finish(first.lease, Outcome.COMPLETED, None)
        assert not second.answered
        assert dispatcher.snapshot().abandoned == 1

    dispatching(test)


def test_the_clock_refuses_who_waits_too_long(loop):
    async def test(dispatcher, _records):
        first, second = Waiter(), Waiter()
        dispatcher.arrive(turn(), first)
        dispatcher.arrive(turn(), second)
        await until(lambda: second.answered)
        assert second.refusal is RefusalReason.QUEUE_TIMEOUT

    dispatching(test, max_wait_s=0.05, loop=loop)


@pytest.mark.sources
def test_an_earlier_deadline_is_kept_beside_a_later_one():
    class Timed(Gate):
        deadline, ticks = None, 0

        def next_deadline(self):
            return self.deadline

        def tick(self, *, now):
            self.ticks += 1
            return []

    async def main():
        gate = Timed(GatePolicy())
        dispatcher = Dispatcher(gate)
        for wait in (30, 0.05, 20):
            gate.deadline = dispatcher.clock() + wait
            dispatcher.refuse_all(RefusalReason.SHUTTING_DOWN)
        await until(lambda: gate.ticks)
        dispatcher.close()

    run(main())


def test_a_requeued_turn_comes_back_when_its_time_has_come(loop):
    async def test(dispatcher, _records):
        waiter, again = Waiter(), Waiter()
        ticket = dispatcher.arrive(turn(), waiter)
        now = dispatcher.clock()
        dispatcher.requeue(waiter.lease, ticket, again, not_before=now + 0.05, avoid=frozenset())
        assert (again.answered, dispatcher.in_flight(A)) == (False, 0)
        await until(lambda: again.answered)
        assert dispatcher.clock() >= now + 0.05
        assert again.admitted.ticket == ticket
        assert again.lease.id != waiter.lease.id

    dispatching(test, loop=loop)


def test_a_requeued_turn_avoids_the_backend_that_failed_it():
    async def test(dispatcher, _records):
        for _ in range(4):
            waiter, again = Waiter(), Waiter()
            ticket = dispatcher.arrive(turn(), waiter)
            lost = waiter.lease.backend
            dispatcher.requeue(waiter.lease, ticket, again, not_before=dispatcher.clock(), avoid=frozenset({lost}))
            assert again.lease.backend != lost

    dispatching(test, backends=(A, B), window=math.inf)


def test_a_backend_that_comes_up_takes_who_waits():
    async def test(dispatcher, _records):
        first, second = Waiter(), Waiter()
        dispatcher.arrive(turn(), first)
        dispatcher.arrive(turn(), second)
        dispatcher.add_backend(B, POOL, unit=Unit.SESSIONS, window=1)
        assert not second.answered
        dispatcher.backend_event(B, BackendEvent.UP)
        assert second.lease.backend == B

    dispatching(test)


@pytest.mark.parametrize("event", [BackendEvent.LOST, BackendEvent.DRAINING])
def test_only_backends_that_are_up_are_placed_on(event):
    async def test(dispatcher, _records):
        dispatcher.backend_event(A, event)
        assert [dispatcher.place(POOL) for _ in range(2)] == [B, B]
        assert (dispatcher.is_up(A), dispatcher.is_up(B)) == (False, True)
        dispatcher.backend_event(B, BackendEvent.FLUSHED)
        assert dispatcher.place(POOL) == B
        dispatcher.remove_backend(B)
        assert dispatcher.place(POOL) is None

    dispatching(test, backends=(A, B))


def test_placing_counts_leases_too():
    async def test(dispatcher, _records):
        waiter = Waiter()
        dispatcher.arrive(turn(), waiter)
        other = B if waiter.lease.backend == A else A
        assert dispatcher.place(POOL) == other
        assert dispatcher.place(POOL, avoid=frozenset({other})) == waiter.lease.backend
        dispatcher.unplace(other)
        assert dispatcher.place(POOL) == other

    dispatching(test, backends=(A, B))


def test_an_unknown_pool_has_no_backends():
    async def test(dispatcher, _records):
        assert dispatcher.place(PoolId("other")) is None
        waiter = Waiter()
        dispatcher.arrive(TurnFacts(pool=PoolId("other")), waiter)
        assert waiter.refusal is RefusalReason.NO_BACKEND

    dispatching(test)


def test_a_larger_window_lets_more_in():
    async def test(dispatcher, _records):
        waiters = [Waiter() for _ in range(4)]
        for number, waiter in enumerate(waiters):
            dispatcher.arrive(turn(f"s{number}"), waiter)
        assert [waiter.answered for waiter in waiters] == [True, False, False, False]
        dispatcher.resize(A, 3)
        assert [waiter.answered for waiter in waiters] == [True, True, True, False]
        dispatcher.set_bounds(A, 4, 10)
        assert waiters[3].answered
        assert dispatcher.view(A).running == 4

    dispatching(test)


def test_refusing_all_tells_everyone():
    async def test(dispatcher, _records):
        waiters = [Waiter() for _ in range(3)]
        for waiter in waiters:
            dispatcher.arrive(turn(), waiter)
        dispatcher.refuse_all(RefusalReason.SHUTTING_DOWN)
        assert [waiter.refusal for waiter in waiters[1:]] == [RefusalReason.SHUTTING_DOWN] * 2
        late = Waiter()
        dispatcher.arrive(turn(), late)
        assert late.refusal is RefusalReason.SHUTTING_DOWN

    dispatching(test)


def test_ending_a_session_frees_its_place():
    async def test(dispatcher, _records):
        first, second = Waiter(), Waiter()
        dispatcher.arrive(turn("s"), first)
        dispatcher.arrive(turn("t"), second)
        dispatcher.end_session(SessionKey("-", "s"))
        dispatcher.finish(first.lease, Outcome.COMPLETED, None)
        assert second.lease is not None

    dispatching(test)


def test_a_waiter_that_fails_does_not_keep_the_news_from_others(caplog):
    async def test(dispatcher, _records):
        def fails(_admitted):
            raise ZeroDivisionError

        running, bad, good = Waiter(), Waiter(fails), Waiter()
        dispatcher.arrive(turn(), running)
        dispatcher.arrive(turn(), bad)
        dispatcher.arrive(turn(), good)
        dispatcher.resize(A, 10)
        assert good.lease is not None
        assert "could not take the gate's answer" in caplog.text

    dispatching(test)


@pytest.mark.sources
def test_a_deadline_in_the_past_does_not_spin():
    class Stuck(Gate):
        ticks = 0

        def next_deadline(self):
            return 0.0

        def tick(self, *, now):
            self.ticks += 1
            return []

    async def main():
        gate = Stuck(GatePolicy())
        dispatcher = Dispatcher(gate, clock=lambda: 1.0)
        dispatcher.tick()
        end = asyncio.get_running_loop().time() + 0.05
        await until(lambda: asyncio.get_running_loop().time() > end)
        dispatcher.close()
        assert 2 <= gate.ticks <= 60

    run(main())


def test_nothing_is_kept_of_backends_that_have_come_and_gone():
    async def test(dispatcher, _):
        for number in range(100):
            backend, pool = BackendId(f"gone-{number}"), PoolId(f"pool-{number}")
            dispatcher.add_backend(backend, pool, unit=Unit.SESSIONS, window=1)
            dispatcher.set_members(pool, [backend])
            dispatcher.backend_event(backend, BackendEvent.UP)
            assert dispatcher.place(pool) == backend
            dispatcher.unplace(backend)
            dispatcher.remove_backend(backend)
            dispatcher.set_members(pool, [])
        assert set(dispatcher._in_flight) <= {A}
        assert set(dispatcher._members) == {POOL}
        assert dispatcher._up == {A}
        assert [pool.id for pool in dispatcher.gate._pools] == [POOL]

    dispatching(test)
