"""Turns at the gate, as scripts: who is let in, who waits, who is refused."""

import math

import pytest

from concur_proxy.core.gate import GatePolicy
from concur_proxy.core.waiting import LOOK_AHEAD
from concur_proxy.model import (
    Admitted,
    AdmitWhy,
    BackendEvent,
    BackendId,
    FinishReason,
    Held,
    Outcome,
    PoolId,
    RefusalReason,
    Refused,
    Usage,
)
from tests.core.stand import SESSIONS, TOKENS, A, B, Stand, key, turn


def test_a_turn_finds_room_or_waits_and_goes_when_there_is_room():
    stand = Stand(2)
    assert stand.arrive("one").lease.why is AdmitWhy.WINDOW
    stand.arrive("two")
    assert isinstance(stand.arrive("three"), Held)
    assert stand.finish("one") == []  # its session keeps the place between its turns
    stand.gate.end_session(key("two"), now=stand.now)  # still runs
    assert stand.held == {"three"}
    assert stand.finish("two") == ["three"]


def test_a_turn_without_a_session_gives_its_place_back_at_once():
    stand = Stand(1)
    first = stand.arrive()
    stand.arrive("waits")
    assert stand.finish(first.ticket) == ["waits"]
    assert stand.books.sessions == 1


def test_a_lease_ends_once():
    """Invariant 2."""
    stand = Stand(1)
    lease = stand.arrive("one").lease
    stand.gate.finish(lease, Outcome.COMPLETED, None, now=0.0)
    with pytest.raises(ValueError, match="ended already"):
        stand.gate.finish(lease, Outcome.COMPLETED, None, now=0.0)
    with pytest.raises(ValueError, match="ended already"):
        stand.gate.requeue(lease, not_before=0.0, now=0.0)


def test_a_burst_in_one_moment_does_not_overshoot():
    """Invariant 3: what was let in counts at once, not when an engine tells of it."""
    stand = Stand(16)
    results = [stand.arrive(f"s{number}") for number in range(1000)]
    assert sum(isinstance(result, Admitted) for result in results) == 16
    assert (stand.backend().running, stand.books.held) == (16, 984)


def test_the_next_turn_of_an_active_session_passes_those_who_wait():
    stand = Stand(1)
    stand.run("agent")
    stand.arrive("agent")
    stand.arrive("waits")
    assert stand.finish("agent") == []
    assert stand.wait(1.0) == ["waits"]  # the engine would have run nothing
    assert stand.state("agent") == "paused"


def test_an_active_session_keeps_its_place_while_the_engine_has_work():
    stand = Stand(2)
    stand.arrive("works")
    stand.run("thinks")
    stand.arrive("waits")
    assert isinstance(stand.arrive("thinks"), Admitted)
    assert stand.held == {"waits"}


# what a turn may need


def test_tokens_are_what_counts_under_a_law_that_counts_tokens():
    stand = Stand(1000, unit=TOKENS)
    stand.arrive("large", tokens=600)
    stand.arrive("larger", tokens=500)
    assert stand.held == {"larger"}
    assert stand.backend().footprint_tokens == 600


def test_a_grown_context_counts_for_more():
    stand = Stand(1000, unit=TOKENS)
    stand.arrive("one", tokens=400)
    stand.finish("one", prompt=400, completion=400)
    assert stand.backend().footprint_tokens == 800
    stand.arrive("works", tokens=150)
    stand.arrive("two", tokens=300)
    assert stand.held == {"two"}


def test_a_session_larger_than_the_window_runs_alone():
    stand = Stand(1000, unit=TOKENS)
    stand.arrive("small", tokens=100)
    stand.arrive("huge", tokens=5000)
    stand.arrive("next", tokens=100)
    assert stand.held == {"huge", "next"}  # "next" is kept from starving "huge"
    assert stand.finish("small") == ["huge"]
    assert stand.leases["huge"].why is AdmitWhy.OVERSIZE
    assert stand.finish("huge", prompt=5000) == ["next"]


def test_an_oversize_session_goes_on_alone():
    stand = Stand(1000, unit=TOKENS)
    stand.run("huge", tokens=5000, prompt=5000)
    assert stand.arrive("huge", tokens=6000).lease.why is AdmitWhy.OVERSIZE
    assert stand.books.paused == 0


def test_several_choices_charge_several_outputs():
    stand = Stand(1000, unit=TOKENS)
    stand.arrive("one", body_bytes=400, max_output_tokens=100, choices=4)
    assert stand.backend().footprint_tokens == 500


def test_parallel_turns_of_a_session_need_room_of_their_own():
    stand = Stand(2)
    stand.arrive("agent")
    branch = stand.arrive("agent")
    assert isinstance(branch, Admitted)
    assert isinstance(stand.arrive("agent"), Held)
    assert (stand.backend().active, stand.backend().running) == (1, 2)


def test_a_branch_that_waits_rides_the_place_when_it_falls_idle():
    stand = Stand(1)
    first = stand.arrive("agent")
    second = stand.arrive("agent")
    stand.arrive("stranger")
    assert isinstance(second, Held)
    finished = stand.gate.finish(first.lease, Outcome.COMPLETED, Usage(100, 0), now=0.0)
    assert [decision.ticket for decision in finished.decisions] == [second.ticket]
    assert stand.books.paused == 0


def test_a_branch_that_outlives_the_first_turn_rides_the_place():
    stand = Stand(2)
    first = stand.arrive("agent")
    second = stand.arrive("agent")
    stand.arrive("waits")
    stand.gate.finish(first.lease, Outcome.COMPLETED, Usage(100, 0), now=0.0)
    assert (stand.backend().active, stand.backend().running) == (2, 2)  # "waits" has the branch's room
    stand.gate.finish(second.lease, Outcome.COMPLETED, Usage(100, 0), now=0.0)
    assert stand.state("agent") == "idle"


# pauses


def shrunk(*, capacity=10_000, hard=False, **policy):
    """Three sessions of 1000 tokens, idle but for one, whose window has shrunk to 1."""
    stand = Stand(3, capacity=capacity, **policy)
    for name in ("old", "young"):
        stand.run(name, prompt=1000)
    stand.arrive("works")
    stand.resize(1, hard=hard)
    return stand


def test_nobody_is_thrown_out_when_the_window_shrinks():
    assert shrunk().backend().active == 3


def test_a_warm_turn_passes_after_a_shrink():
    stand = shrunk()
    assert stand.arrive("old").lease.why is AdmitWhy.WARM


def test_a_cold_turn_waits_as_paused_after_a_shrink():
    stand = shrunk(capacity=1600)  # "old" has been evicted for the others
    assert isinstance(stand.arrive("old"), Held)
    assert stand.state("old") == "paused"
    assert (stand.books.paused, stand.backend().active) == (1, 2)
    assert stand.arrive("young").lease.why is AdmitWhy.WARM


