"""Alarms: each goes off once, at its newest time; what is cancelled leaves no heap behind."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.core.timers import FEW, Timers


@dataclass(eq=False)
class Item:
    wakes_at: float | None = None


def test_alarms_go_off_in_order_when_due():
    timers, late, early = Timers(), Item(), Item()
    timers.set(late, 2.0)
    timers.set(early, 1.0)
    assert timers.next() == 1.0
    assert list(timers.due(0.5)) == []
    assert list(timers.due(2.0)) == [early, late]
    assert (timers.next(), early.wakes_at) == (None, None)


def test_only_the_newest_time_counts():
    timers, item = Timers(), Item()
    timers.set(item, 1.0)
    timers.set(item, 5.0)
    assert timers.next() == 5.0
    timers.clear(item)
    assert timers.next() is None
    timers.set(item, 5.0)
    assert list(timers.due(9.0)) == [item]


def test_an_alarm_set_while_others_go_off_waits_for_the_next_call():
    timers, item = Timers(), Item()
    timers.set(item, 1.0)
    for each in timers.due(1.0):
        timers.set(each, 1.0)
    assert timers.next() == 1.0


@given(st.lists(st.tuples(st.integers(0, 9), st.none() | st.integers(0, 5)), max_size=400))
def test_the_first_alarm_is_the_least_and_the_heap_stays_small(steps):
    """Invariant 9."""
    timers, items = Timers(), [Item() for _ in range(10)]
    for number, at in steps:
        timers.clear(items[number]) if at is None else timers.set(items[number], float(at))
        wanted = [item.wakes_at for item in items if item.wakes_at is not None]
        assert timers.next() == min(wanted, default=None)
        assert len(timers) <= 2 * len(wanted) + FEW + 1
    assert len(list(timers.due(10.0))) == len(wanted if steps else [])
