"""In which order held turns go, for each order; that all of them age; and that an order may change at any time."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from concur_proxy.core.order.base import Order
from concur_proxy.core.order.fair import Fair
from concur_proxy.core.order.registry import ORDERS
from concur_proxy.model import Outcome
from tests.core.stand import Stand


def drained(stand, runs):
    """End what runs, one after the other; return who goes when, in order."""
    order = []
    while runs is not None:
        stand.wait(1.0)
        went = stand.finish(runs)
        order += went
        runs = went[0] if went else None
    return order


def line(order, turns, **policy):
    """Return the order in which ``turns`` (name and facts) go, one at a time, having come a second apart."""
    stand = Stand(1, order=order, **policy)
    stand.arrive("first", final=True)
    for name, facts in turns.items():
        stand.wait(1.0)
        stand.arrive(name, final=True, **facts)
    return drained(stand, "first")


SIZES = {"large": {"tokens": 900}, "small": {"tokens": 100}, "middle": {"tokens": 500}}


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("fifo", ["large", "small", "middle"]),
        ("furthest", ["large", "small", "middle"]),
        ("smallest", ["small", "middle", "large"]),
        ("cache_aware", ["small", "middle", "large"]),
        ("fair", ["large", "small", "middle"]),
        ("deadline", ["large", "small", "middle"]),
    ],
)
def test_who_goes_first_of_small_and_large(order, expected):
    assert line(order, SIZES) == expected


@pytest.mark.parametrize("order", sorted(ORDERS))
def test_paused_sessions_go_before_new_ones(order):
    stand = Stand(1, order=order)
    stand.run("old")
    stand.arrive("runs", final=True)  # room only when the idle place is taken
    assert stand.held == {"runs"} or stand.running == {"runs"}
    stand.wait(1.0)
    stand.arrive("new", final=True)
    stand.wait(1.0)
    stand.arrive("old", final=True)
    assert drained(stand, "runs") == ["old", "new"]


def test_furthest_lets_those_go_first_that_have_had_most_turns_and_then_who_came_first():
    stand = Stand(8, order="furthest")
    for name, turns in {"one": 1, "three": 3, "two": 2, "also two": 2}.items():
        for _ in range(turns):
            stand.run(name)
    stand.resize(1)
    stand.arrive("runs", final=True)
    for name in ("new", "one", "two", "also two", "three"):
        stand.wait(1.0)
        stand.arrive(name, final=True)
    assert drained(stand, "runs") == ["three", "two", "also two", "one", "new"]


def test_cache_aware_lets_those_go_first_that_are_nearly_done():
    """Sessions here have three turns: one that has had two is nearly done, one that has had none is not."""
    stand = Stand(8, order="cache_aware")
    for number in range(60):
        for index in range(3):
            stand.run(f"past-{number}", final=index == 2)
    for _ in range(2):
        stand.run("late")
    stand.run("early")
    stand.resize(1)
    stand.arrive("runs", final=True)
    stand.wait(700.0)  # the leases of both are over
    stand.arrive("early")
    stand.arrive("late")
    assert stand.held == {"early", "late"}
    assert stand.finish("runs") == ["late"]


def test_cache_aware_lets_a_last_turn_go_before_one_that_may_not_be():
    stand = Stand(1, order="cache_aware")
    stand.arrive("runs", final=True)
    stand.arrive("goes on", tokens=100)
    stand.arrive("ends", tokens=100, final=True)
    assert stand.finish("runs") == ["ends"]


def test_cache_aware_leaves_every_other_room_to_whoever_has_waited_longest():
    """The others do not all go before the large one, and the one that has waited longest is the next in both ways."""
    sizes = {"large": 900, "middle": 500, "5": 50, "4": 40, "3": 30, "2": 20, "1": 10}
    went = line("cache_aware", {name: {"tokens": tokens} for name, tokens in sizes.items()})
    assert went == ["1", "2", "large", "3", "middle", "4", "5"]


def test_cache_aware_lets_no_new_session_go_before_a_paused_one_for_having_waited_longer():
    stand = Stand(2, order="cache_aware")
    stand.run("old-0", tokens=500)
    stand.run("old-1", tokens=500)
    stand.resize(1)
    stand.wait(700.0)  # the leases of both are over
    stand.arrive("runs", final=True)
    for name in ("new-0", "new-1", "new-2"):
        stand.arrive(name, tokens=10, final=True)
    (runs,) = stand.finish("runs")
    (runs,) = stand.finish(runs)
    for name in ("old-0", "old-1"):
        stand.arrive(name, tokens=500, final=True)
    assert stand.finish(runs)[0].startswith("old")


def test_deadline_goes_by_what_clients_ask_for():
    asked = {
        "none": {},
        "patient": {"deadline_s": 60.0},
        "hasty": {"deadline_s": 5.0},
        "leaves": {"read_timeout_s": 30.0},
        "leaves sooner": {"read_timeout_s": 20.0, "deadline_s": 50.0},
    }
    assert line("deadline", asked) == ["hasty", "leaves sooner", "leaves", "patient", "none"]


def test_deadline_shortens_the_time_of_the_urgent():
    asked = {"batch": {"urgency": -1}, "usual": {}, "urgent": {"urgency": 3}}
    assert line("deadline", asked) == ["urgent", "usual", "batch"]


def served(weights=None, tenants=("a", "b"), tokens=None, rounds=60):
    """Return the tokens that each tenant was served, where all always have turns that wait."""
    stand = Stand(1, order="fair", weights=weights or {}, max_wait_s=86_400)
    done, waiting = dict.fromkeys(tenants, 0), 0
    tokens = tokens or dict.fromkeys(tenants, 100)

    def ask(tenant):
        nonlocal waiting
        waiting += 1
        stand.arrive(f"{tenant}-{waiting}", tenant=tenant, final=True)

    ask(tenants[0])
    for tenant in tenants:
        for _ in range(20):
            ask(tenant)
    for _ in range(rounds):
        stand.wait(0.001)
        (runs,) = stand.running
        tenant = runs.partition("-")[0]
        done[tenant] += tokens[tenant]
        stand.finish(runs, prompt=tokens[tenant])
        ask(tenant)
    return done


def test_fair_serves_tenants_alike_whoever_came_first():
    done = served()
    assert abs(done["a"] - done["b"]) <= 200


def test_fair_counts_tokens_not_turns():
    done = served(tokens={"a": 1000, "b": 100}, rounds=110)
    assert abs(done["a"] - done["b"]) <= 2000
    assert done["a"] > 8000


def test_fair_serves_by_weight():
    done = served(weights={"a": 3.0}, rounds=80)
    assert done["a"] / done["b"] == pytest.approx(3.0, rel=0.15)


def test_fair_charges_what_the_engine_computed():
    """Cached tokens cost nothing: whoever hits the cache may come more often."""
    stand = Stand(1, order="fair", max_wait_s=86_400)
    stand.arrive("first", tenant="a", final=True)
    for number in range(12):
        stand.arrive(f"a{number}", tenant="a", final=True)
        stand.arrive(f"b{number}", tenant="b", final=True)
    went = []
    for _ in range(12):
        (runs,) = stand.running
        stand.finish(runs, prompt=1000, cached=900 if runs.startswith("b") else 0)
        went += stand.running
    assert sum(name.startswith("b") for name in went) >= 8


def test_fair_gives_no_credit_for_having_asked_for_nothing():
    stand = Stand(1, order="fair", max_wait_s=86_400)
    stand.arrive("a-first", tenant="a", final=True)
    for number in range(20):
        stand.arrive(f"a-{number}", tenant="a", final=True)
    for _ in range(10):
        (runs,) = stand.running
        stand.finish(runs, prompt=1000)
    for number in range(10):
        stand.arrive(f"b-{number}", tenant="b", final=True)
    went = []
    for _ in range(8):
        (runs,) = stand.running
        stand.finish(runs, prompt=1000)
        went += [name[0] for name in stand.running]
    assert 3 <= went.count("a") <= 5


def test_fair_shares_many_places_that_become_free_at_once():
    stand = Stand(1, order="fair")
    stand.arrive("first", tenant="a")
    for number in range(20):
        stand.arrive(f"a-{number}", tenant="a")
    for number in range(20):
        stand.arrive(f"b-{number}", tenant="b")
    went = stand.resize(11)
    assert sum(name.startswith("b") for name in went) == 5


# ageing


def waits(order, arrivals, seconds, slots=1):
    """Return how long each turn waits; arrivals: (pause before it, tokens, tenant, urgency, deadline)."""
    stand = Stand(slots, order=order, max_wait_s=86_400.0)
    came, went, ends = {}, {}, []
    pending = list(enumerate(arrivals))
    at = arrivals[0][0]
    while pending or ends:
        if pending and (not ends or at <= ends[0][0]):
            number, (_, tokens, tenant, urgency, deadline) = pending.pop(0)
            stand.wait(max(0.0, at - stand.now))
            came[str(number)] = stand.now
            stand.arrive(str(number), final=True, tokens=tokens, tenant=tenant, urgency=urgency, deadline_s=deadline)
            fresh = [str(number)] if str(number) in stand.running else []
            at += arrivals[number + 1][0] if pending else 0.0
        else:
            end, name = ends.pop(0)
            stand.wait(max(0.0, end - stand.now))
            fresh = stand.finish(name, prompt=100)
        for name in fresh:
            went[name] = stand.now
            ends.append((stand.now + seconds, name))
        ends.sort()
    return [went[name] - came[name] for name in came]


ARRIVALS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.0, 0.5, 0.9, 1.0, 5.0]),
        st.sampled_from([10, 100, 1000, 10_000]),
        st.sampled_from(["a", "a", "a", "b", "c"]),
        st.sampled_from([0, 0, -4, 4]),
        st.sampled_from([None, None, 1.0, 100.0]),
    ),
    min_size=1,
    max_size=80,
)


@pytest.mark.parametrize("order", sorted(set(ORDERS) - {"fifo"}))
@given(arrivals=ARRIVALS, slots=st.sampled_from([1, 1, 3]))
@settings(max_examples=40, deadline=None)
def test_the_longest_wait_is_at_most_three_times_that_of_fifo(order, arrivals, slots):
    """Beyond it, a turn waits only for the next to end: turns take a second here."""
    longest = max(waits("fifo", arrivals, 1.0, slots))
    assert max(waits(order, arrivals, 1.0, slots)) <= 3.0 * longest + 1.0


@pytest.mark.parametrize(
    ("order", "victim", "others"),
    [
        ("smallest", (10_000, "a", 0, None), (10, "a", 0, None)),
        ("cache_aware", (10_000, "a", 0, None), (10, "a", 0, None)),
        ("deadline", (10, "a", -8, None), (10, "a", 8, 1.0)),
        ("fair", (10, "a", 0, None), (10, "b", 0, None)),
    ],
)
def test_a_stream_of_others_does_not_starve_anybody(order, victim, others):
    """Others come as fast as they are served; the order alone would let the victim wait for ever."""
    start = [(0.0, *others)] * 10
    arrivals = [*start, (0.0, *victim), *[(1.0, *others)] * 200]
    assert waits(order, arrivals, 1.0)[10] <= 3.0 * 11.0 + 2.0


def test_a_stream_of_new_tenants_does_not_starve_one_with_many_turns():
    """Each of them has been served nothing yet."""
    arrivals = [*[(0.0, 10, "a", 0, None)] * 5, *[(1.0, 10, f"new-{number}", 0, None) for number in range(200)]]
    assert max(waits("fair", arrivals, 1.0)) <= 3.0 * 5.0 + 5.0


@pytest.mark.sources
@pytest.mark.parametrize("order", [Order, Fair])
def test_ageing_is_what_saves_them(monkeypatch, order):
    monkeypatch.setattr(order, "patience", 1e9)
    arrivals = [*[(0.0, 10, "a", 0, None)] * 10, (0.0, 10_000, "a", 0, None)]
    arrivals += [(1.0, 10, f"new-{number}" if order is Fair else "a", 0, None) for number in range(200)]
    assert max(waits("fair" if order is Fair else "smallest", arrivals, 1.0)) > 150.0


def test_a_turn_is_overdue_in_time_to_be_let_in():
    """Half of what is left until it would be refused is left for that."""
    arrivals = [*[(0.0, 10, "a", 0, None)] * 10, (0.0, 10_000, "a", 0, None), *[(1.0, 10, "a", 0, None)] * 20]
    stand = Stand(1, order="smallest", max_wait_s=14.0)
    stand.arrive("runs", final=True)
    for number in range(8):
        stand.arrive(f"small-{number}", tokens=10, final=True)
    stand.arrive("large", tokens=10_000, final=True)
    for number in range(len(arrivals)):
        stand.wait(1.0)
        (runs,) = stand.running
        stand.finish(runs)
        if "large" in stand.running:
            break
        stand.arrive(f"more-{number}", tokens=10, final=True)
    assert "large" in stand.running
    assert stand.now < 14.0


# changing the order


@pytest.mark.parametrize("after", sorted(ORDERS))
@pytest.mark.parametrize("before", sorted(ORDERS))
def test_a_change_of_order_loses_nobody(before, after):
    stand = Stand(1, order=before)
    stand.arrive("first", final=True)
    for name, facts in SIZES.items():
        stand.wait(1.0)
        stand.arrive(name, final=True, **facts)
    policy = Stand(order=after).gate.policy
    assert stand.gate.set_policy(policy, now=stand.now) == []
    expected = ["small", "middle", "large"] if after in {"smallest", "cache_aware"} else list(SIZES)
    assert drained(stand, "first") == expected
    assert stand.books.held == 0


def test_who_is_overdue_stays_so_in_another_order():
    stand = Stand(1, order="smallest")
    stand.arrive("runs", final=True)
    stand.arrive("large", tokens=10_000, final=True)
    for number in range(4):
        stand.arrive(f"small-{number}", tokens=10, final=True)
    stand.wait(2.0)
    (runs,) = stand.finish("runs")
    stand.wait(2.0)
    stand.gate.tick(now=stand.now)
    stand.gate.set_policy(Stand(order="cache_aware").gate.policy, now=stand.now)
    stand.arrive("tiny", tokens=1, final=True)
    assert stand.finish(runs) == ["large"]


def test_a_change_of_weights_lines_up_anew():
    stand = Stand(1, order="fair", weights={"a": 100.0})
    stand.arrive("first", tenant="c", final=True)
    for number in range(8):
        stand.arrive(f"a-{number}", tenant="a", final=True)
        stand.arrive(f"b-{number}", tenant="b", final=True)
    stand.gate.set_policy(Stand(order="fair", weights={"b": 100.0}).gate.policy, now=0.0)
    went = drained(stand, "first")
    assert len(went) == 16
    assert sum(name.startswith("b") for name in went[:9]) >= 7


# who runs again, leaves, or fails


@pytest.mark.parametrize("order", sorted(ORDERS))
def test_a_turn_that_was_put_back_is_charged_once_and_goes_again(order):
    stand = Stand(1, order=order)
    stand.arrive("runs", final=True)
    stand.arrive("next", tenant="a", final=True)
    stand.finish("runs")
    for _ in range(3):
        stand.requeue("next")
        stand.wait(0.001)
        assert stand.running == {"next"}
    stand.finish("next")
    assert stand.books.finished == {Outcome.COMPLETED: 2}


@pytest.mark.parametrize("order", sorted(ORDERS))
def test_nothing_remains_of_those_who_left(order):
    """Invariant 9."""
    stand = Stand(1, order=order)
    stand.arrive("runs", final=True)
    for number in range(300):
        stand.arrive("comes and goes", tokens=number % 7 + 1, tenant=str(number % 3))
        stand.abandon("comes and goes")
    pool = next(iter(stand.gate._pools))
    ageing = pool.line._ageing
    assert pool.line.waiting == 0
    assert sum(len(lane) for lane in pool.line._lanes.values()) < 200
    assert ageing is None or len(ageing) < 200
