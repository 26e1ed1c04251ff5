"""What the gate tells of those who wait."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.core.stand import Stand


def test_the_age_of_the_queue_is_the_wait_of_the_turn_that_was_held_first():
    stand = Stand(1)
    assert stand.books.longest_wait_s is None
    stand.arrive("one")
    stand.wait(1)
    stand.arrive("two")
    stand.wait(2)
    stand.arrive("three")
    stand.wait(3)
    assert stand.books.longest_wait_s == 5
    stand.abandon("two")
    assert stand.books.longest_wait_s == 3
    stand.abandon("three")
    assert stand.books.longest_wait_s is None


def test_sessions_that_have_run_before_are_told_apart_from_new_ones():
    stand = Stand(3)
    stand.arrive("busy")
    for name in ("one", "two"):
        stand.run(name)
    stand.resize(1, hard=True)
    stand.arrive("one")
    stand.arrive("new")
    assert (stand.books.held, stand.books.held_paused) == (2, 1)
    stand.abandon("one")
    assert (stand.books.held, stand.books.held_paused) == (1, 0)


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(["arrive", "finish", "abandon", "shrink", "grow"])))
)
def test_held_and_paused_turns_add_up_whatever_happens(steps):
    stand = Stand(2)
    for name, what in steps:
        stand.wait(0.5)
        if what == "arrive" and name not in stand.leases and name not in stand.tickets:
            stand.arrive(name)
        elif what == "finish" and name in stand.leases:
            stand.finish(name)
        elif what == "abandon" and name in stand.tickets:
            stand.abandon(name)
        elif what in ("shrink", "grow"):
            stand.resize(1 if what == "shrink" else 3, hard=True)
        books = stand.books
        assert 0 <= books.held_paused <= books.held
        assert (books.longest_wait_s is None) == (books.held == 0)
