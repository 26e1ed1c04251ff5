"""A queue for what comes nearly in order: whatever comes, it leaves by key and ticket."""

import heapq

from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.core.order.arrivals import Arrivals
from concur_proxy.core.sessions import Session, Turn
from concur_proxy.model import PoolId, SessionKey, TurnFacts

TURN = Turn(0, TurnFacts(pool=PoolId("p")), Session(SessionKey("", "s"), PoolId("p")), 0.0, 0.0, 0.0, frozenset())
KEYS = st.sampled_from([0.0, 1.0, 1.5, 2.0, 3.0, -150.0, -149.0])


@given(st.lists(st.none() | KEYS | st.integers(0, 50).map(float)))
def test_it_is_a_queue_by_key_and_ticket(steps):
    queue, heap = Arrivals(), []
    for ticket, key in enumerate(steps):
        if key is not None:
            queue.push((key, ticket, TURN))
            heapq.heappush(heap, (key, ticket))
        elif heap:
            assert queue.pop()[:2] == heapq.heappop(heap)
        assert len(queue) == len(heap)
    kept = queue.only(lambda item: item[1] % 2 == 0)
    assert [kept.pop()[:2] for _ in range(len(kept))] == sorted(item for item in heap if item[1] % 2 == 0)


def test_arrivals_with_and_without_a_head_start_need_no_heap():
    queue = Arrivals()
    for ticket in range(1000):
        queue.push((ticket - 150.0 * (ticket % 3 == 0), ticket, TURN))
    assert not queue._late
