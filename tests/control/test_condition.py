from hypothesis import example, given
from hypothesis import strategies as st

from concur_proxy.control.condition import (
    ALIVE_S,
    FALL,
    LONGEST_REST_S,
    REST_S,
    RISE,
    STREAK,
    Condition,
    Rise,
    State,
)
from concur_proxy.model import BackendEvent, Outcome

UP, LOST, DRAINING, FLUSHED = BackendEvent.UP, BackendEvent.LOST, BackendEvent.DRAINING, BackendEvent.FLUSHED


def up():
    condition = Condition()
    assert condition.probed(None, now=0.0) == [UP]
    return condition


def lost():
    condition = up()
    for _ in range(FALL):
        events = condition.probed("connection refused", now=1.0)
    assert events == [LOST]
    return condition


def fail(condition, times, *, now, outcome=Outcome.ENGINE_ERROR):
    return [event for _ in range(times) for event in condition.turn_ended(outcome, now=now)]


def test_one_good_probe_is_enough_at_the_start():
    condition = Condition()
    assert condition.state is State.UNKNOWN
    assert condition.probed(None, now=0.0) == [UP]
    assert (condition.state, condition.problem) == (State.UP, None)


def test_down_at_the_start_is_known_at_once_and_recovers():
    condition = Condition()
    assert condition.probed("connection refused", now=0.0) == [LOST]
    assert condition.problem == "connection refused"
    assert condition.probed(None, now=1.0) == []
    assert condition.probed(None, now=2.0) == [FLUSHED, UP]


def test_lost_only_after_bad_probes_in_a_row():
    condition = up()
    for _ in range(3):
        assert [condition.probed("x", now=1.0) for _ in range(FALL - 1)] == [[]] * (FALL - 1)
        assert condition.probed(None, now=1.0) == []
    assert condition.state is State.UP


def test_back_only_after_good_probes_in_a_row_and_then_with_an_empty_cache():
    condition = lost()
    assert condition.probed(None, now=2.0) == []
    assert condition.probed("x", now=2.5) == []
    assert condition.probed(None, now=3.0) == []
    assert condition.probed(None, now=3.5) == [FLUSHED, UP]


def test_an_engine_too_busy_for_its_health_page_is_not_lost_while_turns_are_answered():
    condition = up()
    condition.turn_ended(Outcome.COMPLETED, now=100.0)
    for _ in range(10):
        assert condition.probed("no answer", silent=True, now=101.0) == []
    assert condition.probed("no answer", silent=True, now=100.0 + ALIVE_S) == [LOST]


def test_a_closed_port_is_believed_whatever_turns_said_before():
    condition = up()
    condition.turn_ended(Outcome.COMPLETED, now=1.0)
    events = [event for _ in range(FALL) for event in condition.probed("connection refused", now=1.0)]
    assert events == [LOST]


def test_turns_that_fail_in_a_row_take_a_green_backend_out_of_use_for_a_while():
    condition = up()
    assert fail(condition, STREAK - 1, now=1.0) == []
    assert fail(condition, 1, now=1.0) == [DRAINING]
    assert condition.problem == f"{STREAK} turns in a row failed there"
    assert condition.probed(None, now=1.0 + REST_S / 2) == []
    assert condition.probed(None, now=1.0 + REST_S) == [UP]


def test_after_a_rest_one_failure_is_enough_and_the_next_rest_is_longer():
    condition = up()
    fail(condition, STREAK, now=0.0)
    now, rest = 0.0, REST_S
    for _ in range(6):
        assert condition.probed(None, now=now + rest - 0.1) == []
        assert condition.probed(None, now=now + rest) == [UP]
        now += rest
        rest = min(2 * rest, LONGEST_REST_S)
        assert fail(condition, 1, now=now) == [DRAINING]


def test_a_turn_that_works_ends_rest_and_memory():
    condition = up()
    fail(condition, STREAK, now=0.0)
    assert condition.turn_ended(Outcome.COMPLETED, now=1.0) == [UP]
    assert fail(condition, STREAK - 1, now=2.0) == []


def test_client_errors_and_refusals_never_take_a_backend_out_of_use():
    condition = up()
    for outcome in (Outcome.CLIENT_ERROR, Outcome.OVERLOADED, Outcome.CANCELLED, Outcome.SHUTDOWN):
        assert fail(condition, 100, now=1.0, outcome=outcome) == []
    fail(condition, STREAK - 1, now=1.0)
    condition.turn_ended(Outcome.CLIENT_ERROR, now=1.0)
    assert fail(condition, STREAK - 1, now=1.0) == []


def test_a_client_that_leaves_says_nothing_of_the_engine():
    condition = up()
    fail(condition, STREAK - 1, now=1.0)
    condition.turn_ended(Outcome.CANCELLED, now=1.0)
    assert fail(condition, 1, now=1.0) == [DRAINING]


def test_a_sleeping_engine_gets_no_turns_and_wakes_with_an_empty_cache():
    condition = up()
    assert condition.sleeping(asleep=True) == [DRAINING]
    assert condition.sleeping(asleep=True) == []
    assert condition.problem == "the engine sleeps"
    assert condition.probed(None, now=1.0) == []
    assert condition.sleeping(asleep=False) == []
    assert condition.suspect
    assert condition.probed(None, now=2.0) == [FLUSHED, UP]


def test_an_engine_that_falls_asleep_again_stays_without_turns():
    condition = up()
    for asleep in (True, False, True):
        condition.sleeping(asleep=asleep)
    assert condition.probed(None, now=1.0) == []
    assert condition.state is State.ASLEEP