def test_a_hard_limit_holds_warm_turns_too():
    assert isinstance(shrunk(hard=True).arrive("young"), Held)


def test_a_context_that_has_grown_over_the_window_passes_warm_and_not_under_a_hard_limit():
    """Invariant 3: growth beyond the window is a grant by another rule, not by the window."""
    stand = Stand(1000, unit=TOKENS, capacity=10_000)
    for name in ("one", "other"):
        stand.run(name, tokens=400, prompt=450)
    stand.arrive("other", tokens=450)
    assert stand.arrive("one", tokens=700).lease.why is AdmitWhy.WARM
    stand.finish("one", prompt=700)
    stand.resize(1000, hard=True)
    assert isinstance(stand.arrive("one", tokens=700), Held)


def test_an_engine_that_tells_no_capacity_has_no_warm_turns():
    assert isinstance(shrunk(capacity=None).arrive("old"), Held)


def test_eager_pauses_take_the_longest_idle_at_once():
    stand = shrunk(pause="eager")
    assert (stand.state("old"), stand.state("young"), stand.state("works")) == ("paused", "paused", "running")
    stand = Stand(3, pause="eager")
    for name in ("old", "young", "youngest"):
        stand.run(name)
    stand.resize(2)
    assert [stand.state(name) for name in ("old", "young", "youngest")] == ["paused", "idle", "idle"]


def test_eager_pauses_take_a_session_over_the_window_when_its_turn_ends():
    stand = Stand(2, pause="eager")
    stand.arrive("one")
    stand.arrive("two")
    stand.resize(1)
    stand.finish("one")
    assert stand.state("one") == "paused"


def test_a_paused_session_goes_before_new_ones():
    stand = shrunk(capacity=1600)
    stand.arrive("new")
    stand.wait(1.0)
    stand.arrive("old")
    stand.gate.end_session(key("young"), now=stand.now)
    assert stand.held == {"new", "old"}
    stand.finish("works")
    assert stand.running == {"old"}
    assert stand.books.resumed == 1


def test_nobody_is_held_for_ever_by_paused_sessions():
    """Ageing: precedence is a head start of half the longest wait."""
    stand = Stand(1, order="fifo", max_wait_s=100.0, lease_min_s=1.0, lease_max_s=1.0)
    stand.run("paused")
    stand.arrive("works")
    stand.arrive("new")
    stand.wait(60.0)
    stand.arrive("paused")
    assert stand.finish("works", outcome=Outcome.CANCELLED) == ["new"]


def test_the_window_that_comes_back_lets_everybody_in():
    stand = shrunk(capacity=1600)
    stand.arrive("old")
    stand.arrive("new")
    assert stand.resize(8) == ["old", "new"]


# work conservation (invariant 4)


def test_idle_places_are_reclaimed_when_the_engine_would_run_nothing():
    stand = Stand(2)
    stand.run("old")
    stand.run("young")
    assert isinstance(stand.arrive("new"), Admitted)
    assert (stand.state("old"), stand.state("young")) == ("paused", "idle")
    assert stand.books.reclaimed == 1


def test_idle_places_are_reclaimed_when_far_less_runs_than_could():
    stand = Stand(10)
    for number in range(10):
        stand.arrive(f"s{number}")
    stand.arrive("waits")
    for number in range(7):
        assert stand.finish(f"s{number}") == []
    assert stand.wait(1.0) == []  # 3 of 10 still run
    assert stand.finish("s7") == ["waits"]
    assert stand.state("s0") == "paused"


def thinking(seconds, *, turns=5, **facts):
    """Two agents with a place each whose tool calls take so long; a turn computes 10,000 tokens, 1e-4 s each."""
    stand = Stand(2, **facts)
    for _ in range(turns):
        for name in ("old", "young"):
            stand.arrive(name)
        stand.wait(1.0)
        for name in ("old", "young"):
            stand.finish(name, prompt=10_000, cached=0)
        stand.wait(seconds)
    return stand


def test_a_starved_engine_waits_for_those_who_will_soon_be_back():
    stand = thinking(0.5)
    for name in ("old", "young"):
        stand.arrive(name)
    stand.wait(1.0)
    stand.arrive("waits")
    for name in ("old", "young"):
        assert stand.finish(name, prompt=10_000, cached=0) == []
    assert stand.wait(0.5) == []
    assert stand.arrive("old").lease.why is AdmitWhy.WINDOW
    assert (stand.books.reclaimed, stand.held) == (0, {"waits"})


def test_it_waits_no_longer_than_the_lost_context_takes_to_compute():
    stand = thinking(0.5)
    for name in ("old", "young"):
        stand.arrive(name)
    stand.wait(1.0)
    stand.arrive("waits")
    stand.finish("old", prompt=10_000, cached=0)
    stand.wait(0.4)
    stand.finish("young", prompt=10_000, cached=0)
    assert stand.wait(0.95) == []
    assert stand.wait(0.1) == ["waits"]
    assert stand.state("old") == "paused"


def test_it_waits_for_nobody_whose_tool_calls_take_longer_than_that():
    stand = thinking(60.0)
    assert isinstance(stand.arrive("waits"), Admitted)
    assert stand.state("old") == "paused"


def test_it_waits_for_nobody_where_the_cache_has_room_for_all():
    stand = thinking(0.5, capacity=1_000_000)
    assert isinstance(stand.arrive("waits"), Admitted)


def test_it_waits_for_nobody_who_has_given_a_final_answer():
    stand = Stand(1)
    stand.arrive("done")
    stand.arrive("waits")
    assert stand.finish("done", prompt=10_000, reason=FinishReason.STOP) == ["waits"]


def test_it_waits_for_nobody_where_nobody_has_come_back_after_such_an_answer():
    """Single questions whose answers are cut at a length: nothing but experience tells that they were all."""
    stand = thinking(0.5)
    for number in range(60):
        stand.arrive(f"single{number}")
        stand.wait(1.0)
        stand.finish(f"single{number}", prompt=10_000, cached=0, reason=FinishReason.LENGTH)
    stand.arrive("last")
    stand.arrive("waits")
    assert stand.finish("last", prompt=10_000, cached=0, reason=FinishReason.LENGTH) == ["waits"]


def test_those_who_come_back_end_the_time_that_an_engine_has_been_starved():
    stand = thinking(0.5)
    for name in ("old", "young"):
        stand.arrive(name)
    stand.wait(1.0)
    stand.arrive("waits")
    for _ in range(3):
        for name in ("old", "young"):
            stand.finish(name, prompt=10_000, cached=0)
        assert stand.wait(0.6) == []  # longer than that in all
        for name in ("old", "young"):
            stand.arrive(name)
        stand.wait(1.0)


