"""Two lanes: interactive work goes first and has a share to itself, batch work takes the rest and is not starved."""

import pytest

from concur_proxy.core.order.lanes import GROUP
from concur_proxy.model import AdmitWhy
from tests.core.stand import TOKENS, A, B, Stand, key

COLD = {"urgency": -1}


def test_hot_turns_go_before_cold_ones():
    stand = Stand(1, order="lanes")
    stand.arrive("runs", final=True)
    stand.arrive("cold", final=True, **COLD)
    stand.wait(1.0)
    stand.arrive("hot", final=True)
    assert stand.finish("runs") == ["hot"]
    assert stand.finish("hot") == ["cold"]


def test_cold_turns_leave_a_share_of_the_window_to_hot_ones():
    stand = Stand(10, order="lanes", hot_share=0.3)
    for number in range(20):
        stand.arrive(f"cold-{number}", **COLD)
    assert len(stand.running) == 7
    for number in range(5):
        stand.arrive(f"hot-{number}")
    assert stand.running >= {"hot-0", "hot-1", "hot-2"}
    assert len(stand.running) == 10


def test_hot_turns_take_more_than_their_share_where_there_is_room():
    stand = Stand(10, order="lanes", hot_share=0.3)
    for number in range(8):
        stand.arrive(f"hot-{number}")
    for number in range(20):
        stand.arrive(f"cold-{number}", **COLD)
    assert len(stand.running) == 10
    assert len([name for name in stand.running if name.startswith("cold")]) == 2


def test_the_share_is_of_tokens_where_the_window_is():
    stand = Stand(1000, order="lanes", hot_share=0.3, unit=TOKENS)
    for number in range(20):
        stand.arrive(f"cold-{number}", tokens=100, **COLD)
    assert len(stand.running) == 7
    stand.arrive("hot", tokens=300)
    assert "hot" in stand.running


def test_a_cold_session_that_fits_only_into_the_whole_window_runs_alone():
    stand = Stand(1000, order="lanes", unit=TOKENS)
    assert stand.arrive("cold", tokens=900, **COLD).lease.why is AdmitWhy.OVERSIZE


def test_other_orders_know_no_lanes():
    stand = Stand(10, order="fifo", hot_share=0.3)
    for number in range(20):
        stand.arrive(f"cold-{number}", **COLD)
    assert len(stand.running) == 10
    stand.gate.set_policy(Stand(order="lanes").gate.policy, now=0.0)
    stand.arrive("hot")
    assert stand.finish("cold-0") == ["hot"]


def test_a_cold_turn_that_is_overdue_goes_before_hot_ones():
    """As long as hot turns take more than their share."""
    stand = Stand(2, order="lanes", hot_share=0.3)
    stand.arrive("a", final=True)
    stand.arrive("b", final=True)
    stand.arrive("cold", final=True, **COLD)
    for number in range(30):
        stand.wait(1.0)
        stand.arrive(f"hot-{number}", final=True)
        went = stand.finish(min(stand.running))
        if "cold" in went:
            break
    assert "cold" in went
    assert stand.now <= 5.0


def test_a_cold_turn_that_is_overdue_leaves_hot_ones_their_share():
    """It waits for another cold one to end, and keeps only cold ones from what is left."""
    stand = Stand(10, order="lanes", hot_share=0.3)
    for number in range(7):
        stand.arrive(f"cold-{number}", **COLD)
    stand.arrive("overdue", final=True, **COLD)
    for number in range(3):
        stand.arrive(f"hot-{number}", final=True)
    stand.arrive("hot-waits", final=True)
    stand.wait(1.0)
    assert stand.finish("hot-0") == ["hot-waits"]  # first come, first served it would have been the cold one
    stand.wait(100.0)
    assert stand.finish("hot-1") == []
    stand.arrive("hot-late", final=True)
    assert "hot-late" in stand.running
    assert stand.held == {"overdue"}


@pytest.mark.parametrize("cold_first", [True, False])
def test_a_blocked_turn_of_one_lane_does_not_keep_other_backends_from_the_other(cold_first):
    stand = Stand(10, 10, order="lanes", hot_share=0.3)
    for number in range(14):
        stand.arrive(f"cold-{number}", **COLD)
    names = ["cold-x", "hot-x"] if cold_first else ["hot-x", "cold-x"]
    for name in names:
        stand.arrive(name, **(COLD if name.startswith("cold") else {}))
    assert "hot-x" in stand.running
    assert stand.held == {"cold-x"}
    assert stand.backend(A).active + stand.backend(B).active == 15


def test_a_session_stays_in_its_lane_while_it_has_a_place():
    stand = Stand(10, order="lanes", hot_share=0.3)
    stand.run("one", **COLD)
    stand.run("one")
    assert stand.gate._pools.backend(A)._cold == 1
    stand.gate.end_session(key("one"), now=stand.now)
    assert stand.gate._pools.backend(A)._cold == 0


