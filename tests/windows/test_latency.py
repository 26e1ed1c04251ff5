import pytest

from concur_proxy.model import Outcome
from concur_proxy.windows.latency import ENOUGH_TURNS, LEAST_S, MEMORY_S, TokenLatency
from tests.windows.cases import record


def seen(*records, at=0.0):
    latency = TokenLatency()
    for each in records:
        latency.add(each, now=at)
    return latency


def test_it_is_seconds_by_tokens_that_were_not_cached():
    records = [record(prompt=1000, cached=900, first_token_s=0.3)] * 4 + [record(prompt=500, cached=400)] * 4
    assert seen(*records).take(now=1.0) == pytest.approx((4 * 0.3 + 4 * 0.1) / 800)


def test_what_was_taken_is_gone_and_what_is_too_little_stays():
    latency = seen(*[record()] * (ENOUGH_TURNS - 1))
    assert latency.take(now=0.0) is None
    latency.add(record(), now=0.0)
    assert latency.take(now=0.0) is not None
    assert latency.take(now=0.0) is None


def test_a_prompt_that_was_cached_whole_counts_as_one_token():
    assert seen(*[record(prompt=1000, cached=2000)] * 8).take(now=0.0) == pytest.approx(0.1)


def test_it_is_never_zero():
    assert seen(*[record(first_token_s=0.0)] * 8).take(now=0.0) == LEAST_S


@pytest.mark.parametrize(
    "fields",
    [{"outcome": Outcome.CANCELLED}, {"outcome": Outcome.CLIENT_ERROR}, {"first_token_s": None}, {"prompt": 0}],
)
def test_turns_that_say_nothing(fields):
    assert seen(*[record(**fields)] * 8).take(now=0.0) is None


def test_turns_of_long_ago_do_not_count():
    latency = seen(*[record(first_token_s=5.0)] * 8)
    assert latency.take(now=MEMORY_S + 1) is None
    for _ in range(8):
        latency.add(record(), now=MEMORY_S + 1)
    assert latency.take(now=MEMORY_S + 1) == pytest.approx(0.001)


def test_cached_tokens_that_were_not_told_are_those_of_the_engines_hit_rate():
    latency = seen(*[record(prompt=1000, cached=None)] * 4, *[record(prompt=1000, cached=900)] * 4)
    assert latency.take(now=0.0) is None
    latency.note_hit_rate(0.7)
    latency.note_hit_rate(None)
    assert latency.take(now=0.0) == pytest.approx(0.8 / (4 * 300 + 4 * 100))


def test_where_all_was_cached_an_untold_turn_has_one_token_too():
    latency = seen(*[record(prompt=1000, cached=None)] * 8)
    latency.note_hit_rate(1.0)
    assert latency.take(now=0.0) == pytest.approx(0.1)