def test_no_place_is_reclaimed_where_that_would_not_make_room():
    stand = Stand(1000, unit=TOKENS)
    for number in range(8):
        stand.arrive(f"s{number}", tokens=120)
    for number in range(7):
        stand.finish(f"s{number}", prompt=120)
    assert isinstance(stand.arrive("too large", tokens=900), Held)
    assert stand.backend().idle == 7


def test_a_place_lost_on_arrival_is_kept_for_the_turn_that_has_lost_it():
    stand = Stand(1000, unit=TOKENS, capacity=600)
    stand.run("grown", tokens=500, prompt=500, completion=200)
    stand.arrive("works", tokens=300)
    stand.arrive("small", tokens=200)
    assert isinstance(stand.arrive("grown", tokens=900), Held)
    assert stand.state("grown") == "paused"
    assert stand.wait(0.0) == []  # "grown" is the head of the line, and does not fit yet
    assert stand.abandon("grown") == ["small"]


def test_a_place_lost_on_arrival_goes_to_others_where_its_turn_waits_elsewhere():
    """``arrive`` answers for one turn: the tick that it asks for lets the others in (invariant 4)."""
    stand = Stand(1000, 100, unit=TOKENS, capacity=600)
    stand.run("grown", tokens=350, prompt=350, avoid=frozenset({B}))
    stand.arrive("works", tokens=600, avoid=frozenset({B}))
    stand.arrive("works too", tokens=50, avoid=frozenset({A}))
    stand.arrive("waits", tokens=300)
    assert isinstance(stand.arrive("grown", tokens=700), Held)
    assert stand.wait(0.0) == ["waits"]


def test_the_head_of_the_line_is_not_starved_by_smaller_ones():
    stand = Stand(1000, unit=TOKENS)
    stand.arrive("one", tokens=500)
    stand.arrive("two", tokens=400)
    stand.arrive("large", tokens=700)
    assert isinstance(stand.arrive("small", tokens=50), Held)
    stand.finish("two", outcome=Outcome.ENGINE_ERROR)
    assert stand.running == {"one"}
    assert stand.finish("one", outcome=Outcome.ENGINE_ERROR) == ["large", "small"]


def test_a_head_that_waits_reserves_one_backend_not_all():
    stand = Stand(1000, 900, unit=TOKENS)
    stand.arrive("one", tokens=400)
    stand.arrive("two", tokens=500)
    stand.arrive("large", tokens=800)
    assert stand.held == {"large"}
    assert isinstance(stand.arrive("small", tokens=50), Admitted)
    assert stand.leases["small"].backend != {"one": A, "two": B}["one"]  # "large" waits where most room is


@pytest.mark.parametrize(("large", "held"), [(LOOK_AHEAD, False), (LOOK_AHEAD + 1, True)])
def test_a_long_line_of_large_turns_reserves_everything(large, held):
    """Token windows: nobody looks through a whole line for a turn that is small enough."""
    stand = Stand()
    for number in range(LOOK_AHEAD + 4):
        stand.add(BackendId(str(number)), 1000, unit=TOKENS)
        stand.arrive(f"works {number}", tokens=600)
    for number in range(large):
        stand.arrive(f"large {number}", tokens=500)
    stand.resize(1000, backend=BackendId("0"))
    assert isinstance(stand.arrive("small", tokens=100), Held) is held


def test_who_cannot_run_elsewhere_keeps_nobody_from_running_elsewhere():
    stand = Stand(1, 1, capacity=10_000)
    stand.run("agent", prompt=1000)
    home = stand.granted and stand.gate.sessions(now=0.0)[0].backend
    other = B if home == A else A
    stand.resize(1, backend=home, hard=True)
    stand.arrive("agent")
    stand.arrive("agent")  # a branch: its context is at home
    assert stand.backend(home).held == 1
    assert stand.arrive("stranger").lease.backend == other


def test_a_head_that_waits_for_its_origin_leaves_other_backends_to_those_behind():
    stand = Stand(1, 1, capacity=10_000, lease_min_s=1.0, lease_max_s=1.0)
    home = stand.run("agent", prompt=1000).lease.backend
    stand.wait(2.0)
    there = frozenset({A, B} - {home})
    stand.arrive("on origin", avoid=there)
    stand.arrive("elsewhere", avoid=frozenset({home}))
    stand.arrive("agent")
    stand.arrive("stranger")
    assert stand.finish("elsewhere", outcome=Outcome.CANCELLED) == ["stranger"]
    assert stand.held == {"agent"}


def test_who_arrives_finds_what_the_head_has_reserved_in_the_last_round():
    stand = Stand(1000, unit=TOKENS)
    stand.arrive("works", tokens=600)
    stand.arrive("large", tokens=600)
    stand.resize(1000)
    assert isinstance(stand.arrive("small", tokens=50), Held)


def test_a_branch_does_not_pass_a_reservation():
    stand = Stand(1000, 1000, unit=TOKENS)
    stand.arrive("works", tokens=950, avoid=frozenset({B}))
    stand.arrive("works too", tokens=990, avoid=frozenset({A}))
    stand.arrive("agent", tokens=100)
    stand.arrive("large", tokens=950, avoid=frozenset({B}))
    first = stand.tickets["agent"]
    branch = stand.arrive("agent", tokens=50)
    stand.tickets = {"agent": first, "branch": branch.ticket, "large": stand.tickets["large"]}
    assert stand.finish("works", outcome=Outcome.ENGINE_ERROR) == ["agent"]
    assert stand.held == {"branch", "large"}


def test_turns_that_lose_their_origin_one_by_one_go_elsewhere():
    stand = Stand(1, 1, capacity=10_000, lease_min_s=1.0, lease_max_s=1.0)
    home = stand.run("old", prompt=1000).lease.backend
    there = frozenset({A, B} - {home})
    stand.wait(2.0)
    stand.run("young", prompt=1000, avoid=there)
    stand.wait(2.0)
    stand.arrive("works", avoid=there, tokens=100)
    stand.arrive("young")
    stand.arrive("old")
    stand.gate.set_capacity(home, 1300.0, now=stand.now)
    assert stand.wait(0.0) == ["old"]
    assert stand.leases["old"].backend in there


def test_a_branch_whose_session_has_failed_may_go_elsewhere():
    stand = Stand(1, 1, order="fifo")
    here = frozenset({B})
    stand.arrive("agent", avoid=here)
    stand.arrive("elsewhere")
    for name in ("first", "second"):
        stand.arrive(name, avoid=here)
    branch = stand.gate.arrive(turn("agent"), now=0.0)
    stand.tickets["branch"] = branch.ticket
    assert stand.finish("agent", outcome=Outcome.ENGINE_ERROR) == ["first"]
    assert stand.finish("elsewhere", outcome=Outcome.CANCELLED) == ["branch"]


# relatives