def test_a_cold_session_that_grows_into_the_hot_share_waits():
    stand = Stand(1000, order="lanes", hot_share=0.3, unit=TOKENS, capacity=2000)
    stand.run("grows", prompt=300, tokens=300, **COLD)
    stand.arrive("runs", tokens=300, **COLD)
    stand.arrive("grows", tokens=500, **COLD)
    assert stand.held == {"grows"}
    stand.arrive("hot", tokens=300)
    assert stand.running == {"runs", "hot"}


def test_a_cold_session_does_not_pass_because_it_is_warm():
    """Where the window has shrunk, what it keeps running for is interactive work."""
    stand = Stand(4, order="lanes", hot_share=0.3, capacity=10_000)
    stand.run("cold", **COLD)
    stand.run("hot")
    stand.arrive("runs")
    stand.resize(1)
    assert stand.arrive("hot").lease.why is AdmitWhy.WARM
    stand.arrive("cold", **COLD)
    assert stand.held == {"cold"}


def test_a_change_of_order_gives_backends_their_share():
    stand = Stand(10, order="fifo")
    stand.gate.set_policy(Stand(order="lanes", hot_share=0.5).gate.policy, now=0.0)
    for number in range(8):
        stand.arrive(f"cold-{number}", **COLD)
    assert len(stand.running) == 5


def test_an_overdue_cold_turn_keeps_cold_ones_that_would_fit_from_going_first():
    stand = Stand(1000, order="lanes", hot_share=0.3, unit=TOKENS)
    stand.arrive("cold", tokens=500, **COLD)
    stand.arrive("large", tokens=400, **COLD)
    assert stand.held == {"large"}
    stand.arrive("small", tokens=100, **COLD)
    assert stand.held == {"large", "small"}
    stand.arrive("hot", tokens=300)
    assert stand.running == {"cold", "hot"}


def came(sources):
    """Return who goes when of cold turns, by the sources of their prompts, in the order in which they came."""
    stand = Stand(1, order="lanes")
    stand.arrive("runs", final=True)
    for number, source in enumerate(sources):
        stand.wait(0.001)
        stand.arrive(f"{source}{number}", prefix_key=ord(source), final=True, **COLD)
    went, runs = "", "runs"
    while runs:
        stand.wait(0.001)
        runs = next(iter(stand.finish(runs)), None)
        went += runs[0] if runs else ""
    return went


def test_cold_turns_of_one_source_go_next_to_each_other():
    assert came("abcabcabc") == "aaabbbccc"


def test_a_source_that_sends_much_lets_others_in_between():
    assert came("a" * GROUP + "b" + "a" * 5) == "a" * GROUP + "b" + "a" * 5


def test_cold_turns_without_a_common_start_go_by_tenant():
    stand = Stand(1, order="lanes")
    stand.arrive("runs", final=True)
    for name in ("x1", "y1", "x2"):
        stand.wait(0.001)
        stand.arrive(name, tenant=name[0], final=True, **COLD)
    assert stand.finish("runs") == ["x1"]
    assert stand.finish("x1") == ["x2"]


def test_groups_are_forgotten_with_their_last_turn():
    """Invariant 9."""
    stand = Stand(1, order="lanes")
    stand.arrive("runs", final=True)
    for number in range(50):
        stand.arrive("waits", prefix_key=number, tenant=str(number), **COLD)
        stand.abandon("waits")
    assert next(iter(stand.gate._pools)).line.order._groups == {}


def test_a_cold_session_between_two_turns_steps_aside_for_a_hot_one():
    stand = Stand(3, order="lanes", hot_share=0.3)
    for name in ("cold-0", "cold-1"):
        stand.arrive(name, **COLD)
    stand.arrive("hot-0")
    stand.arrive("hot-1")
    assert "hot-1" in stand.held  # both cold sessions run
    assert stand.finish("cold-1") == ["hot-1"]
    stand.finish("cold-0")
    stand.arrive("hot-2")
    assert "hot-2" in stand.running


def test_a_cold_turn_takes_no_idle_place_of_a_hot_session_beside_an_engine_that_runs():
    stand = Stand(20, order="lanes", hot_share=0.3)
    for number in range(20):
        stand.arrive(f"hot-{number}")
    stand.arrive("cold", **COLD)
    for number in range(19):
        stand.finish(f"hot-{number}")
    assert "cold" in stand.held
    stand.finish("hot-19")
    stand.wait(1.0)
    assert "cold" in stand.running  # nothing runs: all is permitted


def test_what_hot_sessions_use_is_kept_for_them_when_they_are_fewer_for_a_while():
    """As much as they seldom exceed, as learned over the last minutes; and forgotten when they stay away."""
    stand = Stand(20, order="lanes", hot_share=0.1)
    for number in range(10):
        stand.arrive(f"hot-{number}", final=True)
    for _ in range(60):
        stand.wait(1.0)
        stand.gate.tick(now=stand.now)
    for number in range(10):
        stand.finish(f"hot-{number}")
    for number in range(20):
        stand.arrive(f"cold-{number}", **COLD)
    assert 8 <= len(stand.running) <= 11
    for _ in range(3600):
        stand.wait(1.0)
        stand.note(stand.gate.tick(now=stand.now))
        if stand.held:
            for name in stand.held:
                stand.abandon(name)
    for number in range(20):
        stand.arrive(f"later-{number}", **COLD)
    assert len(stand.running) == 18


