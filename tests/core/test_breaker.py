"""The breaker of the hot lane: batch work is held back, then refused, while interactive answers are too slow."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.core.breaker import MOST_SEEN, WINDOWS, Breaker
from concur_proxy.core.policy import GatePolicy
from concur_proxy.model import Admitted, ColdLane, Outcome, RefusalReason
from tests.core.stand import Stand

COLD = {"urgency": -1}
RULES = {"order": "lanes", "hot_objective_s": 2.0, "hot_window_s": 10.0, "cold_refuse_after_s": 30.0}
SLOW, MIDDLING, QUICK = 3.0, 1.9, 0.5


def breaker():
    return Breaker(GatePolicy(**RULES))


def play(one, *windows, start=0.0):
    """One latency a window; return the states after each."""
    states = []
    for number, latency in enumerate(windows):
        if latency is not None:
            one.saw(latency)
        one.close_window([], now=start + 10.0 * number)
        states.append(one.state.value)
    return states


def test_three_slow_windows_in_a_row_hold_batch_work_back():
    assert play(breaker(), SLOW, SLOW, SLOW) == ["open", "open", "held"]
    assert play(breaker(), SLOW, SLOW, QUICK, SLOW, SLOW, MIDDLING, SLOW, SLOW) == ["open"] * 8


def test_three_quick_windows_in_a_row_let_it_on_again_and_a_window_in_between_does_not_count():
    one = breaker()
    play(one, SLOW, SLOW, SLOW)
    states = play(one, QUICK, QUICK, MIDDLING, QUICK, QUICK, QUICK, start=21.0)
    assert states == ["held"] * 3 + ["refused"] * 2 + ["open"]


def test_windows_in_which_nobody_asks_are_quick():
    one = breaker()
    play(one, SLOW, SLOW, SLOW)
    assert play(one, None, None, None) == ["held", "held", "open"]


def test_windows_in_which_nothing_ended_count_neither_way():
    """An answer takes longer than a window: few windows have one."""
    one = breaker()
    for latency in (SLOW, None, None, SLOW, None, SLOW):
        play(one, *([latency] if latency else []))
        if latency is None:
            one.close_window([], runs=True, now=0.0)
    assert one.state is ColdLane.HELD
    for _ in range(WINDOWS):
        one.close_window([], runs=True, now=0.0)
    assert one.state is ColdLane.HELD


def test_held_batch_work_is_refused_after_a_while():
    assert play(breaker(), *[SLOW] * 7) == ["open", "open", "held", "held", "held", "refused", "refused"]


def test_one_slow_answer_among_a_hundred_is_not_a_slow_window():
    one = breaker()
    for _ in range(6):
        for _ in range(99):
            one.saw(QUICK)
        one.saw(SLOW)
        one.close_window([], now=0.0)
    assert one.state is ColdLane.OPEN
    assert one.p99_s == QUICK


def test_turns_that_wait_for_longer_than_the_objective_are_slow_before_they_are_answered():
    one = breaker()
    for _ in range(WINDOWS):
        one.saw(QUICK)
        one.close_window([0.1, SLOW], now=0.0)
    assert one.state is ColdLane.HELD


@given(st.lists(st.floats(0.0, 100.0), min_size=1, max_size=300))
def test_the_p99_is_the_smallest_value_that_ninety_nine_in_a_hundred_do_not_exceed(latencies):
    one = breaker()
    for latency in latencies:
        one.saw(latency)
    one.close_window([], now=0.0)
    below = [sum(other <= each for other in latencies) for each in latencies]
    enough = [each for each, count in zip(latencies, below, strict=True) if 100 * count >= 99 * len(latencies)]
    assert one.p99_s == min(enough)


def test_a_window_keeps_the_newest_latencies_and_no_more():
    one = breaker()
    for number in range(3 * MOST_SEEN):
        one.saw(float(number))
    assert len(one._seen) == MOST_SEEN
    assert min(one._seen) == 2.0 * MOST_SEEN


@given(st.lists(st.sampled_from([SLOW, MIDDLING, QUICK, None]), max_size=60))
def test_the_state_follows_from_the_last_windows(windows):
    """Held only after three slow windows in a row, open again only after three quick ones."""
    one = breaker()
    for number in range(len(windows)):
        before = one.state
        (state,) = play(one, windows[number], start=10.0 * number)
        last = windows[max(0, number - WINDOWS + 1) : number + 1]
        if before is ColdLane.OPEN and state != "open":
            assert last == [SLOW] * WINDOWS
        if before is not ColdLane.OPEN:
            assert (state == "open") == (len(last) == WINDOWS and all(each in {QUICK, None} for each in last))


# in the gate


def stand(**rules):
    return Stand(4, **{**RULES, "hot_share": 0.3, **rules})


def ask_slowly(here, windows):
    """Interactive turns that take three seconds each to their first token, for some windows."""
    for _ in range(int(windows * 3)):
        here.arrive("hot")
        here.wait(SLOW)
        here.finish("hot")
        here.wait(0.34)


def ask_quickly(here, windows):
    for _ in range(int(windows * 10)):
        here.arrive("hot")
        here.finish("hot")
        here.wait(1.0)


def test_cold_turns_are_held_while_hot_ones_are_too_slow_and_go_on_when_they_are_quick_again():
    here = stand(cold_refuse_after_s=1000.0)
    here.arrive("before", **COLD)
    ask_slowly(here, 4)
    assert here.books.hot_lanes["pool"].cold_lane is ColdLane.HELD
    assert here.books.hot_lanes["pool"].p99_s == pytest.approx(SLOW)
    here.finish("before")
    here.arrive("before", **COLD)  # its session has a place, and steps aside all the same
    here.arrive("after", **COLD)
    assert here.held == {"before", "after"}
    assert isinstance(here.arrive("person"), Admitted)
    ask_quickly(here, 4)
    assert here.held == set()
    assert here.books.cold_lane_changes == {ColdLane.HELD: 1, ColdLane.OPEN: 1}


def test_answers_that_take_longer_than_windows_hold_batch_work_back():
    here = stand()
    for _ in range(4):
        here.arrive("hot")
        for _ in range(5):
            here.wait(5.0)
        here.finish("hot")
    assert here.books.hot_lanes["pool"].cold_lane is not ColdLane.OPEN


def test_cold_turns_are_refused_after_a_while_and_told_when_to_come_back():
    here = stand()
    ask_slowly(here, 4)
    here.arrive("waits", **COLD)
    assert here.held == {"waits"}
    ask_slowly(here, 4)
    assert here.refused == {"waits": RefusalReason.BATCH_PAUSED}
    answer = here.arrive("late", **COLD)
    assert (answer.reason, answer.retry_after_s) == (RefusalReason.BATCH_PAUSED, 30.0)
    ask_quickly(here, 4)
    assert isinstance(here.arrive("late", **COLD), Admitted)


def test_changes_are_told_once_each():
    here, told = stand(), []
    here.gate.on_cold_lane(lambda pool, state, p99_s: told.append((pool, state.value, p99_s)))
    ask_slowly(here, 8)
    ask_quickly(here, 4)
    assert [state for _, state, _ in told] == ["held", "refused", "open"]
    assert told[0][0] == "pool"
    assert told[0][2] == pytest.approx(SLOW)


def test_turns_that_fail_or_are_given_up_late_are_slow():
    here = stand()
    for _ in range(16):
        here.arrive("hot")
        here.wait(SLOW)
        here.finish("hot", outcome=Outcome.CANCELLED)
    assert here.books.hot_lanes["pool"].cold_lane is not ColdLane.OPEN


def test_turns_that_are_given_up_early_and_requests_that_are_wrong_tell_nothing():
    here = stand()
    for outcome in (Outcome.CANCELLED, Outcome.CLIENT_ERROR):
        here.arrive("hot")
        here.wait(1.0 if outcome is Outcome.CANCELLED else SLOW)
        here.finish("hot", outcome=outcome)
    here.wait(10.0)
    assert here.books.hot_lanes["pool"].p99_s is None


def test_without_an_objective_nothing_is_watched():
    here = stand(hot_objective_s=0.0)
    ask_slowly(here, 8)
    assert here.books.hot_lanes == {}
    assert isinstance(here.arrive("cold", **COLD), Admitted)


def test_observing_holds_nobody_back():
    here = stand(mode="observe")
    ask_slowly(here, 8)
    assert here.books.hot_lanes["pool"].cold_lane is ColdLane.REFUSED
    assert isinstance(here.arrive("cold", **COLD), Admitted)


def test_another_objective_begins_anew_and_lets_go_of_what_is_held():
    here = stand(cold_refuse_after_s=1000.0)
    ask_slowly(here, 4)
    here.arrive("cold", **COLD)
    here.note(here.gate.set_policy(GatePolicy(**{**RULES, "hot_objective_s": 60.0}), now=here.now))
    assert here.running == {"cold"}


def test_a_change_of_anything_else_keeps_what_the_breaker_knows():
    here = stand(cold_refuse_after_s=1000.0)
    ask_slowly(here, 4)
    here.arrive("cold", **COLD)
    policy = GatePolicy(**{**RULES, "cold_refuse_after_s": 1000.0, "hot_share": 0.4})
    here.note(here.gate.set_policy(policy, now=here.now))
    assert here.held == {"cold"}
