"""What one tenant may take: active sessions, turns that wait, turns and tokens a minute."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.core.limits import REMEMBERED, Account, Bucket, Limits
from concur_proxy.core.policy import GatePolicy, TenantLimits
from concur_proxy.model import Admitted, Held, Outcome, RefusalReason, Usage
from tests.core.stand import Stand


def stand(*windows, default=None, **limits):
    """``limits``: of those who are named; a number of seconds is how long a refused one is to wait."""
    rules = {name: TenantLimits(**rule) for name, rule in limits.items()}
    if default is not None:
        rules["default"] = TenantLimits(**default)
    return Stand(*windows, limits=rules, retry_after_s=7.0)


def refusal(answer):
    return answer.reason, pytest.approx(answer.retry_after_s)


# rates


def test_a_tenant_may_send_so_many_turns_a_minute():
    here = stand(100, default={"turns_per_minute": 3})
    for _ in range(3):
        here.run(tenant="a")
    assert refusal(here.arrive(tenant="a")) == (RefusalReason.TURN_RATE, 20.0)
    here.run(tenant="b")
    here.wait(19.0)
    assert refusal(here.arrive(tenant="a")) == (RefusalReason.TURN_RATE, 1.0)
    here.wait(1.0)
    here.run(tenant="a")
    assert here.arrive(tenant="a").reason is RefusalReason.TURN_RATE


def test_a_tenant_may_take_so_many_tokens_a_minute_and_pays_off_what_it_has_overdrawn():
    here = stand(100, default={"tokens_per_minute": 600})
    for name in ("one", "two"):
        here.arrive(name, tenant="a")
    for name in ("one", "two"):
        here.finish(name, prompt=700, cached=300, completion=200)  # 600 computed
    answer = here.arrive("three", tenant="a")
    assert answer.reason is RefusalReason.TOKEN_RATE
    assert answer.retry_after_s == pytest.approx(60.1)
    here.wait(answer.retry_after_s)
    assert isinstance(here.arrive("three", tenant="a"), Admitted)


def test_cached_tokens_cost_nothing():
    here = stand(100, default={"tokens_per_minute": 600})
    for _ in range(50):
        here.run("agent", prompt=50_000, cached=49_990, completion=1, tenant="a")
    here.run("agent", prompt=50_000, cached=49_950, completion=0, tenant="a")
    assert here.arrive("agent", tenant="a").reason is RefusalReason.TOKEN_RATE


def test_what_is_refused_does_not_count():
    here = stand(100, default={"turns_per_minute": 1})
    here.run(tenant="a")
    for _ in range(100):
        assert here.arrive(tenant="a").reason is RefusalReason.TURN_RATE
    here.wait(60.0)
    here.run(tenant="a")


@given(
    per_minute=st.floats(1.0, 1000.0),
    gaps=st.lists(st.floats(0.0, 30.0), min_size=1, max_size=100),
)
def test_a_bucket_never_gives_more_than_one_minute_ahead(per_minute, gaps):
    """Within any time, at most what it allows for that time and one minute's worth."""
    now, bucket, taken = 0.0, Bucket(per_minute, 0.0), []
    for gap in gaps:
        now += gap
        wait_s = bucket.wait_s(1.0, now)
        if wait_s == 0.0:
            bucket.take(1.0, now)
            taken.append(now)
        else:
            again = Bucket(per_minute, 0.0)
            for at in taken:
                again.take(1.0, at)
            assert again.wait_s(1.0, now + wait_s + 1e-6) == 0.0
    for index, start in enumerate(taken):
        for later, end in enumerate(taken[index:]):
            assert later + 1 <= per_minute * (1.0 + (end - start) / 60.0) + 1e-6


# sessions and turns that wait


def test_a_tenant_may_have_so_many_sessions_active():
    here = stand(100, default={"active_sessions": 2})
    here.run("one", tenant="a")  # idle: it holds its place
    here.arrive("two", tenant="a")
    assert refusal(here.arrive("three", tenant="a")) == (RefusalReason.TOO_MANY_SESSIONS, 7.0)
    assert isinstance(here.arrive("one", tenant="a"), Admitted)
    assert isinstance(here.arrive("other", tenant="b"), Admitted)
    here.finish("two")
    here.finish("one")
    here.note(here.gate.end_session(here.finished.record.session, now=here.now))
    assert isinstance(here.arrive("three", tenant="a"), Admitted)


def test_sessions_that_wait_are_active():
    here = stand(1, default={"active_sessions": 2})
    here.arrive("one", tenant="a")
    here.arrive("two", tenant="a")
    assert here.held == {"two"}
    assert here.arrive("three", tenant="a").reason is RefusalReason.TOO_MANY_SESSIONS
    here.abandon("two")
    assert isinstance(here.arrive("three", tenant="a"), Held)


def test_a_session_whose_lease_is_over_is_not_active():
    here = stand(100, default={"active_sessions": 1})
    here.run("one", tenant="a")
    here.wait(1000.0)
    here.run("two", tenant="a")
    assert here.arrive("one", tenant="a").reason is RefusalReason.TOO_MANY_SESSIONS


def test_so_many_turns_of_a_tenant_may_wait():
    here = stand(1, default={"held_turns": 2})
    for number in range(3):
        here.arrive(f"a-{number}", tenant="a", final=True)
    assert here.held == {"a-1", "a-2"}
    assert refusal(here.arrive("a-3", tenant="a")) == (RefusalReason.TOO_MANY_HELD, 7.0)
    assert isinstance(here.arrive("b", tenant="b"), Held)
    here.finish("a-0")
    assert isinstance(here.arrive("a-3", tenant="a"), Held)
    here.abandon("a-3")
    assert isinstance(here.arrive("a-3", tenant="a"), Held)


