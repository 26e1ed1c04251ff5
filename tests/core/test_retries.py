"""Retries find their first try."""

from concur_proxy.core.retries import REMEMBERED, FirstTries
from tests.core.stand import turn


def recall(tries, facts, now=10.0):
    return tries.recall(facts, now=now, max_age_s=100.0)


def test_the_same_body_of_the_same_session_is_a_retry_once():
    tries = FirstTries()
    tries.remember(turn("agent", body_digest=1), 3.0)
    assert recall(tries, turn("other", body_digest=1)) == 10.0
    assert recall(tries, turn("agent", body_digest=2)) == 10.0
    assert recall(tries, turn("agent", body_digest=1)) == 3.0
    assert recall(tries, turn("agent", body_digest=1)) == 10.0


def test_who_says_that_it_is_a_retry_takes_its_sessions_last_try():
    tries = FirstTries()
    tries.remember(turn("agent", body_digest=1), 3.0)
    assert recall(tries, turn("agent", body_digest=2, is_retry=True)) == 3.0
    tries.remember(turn("agent"), 4.0)
    assert recall(tries, turn("agent", is_retry=True)) == 4.0


def test_without_a_session_a_retry_must_say_so():
    tries = FirstTries()
    tries.remember(turn(body_digest=1), 3.0)
    assert recall(tries, turn(body_digest=1)) == 10.0
    assert recall(tries, turn(body_digest=1, is_retry=True)) == 3.0
    tries.remember(turn(), 3.0)
    assert recall(tries, turn(is_retry=True)) == 10.0


def test_old_tries_do_not_count():
    tries = FirstTries()
    tries.remember(turn("agent", body_digest=1), 3.0)
    assert recall(tries, turn("agent", body_digest=1), now=104.0) == 104.0


def test_tries_are_bounded():
    """Invariant 9."""
    tries = FirstTries()
    for number in range(REMEMBERED):
        tries.remember(turn(f"s{number}", body_digest=1), 3.0)
    assert len(tries) == REMEMBERED
    assert recall(tries, turn("s0", body_digest=1)) == 10.0
    assert recall(tries, turn(f"s{REMEMBERED - 1}", body_digest=1)) == 3.0