def test_a_held_child_takes_the_place_of_its_idle_parent():
    stand = Stand(2)
    stand.arrive("works")
    stand.run("parent")
    stand.arrive("stranger")
    assert isinstance(stand.arrive("child", parent="parent"), Admitted)
    assert stand.held == {"stranger"}
    assert stand.state("parent") == "paused"


def test_a_child_that_waits_takes_the_place_when_its_parent_falls_idle():
    stand = Stand(2)
    stand.arrive("works")
    stand.arrive("parent")
    stand.arrive("stranger")
    stand.arrive("child", parent="parent")
    assert stand.finish("parent") == ["child"]


def test_a_parent_that_comes_back_queues_before_new_sessions():
    stand = Stand(2)
    stand.arrive("works")
    stand.run("parent")
    stand.arrive("child", parent="parent")
    stand.arrive("stranger")
    stand.arrive("parent")
    assert stand.held == {"stranger", "parent"}
    assert stand.finish("works", outcome=Outcome.ENGINE_ERROR) == ["parent"]


def test_a_parent_gets_its_place_back_from_a_child_that_has_fallen_idle():
    stand = Stand(2)
    stand.arrive("works")
    stand.run("parent")
    stand.arrive("child", parent="parent")
    stand.arrive("stranger")
    stand.arrive("parent")
    assert stand.finish("child", reason=FinishReason.STOP) == ["parent"]


def test_a_loan_is_over_when_the_parent_has_a_place_again():
    stand = Stand(2, lease_min_s=1.0, lease_max_s=1.0)
    stand.arrive("works")
    stand.run("parent")
    stand.arrive("child", parent="parent")
    stand.resize(3)
    stand.run("parent")
    stand.wait(2.0)
    stand.resize(2)
    stand.finish("child")
    assert isinstance(stand.arrive("parent"), Held)
    assert stand.state("child") == "idle"


def test_what_a_child_leaves_of_its_parents_room_goes_to_others_at_once():
    stand = Stand(1000, unit=TOKENS)
    stand.run("parent", tokens=500, prompt=500)
    stand.arrive("works", tokens=400)
    stand.arrive("waits", tokens=300)
    stand.arrive("child", parent="parent", tokens=200)
    assert stand.running == {"works", "child"}
    assert stand.wait(0.0) == ["waits"]


def test_a_child_that_may_not_run_where_its_parent_is_leaves_it_alone():
    stand = Stand(2, 1)
    for name in ("parent", "works"):
        stand.arrive(name, avoid=frozenset({B}))
    stand.arrive("elsewhere", avoid=frozenset({A}))
    stand.finish("parent")
    assert isinstance(stand.arrive("child", parent="parent", avoid=frozenset({A})), Held)
    assert stand.state("parent") == "idle"


def test_a_window_that_makes_a_child_take_a_place_binds():
    stand = Stand(2)
    stand.arrive("works")
    stand.run("parent")
    assert not stand.gate.view(A, now=0.0).bound
    stand.arrive("child", parent="parent")
    assert stand.gate.view(A, now=0.0).bound


def test_observing_takes_no_place_from_a_parent():
    stand = Stand(2, mode="observe")
    stand.arrive("works")
    stand.run("parent")
    assert stand.arrive("child", parent="parent").lease.why is AdmitWhy.OBSERVED
    assert stand.state("parent") == "idle"


def test_a_child_leaves_its_parent_alone_while_there_is_room():
    stand = Stand(3)
    stand.run("parent")
    stand.arrive("child", parent="parent")
    assert stand.state("parent") == "idle"


def test_a_session_that_is_its_own_parent_is_no_relative():
    stand = Stand(1)
    stand.arrive("odd", parent="odd")
    assert isinstance(stand.arrive("odd", parent="odd"), Held)


# leases and ends of sessions


def test_a_session_that_never_says_goodbye_frees_its_place():
    stand = Stand(2, lease_min_s=5.0, lease_max_s=60.0)
    stand.arrive("works")
    stand.run("vanishes")
    stand.arrive("waits")
    assert stand.wait(59.0) == []
    assert stand.wait(2.0) == ["waits"]
    assert (stand.state("vanishes"), stand.books.leases_expired) == ("gone", 1)


def lease_after(stand, session="agent"):
    views = {view.key: view for view in stand.gate.sessions(now=stand.now)}
    return views[key(session)].lease_s


def test_a_lease_follows_the_think_times_of_its_session():
    stand = Stand(2, lease_min_s=1.0, lease_max_s=600.0)
    for _ in range(30):
        stand.run("agent")
        stand.wait(4.0)
    stand.run("agent")
    assert lease_after(stand) == pytest.approx(8.0)  # 4 s, and 4 mean deviations of at least a quarter of it


def test_a_session_that_is_new_gets_its_backends_think_times():
    stand = Stand(2, lease_min_s=1.0, lease_max_s=600.0)
    stand.run("other")
    stand.wait(10.0)
    stand.run("other")
    stand.run("agent")
    assert lease_after(stand) == pytest.approx(30.0)


def test_a_lease_stays_between_its_bounds():
    stand = Stand(2, lease_min_s=30.0, lease_max_s=40.0)
    stand.run("agent")
    assert lease_after(stand) == 40.0
    stand.wait(0.1)
    stand.run("agent")
    assert lease_after(stand) == 30.0


def test_a_final_answer_halves_the_lease_until_the_session_has_gone_on_after_one():
    stand = Stand(2, lease_min_s=1.0, lease_max_s=100.0)
    stand.arrive("agent")
    stand.finish("agent", reason=FinishReason.STOP)
    assert lease_after(stand) == 50.0
    stand.wait(20.0)
    stand.arrive("agent")
    stand.finish("agent", reason=FinishReason.STOP)
    assert lease_after(stand) == 60.0


def test_a_renewed_lease_counts_from_the_last_turn():
    stand = Stand(2, lease_min_s=10.0, lease_max_s=10.0)
    stand.run("agent")
    stand.wait(8.0)
    stand.run("agent")
    stand.wait(8.0)
    assert stand.state("agent") == "idle"
    stand.wait(3.0)
    assert stand.state("agent") == "gone"


def test_a_lease_that_has_become_shorter_ends_sooner():
    stand = Stand(2, lease_min_s=5.0, lease_max_s=600.0)
    stand.run("agent")
    stand.arrive("agent")
    stand.finish("agent", outcome=Outcome.CANCELLED)
    stand.wait(6.0)
    assert stand.state("agent") == "gone"


def test_a_session_that_says_goodbye_frees_its_place_at_once():
    stand = Stand(2)
    stand.arrive("works")
    stand.run("agent")
    stand.arrive("waits")
    assert stand.note(stand.gate.end_session(key("agent"), now=stand.now)) == ["waits"]
    assert stand.state("agent") is None


def test_a_final_turn_takes_its_session_with_it():
    stand = Stand(2)
    stand.arrive("works")
    stand.arrive("agent", final=True)
    stand.arrive("waits")
    assert stand.finish("agent") == ["waits"]
    assert stand.state("agent") is None


