"""What answers say of reuse and of the view a law gets, through the gate."""

import pytest

from tests.core.stand import A, Stand


def expected(stand):
    return stand.finished.record.expected_cached_tokens


def test_clients_that_drop_text_teach_what_to_expect():
    stand = Stand(8, capacity=100_000)
    for _ in range(12):
        stand.run("agent", tokens=1000, prompt=1000, cached=600)
    assert expected(stand) < 700


def test_evictions_of_contexts_believed_warm_do_not():
    """The cache is smaller than it says: what others have computed meanwhile has driven the context out."""
    stand = Stand(64, capacity=10_000)
    for number in range(12):
        stand.run("agent", tokens=1000, prompt=1000, cached=0)
        stand.run(f"other {number}", tokens=7000, prompt=7000, cached=0)
    stand.run("agent", tokens=1000, prompt=1000, cached=0)
    assert expected(stand) == 1000 // 16 * 16


def test_what_waits_in_an_overfull_engine_says_nothing_of_its_capacity():
    stand = Stand(8, capacity=3000)
    shadow = stand.gate._pools.backend(A).shadow
    stand.run("agent", tokens=1000, prompt=1000)
    for name in ("one", "two", "three"):
        stand.arrive(name, tokens=1000)
    stand.gate.resize(A, 16, now=stand.now)
    shadow_before = shadow.trust
    stand.arrive("agent", tokens=1000)
    stand.finish("agent", prompt=1000, cached=0)
    assert shadow.trust == shadow_before


def test_the_view_tells_what_runs_and_for_how_long_something_did():
    stand = Stand(8, capacity=10_000)
    stand.wait(5)
    stand.arrive("one", tokens=1000)
    stand.wait(2)
    stand.arrive("two", tokens=500)
    view = stand.gate.view(A, now=stand.now)
    assert (view.running_tokens, view.busy_s, view.cache_tokens) == (1500, 2.0, 10_000)
    stand.finish("one", prompt=1000)
    stand.wait(1)
    stand.finish("two", prompt=500)
    stand.wait(10)
    view = stand.gate.view(A, now=stand.now)
    assert (view.running_tokens, view.busy_s) == (0, 3.0)


def test_the_view_tells_what_is_shared():
    stand = Stand(8, capacity=100_000)
    stand.run("first", tokens=5000, prompt=5000, cached=0, prefix_key=3)
    stand.run("second", tokens=5000, prompt=5000, cached=4000, prefix_key=3)
    view = stand.gate.view(A, now=stand.now)
    assert view.shared_tokens == pytest.approx(4000)
    assert view.footprint_tokens > view.shared_tokens


def test_nobody_knows_the_cache_of_an_engine_without_capacity():
    assert Stand(8).gate.view(A, now=0.0).cache_tokens is None


def test_a_client_that_changes_its_history_says_nothing_of_the_capacity():
    stand = Stand(8, capacity=100_000)
    trust = [stand.gate._pools.backend(A).shadow.trust]
    for _ in range(10):
        stand.run("agent", tokens=1000, prompt=1000, cached=0)
        trust.append(stand.gate._pools.backend(A).shadow.trust)
    assert set(trust) == {1.0}


def test_a_context_that_others_have_driven_out_before_it_was_expected_lowers_the_trust():
    stand = Stand(8, capacity=10_000)
    for number in range(3):
        stand.run("agent", tokens=1000, prompt=1000, cached=0)
        stand.run(f"other {number}", tokens=7000, prompt=7000, cached=0)
    assert stand.gate._pools.backend(A).shadow.trust < 1.0
