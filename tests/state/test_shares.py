"""How a window is divided, as laws over any demands."""

import math

from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.state.holding import LEAST, Holding
from concur_proxy.state.shares import Demand, divide, water_fill
from concur_proxy.windows.base import Unit

amounts = st.floats(0, 1e6)
counts = st.integers(0, 50)


@st.composite
def demands(draw, amount=amounts):
    names = draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, unique=True))
    found = {}
    for name in names:
        wanted = float(draw(amount))
        first = draw(st.floats(0, 1)) * wanted if wanted else 0.0
        waited = draw(st.floats(0, 1000)) if wanted else None
        found[name] = Demand(float(draw(amount)), wanted, first, waited)
    return found


@given(amounts, demands())
def test_the_sum_never_exceeds_the_window_and_nothing_of_it_lies_idle(window, asked):
    shares = divide(window, asked, indivisible=False)
    assert shares.keys() == asked.keys()
    assert all(share >= 0 for share in shares.values())
    assert sum(shares.values()) <= window
    assert math.isclose(sum(shares.values()), window, rel_tol=1e-6, abs_tol=1e-6)


@given(counts, demands(counts))
def test_places_are_whole_and_all_given(window, asked):
    shares = divide(float(window), asked, indivisible=True)
    assert all(share == int(share) >= 0 for share in shares.values())
    assert sum(shares.values()) == window


@given(counts, demands(counts))
def test_who_asks_for_what_is_there_gets_it(window, asked):
    shares = divide(float(window), asked, indivisible=True)
    if sum(demand.whole for demand in asked.values()) <= window:
        assert all(shares[name] >= demand.whole for name, demand in asked.items())


@given(amounts, demands())
def test_the_turn_that_has_waited_longest_is_provided_for(window, asked):
    waiting = [name for name, demand in asked.items() if demand.waited_s is not None]
    if not waiting:
        return
    name = max(waiting, key=lambda each: (asked[each].waited_s, each))
    need = min(window, asked[name].load + asked[name].first)
    assert divide(window, asked, indivisible=False)[name] >= need * (1 - 1e-9)


@given(counts, demands(counts))
def test_everybody_keeps_what_is_active_there_but_for_the_turn_that_has_waited_longest(window, asked):
    shares = divide(float(window), asked, indivisible=True)
    if sum(demand.load for demand in asked.values()) > window:
        return
    lost = sum(max(0.0, demand.load - shares[name]) for name, demand in asked.items())
    needed = [(demand.waited_s, name) for name, demand in asked.items() if demand.waited_s is not None]
    assert lost <= (math.ceil(asked[max(needed)[1]].first) if needed else 0)


@given(amounts, demands())
def test_what_is_left_is_divided_evenly(window, asked):
    """Nobody gets more than another who asks for more, but for what is active and the turn that has waited longest."""
    shares = divide(window, asked, indivisible=False)
    for name, demand in asked.items():
        for other, theirs in asked.items():
            if shares[name] > shares[other] * (1 + 1e-6) + 1e-6 and shares[other] < theirs.whole * (1 - 1e-6) - 1e-6:
                assert shares[name] <= (demand.load + demand.first) * (1 + 1e-6) + 1e-6


@given(amounts, st.dictionaries(st.sampled_from("abcdefgh"), amounts, min_size=1))
def test_nobody_gets_more_than_a_smaller_claim_leaves(amount, claims):
    granted = water_fill(amount, claims)
    assert all(granted[name] <= claim for name, claim in claims.items())
    unmet = [name for name in claims if granted[name] < claims[name] - 1e-6]
    if unmet:
        level = min(granted[name] for name in unmet)
        assert all(share <= level * (1 + 1e-6) + 1e-6 for share in granted.values())
        assert math.isclose(sum(granted.values()), amount, rel_tol=1e-6, abs_tol=1e-6)


def test_three_replicas_with_nothing_to_do_share_a_window_of_ten():
    idle = {name: Demand() for name in "abc"}
    assert divide(10.0, idle, indivisible=True) == {"a": 4.0, "b": 3.0, "c": 3.0}


def test_a_session_as_large_as_the_window_gets_all_of_it_when_it_has_waited_longest():
    asked = {"a": Demand(0, 100, 100, waited_s=9.0), "b": Demand(60, 400, 10, waited_s=8.0)}
    assert divide(100.0, asked, indivisible=False)["a"] == 100.0


def test_a_window_without_end_needs_no_dividing():
    assert divide(math.inf, {"a": Demand(), "b": Demand(5)}, indivisible=True) == {"a": math.inf, "b": math.inf}


def test_whoever_goes_first_in_the_order_is_provided_for_however_long_others_have_waited():
    asked = {"a": Demand(4, 6, 3, 900.0, rank=1), "b": Demand(4, 6, 3, 5.0, rank=0)}
    shares = divide(10.0, asked, indivisible=False)
    assert shares["b"] >= 7.0
    assert divide(10.0, {**asked, "b": Demand(4, 6, 3, 5.0, rank=1)}, indivisible=False)["a"] >= 6.0 - 1e-6


CACHE = 900.0


@given(st.lists(st.tuples(amounts, st.floats(0, 100)), min_size=2, max_size=5), st.floats(0.3, 1.2))
def test_of_a_cache_that_replicas_share_only_who_has_the_oldest_context_gives_up_any(replicas, trust):
    held = [tokens for tokens, _ in replicas]
    ages = [age for _, age in replicas]
    for number, (tokens, age) in enumerate(replicas):
        others = sum(held) - tokens
        oldest = max(other for at, other in enumerate(ages) if at != number)
        holding = Holding(Unit.TOKENS, capacity_tokens=CACHE, cached_elsewhere=others, oldest_elsewhere_s=oldest)
        part = holding.our_cache_tokens(age, len(replicas), trust)
        assert part is not None
        if age < oldest:
            assert part == CACHE
        elif sum(held) <= CACHE * trust:
            assert part * trust >= tokens - 1e-6, "there is room for all of it"
        else:
            least = CACHE * LEAST / len(replicas)
            assert part == least or math.isclose(part * trust + others, CACHE * trust, rel_tol=1e-6)


def test_a_replica_alone_has_the_whole_cache_and_one_that_does_not_know_it_has_none():
    assert Holding(Unit.TOKENS, capacity_tokens=CACHE).our_cache_tokens(0.0, 1, 1.0) == CACHE
    assert Holding(Unit.TOKENS).our_cache_tokens(0.0, 3, 1.0) is None
