"""What orders are made of: the second line behind ageing, accounts of tenants, what is learned of turns."""

import pytest

from concur_proxy.core.order.ageing import Ageing
from concur_proxy.core.order.progress import KINDS, LONGEST, MEMORY, Progress, TurnCounts
from concur_proxy.core.order.tenants import REMEMBERED, Accounts
from concur_proxy.model import Usage
from tests.core.stand import Stand

pytestmark = pytest.mark.sources


class Waiter:
    """The parts of a turn that ageing and accounts look at."""

    def __init__(self, ticket, tenant="", at=0.0, deadline=1e9):
        self.ticket, self.arrived_at, self.deadline = ticket, at, deadline
        self.facts = type("Facts", (), {"tenant": tenant})
        self.prepaid = 0.0
        self.first_arrived_at = float(ticket)
        self.session = type("Session", (), {"was_active": False})


def joined(count, share=0.0):
    ageing, turns = Ageing(2.0, share), [Waiter(number) for number in range(count)]
    for turn in turns:
        ageing.joined(turn, float(turn.ticket))
    return ageing, turns


def overdue(ageing, now):
    return [turn.ticket for turn in ageing.newly_overdue(now)]


# ageing


def test_who_was_passed_is_overdue_after_its_patience():
    ageing, (first, _, third) = joined(3)
    ageing.granted(third, 10.0)
    assert overdue(ageing, 19.9) == []
    assert overdue(ageing, 20.0) == [0]
    assert ageing.is_overdue(first)
    assert overdue(ageing, 30.0) == []  # once


def test_who_went_in_turn_is_never_overdue():
    ageing, turns = joined(3)
    for turn in turns:
        ageing.granted(turn, 10.0)
    assert overdue(ageing, 1e6) == []
    assert len(ageing) == 0


def test_nobody_is_overdue_within_a_second():
    ageing, (_, second) = joined(2)
    ageing.granted(second, 0.1)
    assert overdue(ageing, 1.0) == []
    assert overdue(ageing, 1.2) == [0]


def test_one_that_was_passed_and_leaves_makes_way_in_the_second_line():
    ageing, (first, _, third) = joined(3)
    ageing.granted(third, 10.0)
    ageing.gone(first)
    assert overdue(ageing, 100.0) == [1]


def test_one_that_leaves_before_its_turn_is_passed_over():
    ageing, (first, _, third) = joined(3)
    ageing.gone(first)
    ageing.granted(third, 10.0)
    assert overdue(ageing, 100.0) == [1]


def test_one_that_comes_back_stands_in_the_second_line_once():
    ageing, (_, _, third) = joined(3)
    for _ in range(50):
        ageing.granted(third, 10.0)
        ageing.joined(third, 2.0)
        assert len(ageing._line) <= 3


def test_one_that_comes_back_is_not_overdue_for_having_been():
    ageing, (first, second) = joined(2)
    ageing.granted(second, 10.0)
    overdue(ageing, 100.0)
    ageing.granted(first, 100.0)
    assert not ageing.is_overdue(first)


def test_what_was_passed_does_not_pile_up():
    """Invariant 9."""
    ageing, turns = joined(1000)
    for turn in reversed(turns):
        ageing.granted(turn, 10.0)
    assert len(ageing) <= 64
    ageing, turns = joined(1000)
    for turn in turns:
        ageing.gone(turn)
    assert len(ageing) <= 64


# those that have waited longest


def test_who_waited_longest_goes_first_in_its_share_of_the_cases():
    ageing, turns = joined(9, share=0.5)
    went = []
    for turn in reversed(turns[4:]):
        ageing.granted(turn, 0.1)
        went.append(overdue(ageing, 0.1))
    assert went == [[], [0], [], [1], []]


def test_who_waited_longest_is_looked_for_among_those_that_still_wait():
    ageing, (first, second, third, fourth, fifth) = joined(5, share=1.0)
    ageing.gone(first)
    ageing.granted(second, 0.1)
    assert overdue(ageing, 0.1) == [2]
    ageing.granted(third, 0.1)
    ageing.joined(third, 2.0)  # put back
    ageing.granted(fourth, 0.1)
    assert overdue(ageing, 0.1) == [2, 4]
    ageing.granted(third, 0.1)
    ageing.granted(fifth, 0.1)
    assert overdue(ageing, 0.1) == []


def test_those_that_come_and_go_do_not_pile_up_where_the_longest_wait_counts():
    """Invariant 9."""
    ageing, turns = joined(1000, share=0.5)
    for turn in turns:
        ageing.gone(turn)
    assert len(ageing) <= 130