def test_cold_sessions_that_are_here_go_on_until_hot_ones_come():
    """What hot ones need beyond their share is kept from newcomers; those with a place lose it to who needs it."""
    stand = Stand(20, order="lanes", hot_share=0.1)
    for number in range(8):
        stand.run(f"cold-{number}", **COLD)
    for number in range(12):
        stand.arrive(f"hot-{number}", final=True)
    for _ in range(60):
        stand.wait(1.0)
        stand.gate.tick(now=stand.now)
    for number in range(12):
        stand.finish(f"hot-{number}")
    stand.resize(18)  # eight and what twelve need would be more
    for number in range(7):
        stand.arrive(f"cold-{number}", **COLD)
    stand.arrive("newcomer", **COLD)
    assert stand.held == {"newcomer"}
    assert stand.books.paused == 0
    for number in range(20, 31):
        stand.arrive(f"hot-{number}")
    assert stand.held == {"newcomer"}  # the one that was between two turns has stepped aside
    assert stand.books.paused == 1


def test_a_cold_session_that_has_grown_goes_on_instead_of_a_smaller_one():
    stand = Stand(1000, order="lanes", hot_share=0.3, unit=TOKENS, capacity=2000)
    stand.run("large", prompt=300, tokens=300, **COLD)
    stand.run("small", prompt=200, tokens=200, **COLD)
    stand.run("middle", prompt=200, tokens=200, **COLD)
    stand.arrive("large", tokens=500, **COLD)
    assert "large" in stand.running
    assert stand.books.paused == 1
    stand.arrive("middle", tokens=200, **COLD)
    stand.arrive("small", tokens=200, **COLD)
    assert stand.held == {"small"}


def test_cold_sessions_do_not_fill_the_cache_more_than_once_however_large_the_window_is():
    stand = Stand(5000, order="lanes", hot_share=0.3, unit=TOKENS, capacity=1000)
    for number in range(20):
        stand.arrive(f"cold-{number}", tokens=100, **COLD)
    assert len(stand.running) == 6
    for number in range(20):
        stand.arrive(f"hot-{number}", tokens=100)
    assert len(stand.running) == 26


def test_cold_turns_about_one_thing_go_together_once_it_is_known():
    stand = Stand(1, order="lanes", hot_share=0.0)
    stand.arrive("runs", final=True, **COLD)
    names = [f"{'ab'[number % 2]}-{number}" for number in range(8)]
    tickets = {}
    for name in names:
        stand.wait(0.01)
        tickets[name] = stand.arrive(name, final=True, **COLD).ticket
    for name in names:
        stand.gate.group(tickets[name], ord(name[0]))
    went, last = [], "runs"
    while stand.held:
        (last,) = stand.finish(last)
        went.append(last)
    assert went == sorted(names)
    assert not stand.gate.is_held(tickets["a-0"])


@pytest.mark.parametrize("order", ["fifo", "fair", "lanes"])
def test_whatever_is_found_out_about_turns_nobody_is_lost(order):
    """Also of those that run already, are gone, are found out about twice, or whose order changes."""
    stand = Stand(1, order=order, hot_share=0.0)
    stand.arrive("runs", final=True, **COLD)
    tickets = [stand.arrive(f"cold-{number}", final=True, **COLD).ticket for number in range(40)]
    for _ in range(2):
        for ticket in [0, *tickets, 10_000]:
            stand.gate.group(ticket, ticket % 3)
    stand.abandon("cold-7")
    stand.gate.set_policy(Stand(1, order="lanes").gate.policy, now=stand.now)
    last, went = "runs", 0
    while stand.held:
        (last,) = stand.finish(last)
        went += 1
    assert went == 39


def test_a_long_line_of_one_topic_keeps_nobody_waiting_for_ever():
    stand = Stand(1, order="lanes", hot_share=0.0)
    stand.arrive("runs", final=True, **COLD)
    for number in range(2 * GROUP):
        stand.wait(0.01)
        stand.gate.group(stand.arrive(f"many-{number}", final=True, **COLD).ticket, 1)
    stand.gate.group(stand.arrive("one", final=True, **COLD).ticket, 2)
    went, last = [], "runs"
    while stand.held:
        (last,) = stand.finish(last)
        went.append(last)
    assert went.index("one") <= 2 * GROUP


@pytest.mark.parametrize(
    ("wanted", "stays"), [(250, {"cold-200", "cold-400"}), (150, {"cold-300", "cold-400"}), (600, {"cold-300"})]
)
def test_the_batch_session_that_steps_aside_is_the_smallest_that_makes_room(wanted, stays):
    """Its context is the least to compute again; where none makes room alone, the largest goes first."""
    stand = Stand(1000, order="lanes", hot_share=0.0, unit=TOKENS)
    for size in (200, 300, 400):
        stand.run(f"cold-{size}", prompt=size, tokens=size, **COLD)
    stand.arrive("fills", tokens=100)
    stand.arrive("hot", tokens=wanted)
    assert "hot" in stand.running
    assert {name for name in ("cold-200", "cold-300", "cold-400") if stand.state(name) == "idle"} == stays