def test_ending_an_unknown_session_does_nothing():
    assert Stand(1).gate.end_session(key("nobody"), now=0.0) == []


@pytest.mark.parametrize("outcome", [o for o in Outcome if o is not Outcome.COMPLETED])
def test_a_session_whose_first_turn_fails_leaves_no_phantom(outcome):
    stand = Stand(1)
    stand.arrive("fails")
    stand.finish("fails", outcome=outcome)
    assert (stand.backend().active, stand.backend().footprint_tokens) == (0, 0)


def test_a_session_whose_client_has_left_keeps_its_place_for_the_shortest_lease():
    stand = Stand(2, lease_min_s=5.0, lease_max_s=600.0)
    stand.run("agent")
    stand.arrive("agent")
    stand.finish("agent", outcome=Outcome.CANCELLED)
    assert lease_after(stand) == 5.0


# waits, refusals, retries


def test_a_turn_that_has_waited_its_longest_is_refused():
    stand = Stand(1, max_wait_s=10.0)
    stand.arrive("works")
    assert stand.arrive("waits").deadline == 10.0
    assert stand.wait(9.9) == []
    assert stand.wait(0.2) == ["waits"]
    assert stand.refused == {"waits": RefusalReason.QUEUE_TIMEOUT}


def test_a_client_that_gives_up_sooner_is_refused_before():
    stand = Stand(1, max_wait_s=100.0)
    stand.arrive("works")
    assert stand.arrive("waits", read_timeout_s=60.0).deadline == pytest.approx(54.0)
    assert stand.arrive("patient", read_timeout_s=6000.0).deadline == 100.0


def test_a_turn_may_be_forced_in_after_its_longest_wait():
    stand = Stand(1, max_wait_s=10.0, force_after_max_wait=True)
    stand.arrive("works")
    stand.arrive("waits")
    assert stand.wait(10.0) == ["waits"]
    assert stand.leases["waits"].why is AdmitWhy.FORCED


def test_too_many_held_turns_are_refused():
    stand = Stand(1, max_held=1, retry_after_s=7.0)
    stand.arrive("works")
    stand.arrive("waits")
    assert stand.arrive("late") == Refused(3, RefusalReason.QUEUE_FULL, 7.0)
    assert stand.books.sessions == 2


def test_a_session_keeps_its_place_where_its_turn_is_refused():
    stand = shrunk(capacity=1600, max_held=0)
    assert stand.arrive("old").reason is RefusalReason.QUEUE_FULL
    assert stand.state("old") == "idle"


def test_a_turn_that_nobody_serves_is_refused():
    stand = Stand(1)
    assert stand.arrive("lost", pool=PoolId("elsewhere")).reason is RefusalReason.NO_BACKEND
    assert stand.arrive("picky", avoid=frozenset({A})).reason is RefusalReason.NO_BACKEND


def test_at_the_end_everybody_who_waits_or_comes_is_refused():
    stand = Stand(1)
    stand.arrive("works")
    stand.arrive("waits")
    stand.note(stand.gate.refuse_all(RefusalReason.SHUTTING_DOWN, now=0.0))
    stand.arrive("late")
    stand.requeue("works")
    assert stand.refused == dict.fromkeys(("waits", "late", "works"), RefusalReason.SHUTTING_DOWN)


def test_a_client_that_leaves_while_held_is_no_phantom():
    stand = Stand(1)
    stand.arrive("works")
    stand.arrive("leaves")
    stand.abandon("leaves")
    assert (stand.books.held, stand.books.abandoned, stand.books.sessions) == (0, 1, 1)
    with pytest.raises(KeyError):
        stand.gate.abandon(2, now=0.0)


def test_a_head_that_leaves_makes_way():
    stand = Stand(1000, unit=TOKENS)
    stand.arrive("works", tokens=600)
    stand.arrive("large", tokens=600)
    stand.arrive("small", tokens=300)
    assert stand.abandon("large") == ["small"]


def test_a_retry_takes_its_first_tries_place_in_line():
    stand = Stand(1)
    stand.arrive("works")
    stand.arrive("retries", body_digest=7)
    stand.wait(1.0)
    stand.arrive("later", body_digest=8)
    stand.abandon("retries")
    stand.arrive("retries", body_digest=7)
    assert stand.finish("works", outcome=Outcome.CANCELLED) == ["retries"]


def test_another_body_is_no_retry_unless_it_says_so():
    for says_so, first in ((False, "later"), (True, "retries")):
        stand = Stand(1)
        stand.arrive("works")
        stand.arrive("retries", body_digest=7)
        stand.wait(1.0)
        stand.arrive("later", body_digest=8)
        stand.abandon("retries")
        stand.arrive("retries", body_digest=9, is_retry=says_so)
        assert stand.finish("works", outcome=Outcome.CANCELLED) == [first]


def test_a_retry_after_a_refusal_takes_its_first_tries_place_in_line():
    stand = Stand(1, max_wait_s=10.0)
    stand.arrive("works")
    stand.arrive("retries", body_digest=7)
    stand.wait(5.0)
    stand.arrive("later", body_digest=8)
    assert stand.wait(5.0) == ["retries"]
    stand.arrive("retries", body_digest=7)
    assert stand.finish("works", outcome=Outcome.CANCELLED) == ["retries"]


def test_a_retry_that_comes_too_late_is_a_first_try():
    stand = Stand(1, max_wait_s=10.0)
    stand.arrive("works")
    stand.arrive("retries", body_digest=7)
    stand.abandon("retries")
    stand.wait(21.0)
    stand.arrive("later")
    stand.arrive("retries", body_digest=7)
    assert stand.finish("works", outcome=Outcome.CANCELLED) == ["later"]


# engines that refuse


def test_a_turn_that_the_engine_refused_waits_with_its_place_in_line():
    stand = Stand(1)
    stand.arrive("refused")
    stand.wait(1.0)
    stand.arrive("later")
    ticket = stand.granted["refused"]
    assert stand.requeue("refused", after=2.0) == ["later"]
    assert stand.held == {"refused"}
    stand.wait(3.0)
    assert stand.finish("later", outcome=Outcome.CANCELLED) == ["refused"]
    assert stand.granted["refused"] == ticket
    assert stand.books.requeued == 1


def test_a_turn_that_was_put_back_does_not_go_before_its_time():
    stand = Stand(1)
    stand.arrive("refused")
    assert stand.requeue("refused", after=2.0) == []
    assert stand.gate.next_deadline() == 2.0
    assert stand.wait(1.9) == []
    assert stand.wait(0.2) == ["refused"]


