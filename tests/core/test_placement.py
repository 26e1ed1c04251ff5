"""Where turns go: laws of placement over gates of equal backends."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.core.placement import KEPT_S
from concur_proxy.model import BackendEvent
from tests.core.stand import SESSIONS, TOKENS, A, B, Stand, key

arrivals = st.lists(st.tuples(st.sampled_from([None, 1, 2, 3]), st.booleans()), max_size=120)
CACHED = 64
PROMPT = 100
TENTH = 0.1
"""By how much loads may differ, as the documents promise: not whatever the code says."""


def loads(stand, *, tokens):
    backends = stand.books.backends.values()
    return [backend.footprint_tokens if tokens else backend.active for backend in backends]


@given(arrivals, st.integers(2, 6), st.sampled_from([math.inf, 200.0]), st.sampled_from([None, 1e6]))
def test_sessions_spread_within_a_tenth_over_equal_backends_whatever_prefixes_they_share(
    script, count, window, capacity
):
    stand = Stand(*[window] * count, capacity=capacity)
    for number, (prefix, runs_on) in enumerate(script):
        name = f"s{number}"
        stand.arrive(name, prefix_key=prefix)
        if not runs_on:
            stand.finish(name, prompt=PROMPT, cached=CACHED if prefix else 0)
        active = loads(stand, tokens=False)
        assert max(active) <= (1 + TENTH) * min(active) + 2, active


@given(arrivals, st.integers(2, 6))
def test_tokens_spread_within_a_tenth_and_two_sessions(script, count):
    stand = Stand(*[100_000] * count, unit=TOKENS, capacity=1e6)
    for number, (prefix, _) in enumerate(script):
        stand.run(f"s{number}", tokens=PROMPT, prompt=PROMPT, cached=0, prefix_key=prefix)
        footprints = loads(stand, tokens=True)
        assert max(footprints) <= (1 + TENTH) * min(footprints) + 2 * PROMPT, footprints


@pytest.mark.parametrize("window", [1000.0, math.inf])
@pytest.mark.parametrize("count", [2, 4])
def test_a_prefix_draws_no_more_than_a_tenth_too_many_to_where_it_is(window, count):
    stand = Stand(*[window] * count, capacity=1e6)
    for number in range(100 * count):
        stand.run(f"plain {number}", prompt=PROMPT)
    most = []
    for number in range(200):
        stand.run(f"alike {number}", prompt=PROMPT, cached=CACHED, prefix_key=1)
        active = loads(stand, tokens=False)
        assert max(active) <= (1 + TENTH) * min(active) + 2, active
        most.append(max(active) - min(active))
    assert max(most) >= 5  # it does draw


@pytest.mark.parametrize("window", [10.0, math.inf])
def test_a_new_session_goes_where_its_prefix_is_while_loads_are_near(window):
    stand = Stand(window, window, capacity=1e6)
    first = stand.run("first", prefix_key=5).lease.backend
    assert stand.run("second", prefix_key=6).lease.backend != first
    assert stand.run("third", prefix_key=5).lease.backend == first
    assert stand.run("fourth", prefix_key=5).lease.backend == first  # one against one, and two against one
    assert stand.run("fifth", prefix_key=5).lease.backend != first


@pytest.mark.parametrize(("event", "goes_to"), [(None, A), (BackendEvent.FLUSHED, B)])
def test_a_prefix_attracts_as_long_as_it_is_in_the_cache(event, goes_to):
    stand = Stand(math.inf, math.inf, capacity=1e6)
    assert stand.run("first", prefix_key=5).lease.backend == A
    assert stand.run("second").lease.backend == B
    for name in ("first", "second"):
        stand.gate.end_session(key(name), now=stand.now)
    assert stand.run("third").lease.backend == A
    if event is not None:
        stand.event(A, event)
    assert stand.run("fourth", prefix_key=5).lease.backend == goes_to


def test_a_prefix_is_no_reason_to_wait_beside_room():
    stand = Stand(1, 1, capacity=1e6)
    assert stand.arrive("first", prefix_key=5).lease.backend == A
    assert stand.arrive("second", prefix_key=5).lease.backend == B


def test_without_a_capacity_the_origin_comes_first_until_its_agent_was_away_for_long():
    stand = Stand(10, 10, lease_min_s=1, lease_max_s=1)
    stand.run("busy")
    home = stand.run("agent").lease.backend
    assert home == B
    stand.arrive("other")  # on a, since nothing is active on b after a lease, or on either
    stand.wait(KEPT_S / 2)
    assert stand.run("agent").lease.backend == home
    stand.wait(KEPT_S + 1)
    for name in ("x", "y", "z"):
        stand.arrive(name)
    emptiest = min(stand.books.backends.values(), key=lambda backend: (backend.active, backend.id)).id
    assert stand.run("agent").lease.backend == emptiest


def test_where_the_origin_has_no_room_another_takes_the_turn():
    stand = Stand(1, 1, lease_min_s=1, lease_max_s=1)
    home = stand.run("agent").lease.backend
    stand.wait(5)
    stand.arrive("a")
    if stand.leases["a"].backend != home:
        stand.arrive("b")
        stand.finish("a")
        stand.wait(5)
    assert stand.run("agent").lease.backend != home


def test_units_do_not_matter_for_who_has_most_room():
    stand = Stand(10, 20, unit=SESSIONS)
    counts = [stand.arrive(f"s{number}").lease.backend for number in range(30)]
    assert (counts.count(A), counts.count(B)) == (10, 20)


@pytest.mark.parametrize("capacity", [1e6, None])
def test_a_context_that_may_be_alive_is_gone_back_to_although_others_have_more_room(capacity):
    stand = Stand(10, 10, capacity=capacity, lease_min_s=1, lease_max_s=1)
    home = stand.run("agent").lease.backend
    stand.wait(5)
    for name in ("x", "y", "z"):
        stand.arrive(name)
    active = {backend.id: backend.active for backend in stand.books.backends.values()}
    assert active.pop(home) > max(active.values())
    assert stand.run("agent").lease.backend == home


@given(st.lists(st.integers(1, 8), min_size=20, max_size=60))
def test_a_law_that_gives_more_than_the_cache_to_whoever_has_most_draws_nobody_there(factors):
    stand = Stand(*[40_000.0] * 4, unit=TOKENS, capacity=40_000)
    for number, factor in enumerate(factors):
        stand.run(f"s{number}", tokens=PROMPT, prompt=PROMPT, cached=0)
        fullest = max(stand.books.backends.values(), key=lambda backend: backend.footprint_tokens)
        stand.resize(factor * 40_000.0, backend=fullest.id)
        footprints = loads(stand, tokens=True)
        assert max(footprints) <= (1 + TENTH) * min(footprints) + 2 * PROMPT, footprints
