"""Seconds per token of a prompt, learned from turns."""

import math
from random import Random

import pytest

from concur_proxy.core.prefill import PREFILL_S, PrefillTime


def learned(turns, token_s=5e-4, decode_s=0.03, slowed=0.0, seed=1):
    """Turns of 100 to 20,000 computed tokens; ``slowed``: share that took ten times as long."""
    random, time = Random(seed), PrefillTime()
    for _ in range(turns):
        prefilled, decoded = random.randint(100, 20_000), random.choice([1, 50, 400])
        seconds = token_s * prefilled + decode_s * decoded
        time.add(seconds * (10.0 if random.random() < slowed else 1.0), prefilled=prefilled, decoded=decoded)
    return time.token_s


def test_before_a_turn_it_is_what_a_card_of_the_kind_does():
    assert PrefillTime().token_s == PREFILL_S


@pytest.mark.parametrize("token_s", [2e-5, 1e-4, 2e-3])
def test_a_some_dozen_turns_tell_it(token_s):
    assert learned(150, token_s) == pytest.approx(token_s, rel=0.2)


def test_turns_that_others_slowed_down_count_for_little():
    assert learned(200, slowed=0.2) == pytest.approx(5e-4, rel=0.3)


def test_it_follows_another_engine():
    time = PrefillTime()
    for token_s in [1e-4] * 300 + [1e-3] * 100:
        time.add(5000 * token_s, prefilled=5000, decoded=1)
    assert time.token_s == pytest.approx(1e-3, rel=0.1)


def test_whatever_it_is_told_a_token_takes_some_time():
    time = PrefillTime()
    for seconds in (0.0, -1.0, 1e9, 1e-9):
        time.add(seconds, prefilled=0, decoded=500)
        time.add(seconds, prefilled=10_000, decoded=0)
        assert 0.0 < time.token_s < math.inf