def test_a_turn_without_a_session_that_was_put_back_is_no_paused_session():
    stand = Stand(1)
    ticket = stand.arrive().ticket
    stand.requeue(ticket, after=2.0)
    assert (stand.books.paused, stand.backend().active) == (0, 0)
    assert stand.wait(2.0) == [ticket]


def test_a_turn_that_was_put_back_keeps_its_deadline():
    stand = Stand(1, max_wait_s=10.0)
    stand.arrive("refused")
    stand.wait(5.0)
    stand.requeue("refused", after=20.0)
    assert stand.wait(5.0) == ["refused"]
    assert stand.refused == {"refused": RefusalReason.QUEUE_TIMEOUT}


def test_a_turn_that_was_put_back_may_go_elsewhere():
    stand = Stand(1, 1)
    first = stand.arrive("refused").lease.backend
    assert stand.requeue("refused", avoid=frozenset({first})) == ["refused"]
    assert stand.leases["refused"].backend != first


def test_a_turn_that_no_backend_is_left_for_is_refused():
    stand = Stand(1)
    stand.arrive("refused")
    stand.arrive("waits")
    assert stand.requeue("refused", avoid=frozenset({A})) == ["refused", "waits"]
    assert stand.refused == {"refused": RefusalReason.NO_BACKEND}


def test_a_turn_that_goes_elsewhere_expects_nothing_there():
    stand = Stand(2, 2, capacity=10_000)
    home = stand.run("agent", prompt=1000).lease.backend
    stand.arrive("agent")
    stand.requeue("agent", avoid=frozenset({home}))
    stand.finish("agent", prompt=1200, cached=0)
    assert stand.finished.record.expected_cached_tokens is None


def test_a_turn_of_a_backend_that_has_left_its_pool_goes_to_the_others():
    stand = Stand(1, 1)
    home = stand.arrive("agent").lease.backend
    stand.gate.set_pool(home, PoolId("other"), now=0.0)
    assert stand.requeue("agent") == ["agent"]
    assert stand.leases["agent"].backend != home


# backends that come and go


def test_a_backend_takes_turns_from_its_up_on():
    stand = Stand()
    stand.gate.add_backend(A, "pool", unit=SESSIONS, window=1, now=0.0)
    assert stand.arrive("early").reason is RefusalReason.NO_BACKEND
    stand.event(A, BackendEvent.UP)
    assert isinstance(stand.arrive("late"), Admitted)


def test_a_backend_is_there_once():
    stand = Stand(1)
    with pytest.raises(ValueError, match="here already"):
        stand.add(A, 1)


@pytest.mark.parametrize("event", [BackendEvent.LOST, BackendEvent.DRAINING])
def test_held_turns_are_refused_when_the_last_backend_goes(event):
    stand = Stand(1)
    stand.arrive("put back")
    stand.requeue("put back", after=5.0)
    stand.arrive("works")
    stand.arrive("waits")
    assert set(stand.event(A, event)) == {"put back", "waits"}
    assert stand.refused == dict.fromkeys(("put back", "waits"), RefusalReason.NO_BACKEND)


def test_held_turns_go_elsewhere_when_their_backend_is_lost():
    stand = Stand(1, 1, capacity=10_000, lease_min_s=1.0, lease_max_s=1.0)
    home = stand.run("agent", prompt=1000).lease.backend
    other = B if home == A else A
    stand.wait(2.0)
    stand.arrive("works", avoid=frozenset({other}))
    assert isinstance(stand.arrive("agent"), Held)  # warm: it waits for its origin
    assert stand.event(home, BackendEvent.LOST) == ["agent"]
    assert stand.leases["agent"].backend == other


def test_sessions_of_a_lost_backend_are_cold_and_paused():
    stand = Stand(2, 2, capacity=10_000)
    home = stand.run("agent", prompt=1000).lease.backend
    stand.event(home, BackendEvent.LOST)
    assert stand.state("agent") == "paused"
    result = stand.arrive("agent")
    assert result.lease.backend != home
    stand.event(home, BackendEvent.UP)
    stand.finish("agent", prompt=1000, cached=0)
    assert stand.finished.record.expected_cached_tokens is None  # a move is no eviction


def test_a_session_moves_its_place_away_from_a_draining_backend():
    stand = Stand(2, 2, capacity=10_000)
    home = stand.run("agent", prompt=1000).lease.backend
    stand.event(home, BackendEvent.DRAINING)
    other = stand.arrive("agent").lease.backend
    assert other != home
    assert (stand.backend(home).active, stand.backend(other).active) == (0, 1)
    assert stand.backend(other).running == 1


def test_a_draining_backend_ends_what_it_runs():
    stand = Stand(1)
    stand.arrive("agent")
    stand.event(A, BackendEvent.DRAINING)
    stand.finish("agent")
    assert (stand.backend().active, stand.books.finished) == (0, {Outcome.COMPLETED: 1})


def test_a_session_whose_engine_died_under_it_has_no_place_any_more():
    stand = Stand(2)
    stand.run("agent")
    stand.arrive("agent")
    stand.finish("agent", outcome=Outcome.BACKEND_LOST)
    assert (stand.state("agent"), stand.backend().active) == ("paused", 0)


def test_a_flushed_engine_has_no_warm_sessions():
    stand = shrunk()
    stand.event(A, BackendEvent.FLUSHED)
    assert isinstance(stand.arrive("old"), Held)


def test_a_removed_backend_is_forgotten_when_its_turns_have_ended():
    stand = Stand(2, 2)
    home = stand.arrive("agent").lease.backend
    assert stand.gate.remove_backend(home, now=0.0) == []
    stand.add(home, 2)  # another of the same name
    stand.finish("agent")
    assert (stand.backend(home).active, stand.backend(home).running) == (0, 0)
    assert isinstance(stand.arrive("agent"), Admitted)


def test_a_pool_without_backends_is_forgotten():
    stand = Stand(1)
    stand.gate.remove_backend(A, now=0.0)
    assert list(stand.gate._pools) == []


def test_a_backend_that_joins_a_pool_serves_it():
    stand = Stand(1)
    stand.add(B, 1, pool=PoolId("own"))
    stand.arrive("works")
    stand.arrive("waits")
    assert stand.note(stand.gate.set_pool(B, "pool", now=0.0)) == ["waits"]
    assert stand.leases["waits"].backend == B


def test_turns_that_wait_go_with_the_last_backend_of_their_pool_into_another():
    stand = Stand(1)
    stand.add(B, 1, pool=PoolId("young"))
    for name in ("runs", "first", "second"):
        stand.arrive(name, pool=PoolId("young"), final=True)
    assert stand.note(stand.gate.set_pool(B, "pool", now=0.0)) == ["first"]
    assert stand.leases["first"].backend == A
    assert stand.finish("runs") == ["second"]
    assert [str(pool.id) for pool in stand.gate._pools] == ["pool"]


