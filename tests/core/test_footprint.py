"""How many tokens turns are thought to need, and what the answers teach."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.core.footprint import FootprintEstimator
from concur_proxy.core.sessions import Session
from concur_proxy.model import TurnFacts, Usage
from tests.core.stand import POOL, key


def facts(**known):
    return TurnFacts(pool=POOL, **known)


def session(**known):
    return Session(key("agent"), POOL, **known)


def test_before_the_first_usage_bytes_tell():
    estimator = FootprintEstimator()
    assert estimator.tokens(facts(body_bytes=4000, max_output_tokens=0), session()) == 1000
    assert estimator.tokens(facts(body_bytes=4000), session()) == 1256
    assert estimator.tokens(facts(body_bytes=4000, max_output_tokens=10), session()) == 1010
    assert estimator.tokens(facts(body_bytes=4000, max_output_tokens=10, choices=5), session()) == 1050
    assert estimator.tokens(facts(max_output_tokens=0), session()) == 1


def test_media_bytes_are_not_text():
    assert FootprintEstimator().tokens(
        facts(body_bytes=1_004_000, media_bytes=1_000_000, max_output_tokens=0), session()
    ) == pytest.approx(3000)


def test_a_session_never_needs_less_than_it_had():
    """Bodies that name their history by an id are short."""
    assert FootprintEstimator().tokens(facts(body_bytes=40, max_output_tokens=0), session(footprint=9000)) == 9000


def test_tokens_per_byte_are_learned_for_all_and_for_each():
    estimator, dense = FootprintEstimator(), session()
    for _ in range(200):
        estimator.learn(facts(body_bytes=1000), session(), Usage(500, 0))
    estimator.learn(facts(body_bytes=1000), dense, Usage(900, 0))
    assert estimator.tokens(facts(body_bytes=1000, max_output_tokens=0), session()) == pytest.approx(508, abs=2)
    assert estimator.tokens(facts(body_bytes=1000, max_output_tokens=0), dense) == 900


def test_a_body_with_media_teaches_nothing_about_text():
    estimator, one = FootprintEstimator(), session()
    estimator.learn(facts(body_bytes=1000, media_bytes=900), one, Usage(900, 0))
    assert one.tokens_per_byte is None


def test_the_output_is_learned_per_choice():
    estimator = FootprintEstimator()
    for _ in range(300):
        estimator.learn(facts(choices=2), session(), Usage(0, 100))
    assert estimator.tokens(facts(), session()) == pytest.approx(50, abs=1)


def test_an_undisturbed_cache_gives_the_history_in_whole_blocks():
    estimator = FootprintEstimator()
    assert estimator.expected_cached(session(), 1000, 1500) == 992
    assert estimator.expected_cached(session(), 1000, 500) == 496
    assert estimator.expected_cached(session(), 10, 500) == 0


def test_a_client_that_drops_text_is_expected_to_find_less():
    estimator, drops = FootprintEstimator(), session()
    for _ in range(20):
        estimator.learn_reuse(drops, 1000, Usage(1500, 0, cached_tokens=600))
    assert estimator.expected_cached(drops, 1000, 1500) == 592
    keeps = session()
    estimator.learn_reuse(keeps, 1000, Usage(1500, 0, cached_tokens=1400))
    assert estimator.expected_cached(keeps, 1000, 1500) == 992
    estimator.learn_reuse(keeps, 1000, Usage(1500, 0))  # not told: nothing to learn
    assert keeps.reuse == 1.0


@given(st.integers(0, 10**7), st.integers(0, 10**7), st.none() | st.integers(0, 10**6), st.integers(1, 9))
def test_a_turn_needs_at_least_one_token(body, media, output, choices):
    turn = facts(body_bytes=max(body, media), media_bytes=media, max_output_tokens=output, choices=choices)
    assert FootprintEstimator().tokens(turn, session()) >= 1
