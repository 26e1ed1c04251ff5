"""What replicas tell each other comes out as it went in, a while later; and what it adds up to."""

from __future__ import annotations

import math

import pytest

from concur_proxy.core.handover import SessionState
from concur_proxy.model import BackendId, FinishReason, Outcome, PoolId, SessionKey, TurnRecord, Usage
from concur_proxy.state.reports import (
    Departures,
    Report,
    add_up,
    dump_records,
    dump_reports,
    dump_session,
    load_records,
    load_reports,
    load_session,
    name_of,
    pool_and_key,
)
from concur_proxy.state.shares import Demand

A = BackendId("a")


def test_reports_come_out_as_they_went_in_and_what_is_not_known_is_passed_over() -> None:
    reports = {A: Report(Demand(3.0, 2.0, 1.0, 0.5), active=3, held=2, footprint_tokens=10.0, bound=True)}
    text = dump_reports(reports)
    assert load_reports(text) == reports
    assert load_reports(text.replace('"active"', '"of a later version": 1, "active"')) == reports


def test_turns_come_out_as_old_as_they_are() -> None:
    record = TurnRecord(
        A,
        SessionKey("n", 'odd "id" | é'),
        Outcome.COMPLETED,
        10.0,
        11.0,
        15.0,
        first_token_at=12.0,
        think_s=3.0,
        usage=Usage(100, 20, None),
        expected_cached_tokens=50,
        finish_reason=FinishReason.TOOL_CALLS,
    )
    bare = TurnRecord(A, SessionKey("n", "s"), Outcome.CANCELLED, 10.0, 11.0, 15.0)
    there = load_records(dump_records([record, bare], now=20.0), now=1020.0)
    assert [(each.arrived_at, each.finished_at) for each in there] == [(1010.0, 1015.0)] * 2
    assert there[0].first_token_at == 1012.0
    assert (there[0].session, there[0].usage, there[0].finish_reason) == (
        record.session,
        record.usage,
        record.finish_reason,
    )
    assert (there[1].usage, there[1].first_token_at, there[1].outcome) == (None, None, Outcome.CANCELLED)


def test_a_session_comes_out_older_and_with_less_of_its_lease() -> None:
    state = SessionState(
        pool=PoolId("pool"),
        key=SessionKey("n", "s"),
        rule="header",
        parent=SessionKey("n", "p"),
        prefix_key=2**62 + 1,
        origin=A,
        busy=False,
        charge=1.0,
        charged_tokens=100,
        lease_s=30.0,
        idle_s=1.0,
        footprint=120,
        turns=3,
        paused=False,
        tokens_per_byte=0.3,
        reuse=0.9,
        think=(2, 1.5, 0.5),
        finish_reason=FinishReason.STOP,
        goes_on_after_stop=True,
    )
    name = name_of(state.pool, state.key)
    assert pool_and_key(name) == (state.pool, state.key)
    there = load_session(name, dump_session(state), age_s=10.0)
    assert (there.lease_s, there.idle_s) == (20.0, 11.0)
    assert load_session(name, dump_session(state), age_s=0.0) == state
    assert load_session(name, dump_session(state), age_s=99.0).lease_s == 0.0


def test_all_replicas_together_are_one_backend() -> None:
    one = Report(Demand(4.0, 1.0, 1.0, 2.0), 4, 3, 1, 50.0, 10.0, 30.0, 5.0, 3.0, 100.0)
    other = Report(Demand(2.0), 2, 2, 0, 30.0, 10.0, 20.0, 7.0, 1.0, 60.0)
    view = add_up([one, other], window=6.0, minimum=1.0, maximum=math.inf, bound=True)
    assert (view.active, view.running, view.held) == (6, 5, 1)
    assert (view.footprint_tokens, view.shared_tokens) == (70.0, 10.0)  # a shared prefix is in the cache once
    assert (view.records_age_s, view.busy_s, view.cache_tokens) == (1.0, 7.0, 80.0)
    assert view.bound
    assert view.typical_footprint_tokens == pytest.approx(70 / 6)


def test_a_share_that_was_full_while_others_had_room_does_not_make_the_window_bind() -> None:
    idle = [Report(Demand(1.0), active=1), Report(Demand(2.0), active=2)]
    assert not add_up(idle, window=6.0, minimum=1.0, maximum=9.0, bound=True).bound
    full = [Report(Demand(3.0), active=3), Report(Demand(3.0), active=3)]
    assert add_up(full, window=6.0, minimum=1.0, maximum=9.0, bound=True).bound


def test_departures_add_up_and_never_fall_whoever_comes_or_goes() -> None:
    seen = Departures()
    for name, departed in [("one", 5), ("other", 0), ("one", 7), ("other", 1)]:
        seen.hear(name, A, departed)
    assert seen.of(A) == 3  # what one had before it was first heard of is no news
    seen.keep({"other"})
    assert seen.of(A) == 3
    seen.hear("one", A, 9)
    seen.hear("other", A, 2)
    assert seen.of(A) == 4