def test_turns_stay_where_a_backend_is_left_that_can_serve_them():
    stand = Stand(1, 1)
    for name in ("runs", "runs too", "waits"):
        stand.arrive(name, final=True)
    here, there = sorted(("runs", "runs too"), key=lambda name: stand.leases[name].backend)
    assert stand.note(stand.gate.set_pool(B, PoolId("other"), now=0.0)) == []
    assert stand.finish(there) == []
    assert stand.finish(here) == ["waits"]


def test_sessions_go_with_a_backend_that_changes_its_pool():
    stand = Stand(2)
    stand.run("agent")
    stand.gate.set_pool(A, PoolId("new"), now=0.0)
    stand.arrive("agent", pool=PoolId("new"))
    assert stand.backend().active == 1


def test_one_id_in_two_pools_is_two_sessions():
    stand = Stand(2)
    stand.add(B, 2, pool=PoolId("other"))
    stand.run("agent")
    stand.run("agent", pool=PoolId("other"))
    assert (stand.backend(A).idle, stand.backend(B).idle) == (1, 1)
    stand.gate.end_session(key("agent"), now=0.0)
    assert (stand.backend(A).idle, stand.backend(B).idle) == (0, 0)


# placement


def test_new_sessions_go_where_most_room_is():
    stand = Stand(4, 8)
    backends = [stand.arrive(f"s{number}").lease.backend for number in range(6)]
    assert (backends.count(A), backends.count(B)) == (2, 4)


def test_without_an_end_to_the_windows_turns_are_spread():
    stand = Stand(math.inf, math.inf)
    backends = [stand.arrive(f"s{number}").lease.backend for number in range(6)]
    assert backends.count(A) == 3


def test_a_warm_session_goes_back_to_its_origin():
    stand = Stand(4, 4, capacity=10_000, lease_min_s=1.0, lease_max_s=1.0)
    home = stand.run("agent", prompt=1000).lease.backend
    stand.wait(2.0)
    assert stand.state("agent") == "gone"
    for number in range(5):
        stand.arrive(f"s{number}", tokens=1)
    assert stand.arrive("agent").lease.backend == home


def test_a_warm_session_waits_for_its_origin():
    stand = Stand(1, 1, capacity=10_000, lease_min_s=1.0, lease_max_s=1.0)
    home = stand.run("agent", prompt=1000).lease.backend
    stand.wait(2.0)
    stand.arrive("works", avoid=frozenset({A, B} - {home}))
    assert isinstance(stand.arrive("agent"), Held)


def test_a_held_session_may_go_elsewhere_once_its_context_is_gone():
    stand = Stand(1, 1, capacity=1600, lease_min_s=1.0, lease_max_s=1.0)
    home = stand.run("agent", prompt=1000).lease.backend
    stand.wait(2.0)
    there = frozenset({A, B} - {home})
    stand.arrive("works", avoid=there, tokens=100)
    stand.arrive("agent")
    assert stand.wait(0.0) == []
    stand.finish("works", prompt=1900, reason=FinishReason.STOP)  # evicts most of the agent's context
    stand.arrive("works", avoid=there)
    stand.wait(0.0)
    assert stand.leases["agent"].backend in there


def test_without_a_shadow_the_origin_comes_first_while_it_has_room():
    stand = Stand(4, 4, lease_min_s=1.0, lease_max_s=1.0)
    home = stand.run("agent").lease.backend
    stand.wait(2.0)
    for number in range(2):
        stand.arrive(f"s{number}", avoid=frozenset({A, B} - {home}))
    assert stand.arrive("agent").lease.backend == home


# windows, bounds, units, modes


def test_a_window_stays_between_its_bounds():
    """Invariant 5."""
    stand = Stand(4)
    stand.gate.set_bounds(A, minimum=2, maximum=6, now=0.0)
    for asked, got in ((0, 2), (100, 6), (3, 3)):
        stand.resize(asked)
        assert stand.backend().window == got
    stand.gate.set_bounds(A, minimum=1, maximum=2, now=0.0)
    assert stand.backend().window == 2


def test_wider_bounds_let_nobody_in_but_a_wider_window_does():
    stand = Stand(1)
    stand.arrive("works")
    stand.arrive("waits")
    assert stand.note(stand.gate.set_bounds(A, minimum=2, maximum=9, now=0.0)) == ["waits"]


def test_another_unit_loses_no_session():
    stand = Stand(2)
    stand.run("agent", prompt=300)
    stand.arrive("works", tokens=100)
    stand.arrive("waits", tokens=100)
    assert stand.note(stand.gate.set_unit(A, TOKENS, 600, now=0.0)) == ["waits"]
    assert (stand.backend().active, stand.backend().unit) == (3, TOKENS)


def test_a_law_hears_whether_the_window_has_kept_anybody_waiting():
    stand = Stand(1)
    assert not stand.gate.view(A, now=0.0).bound
    stand.arrive("works")
    stand.resize(1)
    assert not stand.gate.view(A, now=0.0).bound
    stand.arrive("waits")
    assert stand.gate.view(A, now=0.0).bound
    stand.resize(1)
    assert stand.gate.view(A, now=0.0).bound  # somebody still waits
    stand.abandon("waits")
    stand.resize(1)
    assert not stand.gate.view(A, now=0.0).bound


def test_a_view_has_what_a_law_needs():
    stand = Stand(4, unit=SESSIONS)
    assert stand.gate.view(A, now=0.0).typical_footprint_tokens is None
    assert stand.gate.view(A, now=0.0).records_age_s == math.inf
    stand.run("agent", prompt=300)
    stand.arrive("works", tokens=100)
    stand.wait(2.0)
    view = stand.gate.view(A, now=stand.now)
    assert (view.window, view.active, view.running, view.held) == (4, 2, 1, 0)
    assert (view.footprint_tokens, view.typical_footprint_tokens, view.records_age_s) == (400, 200, 2.0)


def test_observing_lets_everybody_in_and_counts_who_would_have_waited():
    stand = Stand(1, mode="observe", max_held=0)
    for name in ("one", "two", "three"):
        stand.arrive(name)
    assert stand.books.admitted_by == {AdmitWhy.WINDOW: 1, AdmitWhy.OBSERVED: 2}
    stand.finish("one")
    assert stand.arrive("one").lease.why is AdmitWhy.OBSERVED
    assert (stand.books.paused, stand.books.reclaimed) == (0, 0)
    assert stand.gate.view(A, now=0.0).bound


def test_who_waits_is_let_in_when_observing_begins():
    stand = Stand(1)
    for number in range(300):
        stand.arrive(f"s{number}")
    decisions = stand.gate.set_policy(GatePolicy(mode="observe"), now=0.0)
    assert len(decisions) == 299
    assert stand.books.held == 0


def test_an_unlimited_window_holds_nobody():
    stand = Stand(math.inf)
    assert all(isinstance(stand.arrive(f"s{number}"), Admitted) for number in range(100))


