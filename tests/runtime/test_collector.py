"""When everything is looked at for garbage."""

import asyncio
import gc

from concur_proxy.runtime import collector
from concur_proxy.runtime.collector import LONGEST_GAP_S, NEVER, SHORTEST_GAP_S, Collector


class Stand:
    def __init__(self, *, takes_s=0.0):
        self.now = 0.0
        self.quiet = True
        self.collected = []
        self.takes_s = takes_s
        self.collector = Collector(lambda: self.quiet, clock=lambda: self.now, collect=self.collect)

    def collect(self):
        self.collected.append(self.now)
        self.now += self.takes_s

    def play(self, seconds):
        end = self.now + seconds
        while self.now < end:
            self.now += 1.0
            self.collector.look()


def test_nothing_is_collected_while_turns_run():
    stand = Stand()
    stand.quiet = False
    stand.play(LONGEST_GAP_S - 1)
    assert stand.collected == []
    stand.quiet = True
    stand.play(1)
    assert len(stand.collected) == 1


def test_where_it_is_never_quiet_it_is_put_off_but_not_for_ever():
    stand = Stand()
    stand.quiet = False
    stand.play(3 * LONGEST_GAP_S)
    assert len(stand.collected) == 3


def test_a_quiet_proxy_collects_once_in_a_minute():
    stand = Stand()
    stand.play(10 * SHORTEST_GAP_S)
    assert len(stand.collected) == 10


def test_what_takes_longer_is_done_more_seldom():
    stand = Stand(takes_s=0.2)
    stand.play(900)
    first, second, *_ = stand.collected
    assert second - first >= 0.2 / collector.SHARE


def test_python_does_not_begin_one_by_itself_meanwhile():
    before = gc.get_threshold()

    async def scenario():
        task = asyncio.create_task(Collector(lambda: True).run())
        await asyncio.sleep(0)
        during = gc.get_threshold()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return during

    assert asyncio.run(scenario()) == (*before[:2], NEVER)
    assert gc.get_threshold() == before


SESSIONS_LIVE = 200


def test_sessions_that_come_and_go_leave_nothing_for_it():
    """What this rests on: without any collection the memory of sessions that are forgotten is free."""
    from concur_proxy.core.gate import Gate, GatePolicy
    from concur_proxy.model import (
        BackendEvent,
        BackendId,
        FinishReason,
        Outcome,
        PoolId,
        SessionKey,
        TurnFacts,
        Usage,
    )
    from concur_proxy.windows.base import Unit

    gate, backend, pool, now = Gate(GatePolicy(max_sessions=SESSIONS_LIVE)), BackendId("b"), PoolId("b"), 0.0
    gate.add_backend(backend, pool, unit=Unit.SESSIONS, window=1e6, maximum=1e6, capacity_tokens=1e5, now=now)
    gate.backend(backend, BackendEvent.UP, now=now)
    gc.collect()
    gc.disable()
    try:
        for number in range(4 * SESSIONS_LIVE):
            now += 0.1
            facts = TurnFacts(pool, SessionKey("n", f"s{number % (3 * SESSIONS_LIVE)}"), body_bytes=4000)
            answer = gate.arrive(facts, now=now)
            gate.finish(
                answer.lease,
                Outcome.COMPLETED,
                Usage(1000, 100, 900),
                finish_reason=FinishReason.TOOL_CALLS,
                now=now + 0.05,
            )
            gate.tick(now=now)
        assert gate.session_count <= SESSIONS_LIVE
        assert gc.collect() == 0
    finally:
        gc.enable()
