"""Pages of sessions: what is on them is what a plain look at all of them says."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from concur_proxy.core.listing import Query, Sort
from concur_proxy.model import Outcome
from tests.core.stand import A, Stand, key


def stand_with(names, window=4):
    """Sessions that ran for a while in their order, each with a context of its own size; some still run, some wait."""
    stand = Stand(window)
    for number, name in enumerate(names):
        stand.arrive(name)
        stand.wait(1.0)
        if name in stand.leases and number % 3:
            stand.finish(name, prompt=100 * (number % 7) + 1)
        stand.wait(1.0)
    return stand


def find(stand, **query):
    *parts, found = stand.gate.find_sessions(Query(**query), now=stand.now)
    assert parts == [None] * len(parts)
    return found


def states(stand):
    *_, counts = stand.gate.session_states()
    return counts


def split(every, size):
    return (every[start : start + size] for start in range(0, len(every), size))


@pytest.mark.sources
@settings(max_examples=50)
@given(
    st.integers(1, 7),
    st.integers(0, 30),
    st.sampled_from(Sort),
    st.booleans(),
    st.integers(0, 12),
    st.integers(1, 12),
    st.sampled_from(["", "1", "S2", "nobody"]),
)
def test_a_page_is_a_part_of_all(part, count, sort, reverse, offset, limit, text):
    stand = stand_with([f"s{number}" for number in range(count)])
    every = [view for view in stand.gate.sessions(now=stand.now) if text.lower() in view.key.id]
    whole = find(stand, text=text, sort=sort, reverse=reverse, limit=1000)
    stand.gate._session_parts = lambda: split(list(stand.gate._intake.sessions.newest_first()), part)
    page = find(stand, text=text, sort=sort, reverse=reverse, offset=offset, limit=limit)
    assert whole.total == page.total == len(every)
    assert {view.key for view in whole.sessions} == {view.key for view in every}
    assert page.sessions == whole.sessions[offset : offset + limit]
    if sort is Sort.RECENT:
        assert whole.sessions == (every[::-1] if reverse else every)


@pytest.mark.parametrize(
    ("sort", "value"),
    [
        (Sort.FOOTPRINT, lambda view: -view.footprint_tokens),
        (Sort.TURNS, lambda view: -view.turns),
        (Sort.IDLE, lambda view: float("inf") if view.idle_s is None else -view.idle_s),
        (Sort.ID, lambda view: view.key.id),
        (Sort.STATE, lambda view: view.state),
    ],
)
def test_each_order_is_one(sort, value):
    stand = stand_with([f"s{number}" for number in range(12)], window=8)
    for reverse in (False, True):
        values = [value(view) for view in find(stand, sort=sort, reverse=reverse).sessions]
        assert values == sorted(values, reverse=reverse)
        assert len(set(values)) > 1 or sort is Sort.TURNS


def test_sessions_are_found_by_state_and_backend():
    stand = Stand(1)
    stand.arrive("runs")
    stand.arrive("waits")
    assert [view.key.id for view in find(stand, state="held").sessions] == ["waits"]
    assert [view.key.id for view in find(stand, backend=A).sessions] == ["runs"]
    assert find(stand, state="idle").total == 0
    assert states(stand) == {"running": 1, "held": 1}


def test_who_is_gone_is_in_no_list():
    stand = Stand(1)
    stand.arrive("one")
    stand.finish("one", outcome=Outcome.ENGINE_ERROR)
    assert states(stand) == {}
    assert find(stand).total == 0


def test_a_session_is_found_by_its_id_under_its_own_key_only():
    stand = Stand(1)
    stand.arrive("one")
    assert stand.gate.keys_of("one", "tenant") == stand.gate.keys_of("one", None) == [key("one")]
    assert stand.gate.keys_of("one", "another") == []


def test_the_queue_shows_who_has_waited_longest():
    stand = Stand(1)
    stand.arrive("runs")
    for name in ("first", None, "third"):
        stand.arrive(name)
        stand.wait(5.0)
    turns = stand.gate.held_turns(now=stand.now, limit=2)
    assert [(turn.waited_s, turn.named) for turn in turns] == [(15.0, True), (10.0, False)]
    assert turns[0].session.id == "first"
    assert turns[0].left_s == stand.gate.policy.max_wait_s - 15.0
    assert not turns[0].paused
    assert len(stand.gate.held_turns(now=stand.now)) == 3