# footprints and what the answers tell


def test_a_shared_prefix_counts_once():
    stand = Stand(10_000, unit=TOKENS)
    stand.run("first", tokens=1000, prompt=1000, cached=0, prefix_key=5)
    stand.run("second", tokens=1000, prompt=1000, cached=800, prefix_key=5)
    stand.run("first", tokens=1000, prompt=1000, cached=1000, prefix_key=5)
    assert stand.backend().footprint_tokens == 200 + 200 + 800
    stand.arrive("third", tokens=1000, prefix_key=5)
    assert stand.backend().footprint_tokens == 800 + 200 + 200 + 200


def test_a_prefix_that_nobody_uses_counts_for_the_first_who_does():
    stand = Stand(1000, unit=TOKENS)
    stand.run("first", tokens=900, prompt=900, cached=800, prefix_key=5)
    stand.gate.end_session(key("first"), now=0.0)
    stand.arrive("works", tokens=200)
    assert isinstance(stand.arrive("second", tokens=900, prefix_key=5), Held)


def test_several_choices_leave_one_history():
    stand = Stand(4)
    stand.arrive("agent", choices=4)
    stand.finish("agent", prompt=100, completion=400)
    assert stand.backend().footprint_tokens == 200


def test_a_bad_request_leaves_no_context_in_the_shadow():
    stand = Stand(4, capacity=1000)
    stand.run("agent", prompt=600)
    stand.arrive("bad", tokens=390)
    stand.finish("bad", outcome=Outcome.CLIENT_ERROR)
    stand.arrive("works", tokens=350)
    stand.resize(1)
    assert stand.arrive("agent").lease.why is AdmitWhy.WARM


def test_evictions_do_not_change_what_is_expected():
    stand = Stand(4, capacity=1000)
    for _ in range(10):
        stand.run("agent", prompt=800, cached=0)
        stand.run("rival", prompt=800, cached=0)
    assert stand.finished.record.expected_cached_tokens == 800


def test_a_record_says_what_an_undisturbed_cache_would_have_given():
    stand = Stand(4, capacity=10_000)
    stand.run("agent", prompt=1000, completion=50, cached=0)
    assert stand.finished.record.expected_cached_tokens is None
    stand.wait(3.0)
    stand.run("agent", prompt=1500, cached=400)
    record = stand.finished.record
    assert (record.expected_cached_tokens, record.think_s) == (1040, 3.0)  # whole blocks of 16
    assert (stand.backend().evicted_tokens, stand.backend().cached_tokens) == (640, 400)


def test_think_time_is_not_measured_after_a_failure_nor_of_a_branch():
    stand = Stand(4)
    stand.run("agent")
    stand.arrive("agent")
    stand.finish("agent", outcome=Outcome.ENGINE_ERROR)
    stand.wait(100.0)
    stand.run("agent")
    assert stand.finished.record.think_s is None


def test_parallel_turns_have_one_think_time():
    stand = Stand(4)
    stand.run("agent")
    stand.wait(3.0)
    stand.arrive("agent")
    branch = stand.arrive("agent").lease
    record = stand.gate.finish(branch, Outcome.COMPLETED, None, now=stand.now).record
    assert record.think_s is None


def test_a_completed_turn_without_usage_still_counts():
    stand = Stand(4)
    stand.arrive("agent", tokens=100)
    stand.finish("agent", usage=False)
    assert stand.state("agent") == "idle"
    assert stand.backend().footprint_tokens == 100


# bounds (invariant 9)


def test_the_longest_untouched_sessions_are_forgotten_but_no_busy_ones():
    stand = Stand(math.inf, max_sessions=3)
    stand.arrive("works")
    for name in ("one", "two", "three", "four"):
        stand.run(name)
    assert [stand.state(name) for name in ("works", "one", "two", "three", "four")] == [
        "running",
        None,
        None,
        "idle",
        "idle",
    ]
    assert stand.backend().active == 3


def test_a_place_of_a_forgotten_session_goes_to_who_waits():
    stand = Stand(2, max_sessions=2)
    stand.run("idle")
    stand.arrive("works")
    stand.arrive("waits")
    stand.wait(0.0)
    assert stand.running == {"works", "waits"}


def test_a_place_of_a_forgotten_session_goes_to_who_waited_before():
    stand = Stand(2, max_sessions=3)
    stand.run("idle")
    stand.arrive("works")
    stand.arrive("first")
    stand.arrive("second")
    assert stand.wait(0.0) == ["first"]


def test_ended_sessions_leave_no_alarm():
    stand = Stand(4, lease_max_s=1000.0)
    for number in range(1000):
        stand.run(f"s{number}")
        stand.gate.end_session(key(f"s{number}"), now=0.0)
    assert len(stand.gate._timers) < 200


def test_sessions_that_were_only_ever_refused_are_not_remembered():
    stand = Stand(1, max_held=0)
    stand.arrive("works")
    for number in range(50):
        stand.arrive(f"s{number}")
    assert stand.books.sessions == 1


def test_nothing_remains_of_turns_that_came_and_went():
    stand = Stand(1, max_wait_s=1000.0, lease_max_s=1000.0)
    stand.arrive("works")
    for _ in range(5000):
        stand.arrive("leaves")
        stand.abandon("leaves")
    assert len(stand.gate._timers) < 200
    assert sum(len(lane) for lane in next(iter(stand.gate._pools)).line._lanes.values()) < 200


def test_sessions_are_shown_newest_first():
    stand = Stand(4)
    stand.run("one")
    stand.arrive("two", parent="one", rule="test")
    views = stand.gate.sessions(now=stand.now)
    assert [view.key.id for view in views] == ["two", "one"]
    assert (views[0].state, views[0].rule, views[0].parent, views[0].idle_s) == ("running", "test", key("one"), None)
    assert len(stand.gate.sessions(now=stand.now, limit=1)) == 1


def test_the_facts_of_a_turn_travel_with_its_lease():
    stand = Stand(1)
    facts = turn("agent", body_bytes=77)
    result = stand.gate.arrive(facts, now=1.5)
    assert (result.lease.turn, result.lease.session, result.lease.arrived_at) == (facts, key("agent"), 1.5)


@pytest.mark.parametrize("event", [BackendEvent.LOST, BackendEvent.DRAINING])
def test_who_waits_for_a_backend_alone_is_refused_when_that_is_gone_and_others_wait_on(event):
    stand = Stand(1, 1)
    stand.arrive("on a", avoid=frozenset({B}))
    stand.arrive("on b", avoid=frozenset({A}))
    stand.arrive("picky", avoid=frozenset({A}))
    stand.arrive("any")
    assert stand.event(B, event) == ["picky"]
    assert stand.refused["picky"] is RefusalReason.NO_BACKEND
    assert stand.finish("on a", reason=FinishReason.STOP) == ["any"]
