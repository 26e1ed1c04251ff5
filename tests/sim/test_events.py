import math

from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.sim.events import Events


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans())))
def test_things_happen_by_time_then_last_ones_then_in_the_order_of_entry(planned):
    events, seen = Events(), []
    for index, (time, last) in enumerate(planned):
        events.at(time, lambda index=index: seen.append((events.now, index)), last=last)
    while events.step():
        pass
    order = sorted(range(len(planned)), key=lambda index: (*planned[index], index))
    assert seen == [(planned[index][0], index) for index in order]


def test_what_should_have_happened_happens_now():
    events, seen = Events(), []
    events.at(5.0, lambda: events.at(1.0, lambda: seen.append(events.now)))
    assert events.next_at == 5.0
    assert events.step()
    assert events.step()
    assert (seen, events.next_at, events.step()) == ([5.0], math.inf, False)