def test_none_may_wait_where_the_limit_is_zero():
    here = stand(1, default={"held_turns": 0})
    here.arrive("runs", tenant="a")
    assert here.arrive("late", tenant="a").reason is RefusalReason.TOO_MANY_HELD


def test_a_turn_that_is_put_back_may_wait_whatever_the_limit_is():
    here = stand(1, default={"held_turns": 0})
    here.arrive("runs", tenant="a", final=True)
    here.requeue("runs", after=5.0)
    assert here.held == {"runs"}
    here.wait(5.0)
    assert here.running == {"runs"}
    here.finish("runs")
    here.arrive("runs", tenant="a", final=True)
    assert here.running == {"runs"}


# whose limits they are


def test_a_tenant_that_is_named_has_its_own_limits_and_nobody_else_has_any_without_a_default():
    here = stand(100, small={"turns_per_minute": 1}, large={"turns_per_minute": 5})
    for tenant, turns in (("small", 1), ("large", 5), ("unnamed", 50)):
        for _ in range(turns):
            here.run(tenant=tenant)
    assert here.arrive(tenant="small").reason is RefusalReason.TURN_RATE
    assert here.arrive(tenant="large").reason is RefusalReason.TURN_RATE
    here.run(tenant="unnamed")


def test_an_entry_of_its_own_stands_instead_of_the_default():
    here = stand(100, default={"turns_per_minute": 1}, free={})
    for _ in range(10):
        here.run(tenant="free")


def test_refusals_are_in_the_books():
    here = stand(100, default={"turns_per_minute": 1})
    here.run(tenant="a")
    here.arrive(tenant="a")
    books = here.books
    assert books.refused == {RefusalReason.TURN_RATE: 1}
    assert books.arrived == books.admitted + sum(books.refused.values())
    assert books.sessions == 0


def test_observing_limits_nobody():
    here = Stand(1, mode="observe", limits={"default": TenantLimits(1, 0, 1, 1)})
    for number in range(5):
        here.run(f"agent-{number}", tenant="a")


def test_new_limits_are_in_force_at_once_and_what_was_taken_stays_taken():
    here = stand(100, default={"turns_per_minute": 2, "held_turns": 3})
    here.run(tenant="a")
    here.run(tenant="a")

    def change(**rule):
        here.gate.set_policy(GatePolicy(limits={"default": TenantLimits(**rule)} if rule else {}), now=here.now)

    change(turns_per_minute=2, held_turns=1)
    assert here.arrive(tenant="a").reason is RefusalReason.TURN_RATE
    change(turns_per_minute=100)
    here.run(tenant="a")
    change()
    for _ in range(200):
        here.run(tenant="a")


def test_a_turn_that_waits_leaves_the_account_that_it_came_to_whatever_has_changed():
    here = stand(1, default={"held_turns": 1})
    here.arrive("runs", tenant="a", final=True)
    here.arrive("waits", tenant="a", final=True)
    here.gate.set_policy(GatePolicy(limits={"default": TenantLimits(held_turns=1, turns_per_minute=9)}), now=here.now)
    assert here.arrive("late", tenant="a").reason is RefusalReason.TOO_MANY_HELD
    here.finish("runs")
    assert isinstance(here.arrive("late", tenant="a"), Held)


# bounds


def test_accounts_are_bounded_and_those_with_turns_that_wait_are_kept():
    limits = Limits({"default": TenantLimits(turns_per_minute=1)})
    waits = limits.of("waits", 0.0)
    waits.held = 1
    for number in range(2 * REMEMBERED):
        limits.of(f"tenant-{number}", 0.0)
    assert len(limits) == REMEMBERED
    assert limits.of("waits", 0.0) is waits


def test_what_is_kept_of_a_tenants_sessions_is_bounded_by_its_limit():
    here = stand(100, default={"active_sessions": 3})
    for number in range(100):
        here.run(f"agent-{number}", tenant="a", final=True)
    account = here.gate._limits.of("a", now=0.0)
    assert len(account._sessions) <= 3


@given(st.lists(st.tuples(st.sampled_from(["arrive", "finish", "abandon", "wait"]), st.integers(0, 5)), max_size=80))
def test_held_turns_are_counted_as_they_are(steps):
    here = stand(2, default={"held_turns": 2, "active_sessions": 4})
    for step, number in steps:
        name = f"agent-{number}"
        if step == "arrive" and name not in here.held | here.running:
            here.arrive(name, tenant="a")
        elif step == "finish" and name in here.running:
            here.finish(name, outcome=Outcome.COMPLETED)
        elif step == "abandon" and name in here.held:
            here.abandon(name)
        elif step == "wait":
            here.wait(20.0 * number)
        account = here.gate._limits.of("a", now=here.now)
        assert account.held == len(here.held) <= 2
        active = {session for session in here.gate._intake.sessions.newest_first() if session.is_active}
        assert len(active) <= 4


def test_usage_without_cached_tokens_counts_in_full():
    account = Account(TenantLimits(tokens_per_minute=100), 0.0)
    account.spend(Usage(150, 50, None), 0.0)
    assert account.ask(0.0).wait_s == pytest.approx(101 * 0.6)