def test_another_order_may_have_another_share():
    ageing, turns = joined(5)
    assert not ageing.goes_next(turns[0])
    ageing.follow(2.0, 1.0, [(float(turn.ticket), turn.ticket, turn) for turn in turns])
    ageing.granted(turns[4], 0.1)
    assert overdue(ageing, 0.1) == [0]
    assert ageing.goes_next(turns[0])
    ageing.follow(2.0, 1.0, [])
    assert not ageing.goes_next(turns[0])  # it has another rank there
    ageing.granted(turns[0], 0.1)
    ageing.follow(2.0, 0.0, [(float(turn.ticket), turn.ticket, turn) for turn in turns[1:4]])
    assert overdue(ageing, 0.1) == []


# accounts


def test_a_turn_that_is_put_back_is_charged_once():
    accounts, turn = Accounts({}), Waiter(1, "a")
    for _ in range(3):
        accounts.joined(turn)
        accounts.granted(turn)
        accounts.left(turn)
    accounts.finished(turn, Usage(600, 0))
    tenant = accounts.of(turn)
    assert tenant.served - tenant.credit == pytest.approx(600)


def test_what_was_charged_too_much_is_used_up_first():
    accounts = Accounts({"a": 2.0})
    for _ in range(10):
        turn = Waiter(1, "a")
        accounts.joined(turn)
        accounts.granted(turn)
        accounts.left(turn)
        before = accounts.of(turn).served
        accounts.finished(turn, Usage(100, 0, 60))
        assert accounts.of(turn).served >= before  # never falls
    tenant = accounts.of(turn)
    assert tenant.served - tenant.credit == pytest.approx(10 * 40 / 2.0)


def test_a_failed_turn_costs_nothing():
    accounts, turn = Accounts({}), Waiter(1, "a")
    accounts.joined(turn)
    accounts.granted(turn)
    accounts.left(turn)
    accounts.finished(turn, None)
    assert accounts.of(turn).served == accounts.of(turn).credit


def test_accounts_are_as_many_as_are_remembered():
    """Invariant 9: names of tenants are as many as clients like, accounts are not; whoever waits has one."""
    accounts, waits = Accounts({}), Waiter(0, "waits")
    accounts.joined(waits)
    tenant = accounts.of(waits)
    for number in range(REMEMBERED + 50):
        accounts.finished(Waiter(number, f"t-{number}"), Usage(10, 0))
    assert len(accounts) == REMEMBERED
    assert accounts.of(waits) is tenant


# turns


def lived(counts, turns, sessions=100, **kind):
    for _ in range(sessions):
        for turn in range(1, turns):
            counts.went_on(turn, **kind)
        counts.ended(turns, **kind)


def test_remaining_turns_are_learned():
    counts = TurnCounts()
    assert counts.remaining(1) == pytest.approx(19, rel=0.01)
    lived(counts, 3)
    assert [counts.remaining(turns) for turns in (1, 2, 3)] == pytest.approx([2.0, 1.0, 0.0], abs=0.5)


def test_sessions_that_are_still_there_are_no_short_ones():
    """Each number of turns is judged by those of whom the outcome is known."""
    counts = TurnCounts()
    for _ in range(100):
        counts.went_on(1)
    assert counts.remaining(1) > 15


def test_what_was_learned_fades():
    counts = TurnCounts()
    for _ in range(MEMORY):
        counts.ended(1)
    for _ in range(MEMORY):
        counts.went_on(1)
        counts.ended(2)
    assert counts.remaining(1) > 0.5


def test_very_long_sessions_count_alike():
    counts = TurnCounts()
    counts.ended(10**9)
    counts.went_on(10**9)
    assert counts.remaining(10**9) == counts.remaining(LONGEST)


def test_kinds_are_told_apart_and_new_ones_are_like_all():
    progress = Progress()
    lived(progress, 3, kind=1)
    lived(progress, 30, sessions=30, kind=2)
    assert progress.after(2, 1) > 0.6
    assert progress.after(2, 2) < 0.1
    assert progress.after(2, 2) < progress.after(2, None) < progress.after(2, 1)
    assert progress.after(2, 3) == progress.after(2, None)


def test_kinds_are_as_many_as_are_told_apart():
    """Invariant 9."""
    progress = Progress()
    for kind in range(3 * KINDS):
        progress.went_on(1, kind)
        progress.ended(2, kind)
    assert len(progress._kinds) == KINDS


def test_cache_aware_learns_from_those_that_go_on_and_those_that_end():
    stand = Stand(1000, order="cache_aware")
    for number in range(80):
        turns = 2 if number % 4 == 0 else 3
        for index in range(turns):
            stand.run(f"past-{number}", final=index == turns - 1)
    progress = next(iter(stand.gate._pools)).line.order._progress
    assert 0.5 < progress.after(2, None) < 0.8  # three of four go on


def test_cache_aware_learns_from_sessions_that_say_nothing():
    """They are not expected back when their lease is over, or when they are forgotten."""
    stand = Stand(1000, order="cache_aware")
    for number in range(60):
        for _ in range(2):
            stand.run(f"past-{number}")
    progress = next(iter(stand.gate._pools)).line.order._progress
    assert progress.after(2, None) < 0.2
    stand.wait(3600.0)
    assert progress.after(2, None) > 0.7