def test_how_it_is_about_to_come_up_is_known_before_it_does():
    condition = Condition()
    assert condition.rising(now=0.0) is Rise.EMPTY
    condition.probed(None, now=0.0)
    assert condition.rising(now=0.0) is None
    fail(condition, STREAK, now=0.0)
    assert condition.rising(now=REST_S - 0.1) is None
    assert condition.rising(now=REST_S) is Rise.TRIAL
    condition = lost()
    assert condition.rising(now=2.0) is None
    condition.probed(None, now=2.0)
    assert condition.rising(now=3.0) is Rise.EMPTY
    condition = up()
    condition.sleeping(asleep=True)
    assert condition.rising(now=1.0) is None
    condition.sleeping(asleep=False)
    assert condition.rising(now=1.0) is Rise.EMPTY


def test_a_trial_that_fails_is_a_longer_rest():
    condition = up()
    fail(condition, STREAK, now=0.0)
    condition.trial_failed("/v1/completions answers 500", now=REST_S)
    assert condition.problem == "a trial failed there: /v1/completions answers 500"
    assert condition.probed(None, now=2 * REST_S) == []
    assert condition.probed(None, now=3 * REST_S) == [UP]


def test_who_is_drained_takes_no_turns_until_an_operator_says_so():
    condition = up()
    assert condition.drain(drained=True) == [DRAINING]
    assert (condition.state, condition.problem) == (State.DRAINING, "it was drained by an operator")
    assert condition.probed(None, now=1.0) == []
    assert condition.rising(now=1.0) is None
    assert condition.drain(drained=False) == [UP]


def test_who_is_lost_while_drained_comes_back_with_an_empty_cache():
    condition = up()
    condition.drain(drained=True)
    assert [event for _ in range(FALL) for event in condition.probed("gone", now=1.0)] == [LOST]
    assert [event for _ in range(2) for event in condition.probed(None, now=2.0)] == [DRAINING]
    assert condition.drain(drained=False) == []
    assert condition.state is State.WARMING
    assert "cache is empty" in condition.problem
    assert condition.suspect
    assert condition.rising(now=3.0) is Rise.EMPTY
    assert condition.probed(None, now=3.0) == [FLUSHED, UP]


def test_who_is_lost_while_it_rests_is_tried_first_and_warmed_then():
    condition = up()
    fail(condition, STREAK, now=0.0)
    assert [event for _ in range(FALL) for event in condition.probed("gone", now=1.0)] == [LOST]
    assert [event for _ in range(RISE) for event in condition.probed(None, now=2.0)] == [DRAINING]
    assert (condition.state, condition.rising(now=2.0)) == (State.RESTING, None)
    assert condition.rising(now=REST_S) is Rise.TRIAL
    assert condition.probed(None, now=REST_S) == []
    assert condition.rising(now=REST_S) is Rise.EMPTY
    assert condition.probed(None, now=REST_S) == [FLUSHED, UP]


def test_an_engine_that_comes_back_asleep_is_left_alone():
    condition = up()
    condition.sleeping(asleep=True)
    for _ in range(FALL):
        condition.probed("gone", now=1.0)
    for _ in range(RISE):
        assert condition.rising(now=2.0) is None
        condition.probed(None, now=2.0)
    assert condition.state is State.ASLEEP


def test_sleep_does_not_hide_that_it_is_lost():
    condition = lost()
    assert condition.sleeping(asleep=True) == []
    assert condition.state is State.LOST


def test_something_wrong_is_looked_at_more_often():
    condition = up()
    assert not condition.suspect
    fail(condition, 1, now=1.0)
    assert condition.suspect
    condition.turn_ended(Outcome.COMPLETED, now=1.0)
    assert not condition.suspect
    condition.probed("x", now=1.0)
    assert condition.suspect


steps = st.lists(
    st.tuples(
        st.sampled_from(["good", "bad", "silent", "asleep", "awake", "drain", "undrain", "trial", *Outcome]),
        st.floats(0.0, 20.0, allow_nan=False),
    ),
    max_size=60,
)


@given(steps)
@example([("good", 0.0), ("asleep", 0.0), ("drain", 0.0)])
def test_the_gate_always_knows_the_state(script):
    """The last event told, flushes apart, is the one of the state; nothing is told twice.

    And whoever has lost its cache comes up by a good probe before which that could be told.
    """
    condition, now, last, is_empty = Condition(), 0.0, None, True
    for what, pause in script:
        now += pause
        is_prepared = what == "good" and condition.rising(now=now) is Rise.EMPTY
        if isinstance(what, Outcome):
            events = condition.turn_ended(what, now=now)
        elif what in ("asleep", "awake"):
            events = condition.sleeping(asleep=what == "asleep")
        elif what in ("drain", "undrain"):
            events = condition.drain(drained=what == "drain")
        elif what == "trial":
            if condition.rising(now=now) is Rise.TRIAL:
                condition.trial_failed("x", now=now)
            continue
        else:
            events = condition.probed(None if what == "good" else what, silent=what == "silent", now=now)
        for event in events:
            if event is not FLUSHED:
                assert event is not last
                last = event
        is_empty = condition.state in (State.LOST, State.ASLEEP) or (is_empty and not is_prepared)
        assert not (is_empty and condition.state is State.UP)
        expected = {State.UNKNOWN: None, State.UP: UP, State.LOST: LOST}.get(condition.state, DRAINING)
        assert last is expected
        assert (condition.problem is None) == (condition.state is State.UP)
