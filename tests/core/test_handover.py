"""Sessions that move between the gates of two replicas, and shares of a window instead of the whole of it."""

import pytest

from concur_proxy.model import AdmitWhy, BackendEvent, Held
from tests.core.stand import POOL, SESSIONS, TOKENS, A, Stand, key
from tests.core.test_gate import thinking


def moved(one, other, name, *, with_place=True):
    """Let a session go from one gate to the other, with its part of the window."""
    state = one.gate.session_state(POOL, key(name), now=one.now)
    one.gate.let_go(POOL, key(name))
    other.note(other.gate.take_in(state, place=state.charge if with_place else 0.0, now=other.now))
    return state


@pytest.mark.parametrize("unit", [SESSIONS, TOKENS])
def test_a_place_moves_with_its_session_and_its_next_turn_rides_it(unit):
    here, there = (Stand(10_000, unit=unit, capacity=20_000) for _ in range(2))
    here.arrive("s", tokens=900)
    here.finish("s", prompt=900, completion=100)
    charge = here.gate.session_state(POOL, key("s"), now=here.now).charge
    there.gate.set_bounds(A, minimum=0.0, maximum=10_000, now=there.now)
    there.gate.set_share(A, 0.0, whole=10_000.0, now=there.now)
    moved(here, there, "s")
    assert here.gate.view(A, now=here.now).active == 0
    assert there.gate.view(A, now=there.now).active == 1
    assert charge == (1 if unit is SESSIONS else 1000)
    assert there.backend().window == charge
    lease = there.arrive("s", tokens=1000).lease
    assert lease.why is AdmitWhy.WINDOW
    assert there.gate.view(A, now=there.now).active == 1


def test_its_context_is_known_to_be_warm_where_it_was():
    here, there = (Stand(2, 2, capacity=20_000) for _ in range(2))
    backend = here.arrive("s", tokens=900).lease.backend
    here.finish("s", prompt=900, completion=100)
    moved(here, there, "s")
    there.arrive("other", tokens=10)  # the other backend would be the emptier one
    assert there.arrive("s", tokens=1000).lease.backend == backend
    assert here.gate.session_state(POOL, key("s"), now=here.now) is None


def test_a_session_without_a_place_waits_ahead_of_new_ones():
    here, there = Stand(1, capacity=20_000), Stand(1, capacity=20_000, max_wait_s=600)
    here.arrive("s", tokens=900)
    here.finish("s", prompt=900, completion=100)
    moved(here, there, "s", with_place=False)
    there.arrive("first")
    assert isinstance(there.arrive("new"), Held)
    there.wait(1)
    assert isinstance(there.arrive("s"), Held)
    there.gate.end_session(key("first"), now=there.now)
    assert there.finish("first") == ["s"]


@pytest.mark.parametrize("order", ["fifo", "furthest"])
def test_a_turn_that_has_come_before_its_session_goes_ahead_of_new_ones_as_soon_as_that_is_known(order):
    here, there = Stand(1, capacity=20_000), Stand(1, capacity=20_000, max_wait_s=600, order=order)
    here.arrive("s", tokens=900)
    here.finish("s", prompt=900, completion=100)
    there.arrive("first")
    assert isinstance(there.arrive("new"), Held)
    there.wait(1)
    assert isinstance(there.arrive("s"), Held)
    moved(here, there, "s", with_place=False)
    there.gate.end_session(key("first"), now=there.now)
    assert there.finish("first") == ["s"]


def test_a_turn_that_waits_already_rides_the_place_that_comes_after_it():
    here, there = Stand(1, capacity=20_000), Stand(1, capacity=20_000)
    here.arrive("s", tokens=900)
    here.finish("s", prompt=900, completion=100)
    there.arrive("other")
    assert isinstance(there.arrive("s"), Held)
    moved(here, there, "s")
    assert there.leases["s"].why is AdmitWhy.WINDOW
    assert there.backend().window == 2


def test_what_comes_after_its_turn_has_begun_does_not_change_the_prefix_that_it_counts_under():
    here, there = (Stand(10_000, unit=TOKENS, capacity=20_000) for _ in range(2))
    here.arrive("s", tokens=900, prefix_key=1)
    here.finish("s", prompt=900, completion=100)
    there.arrive("s", tokens=1000, prefix_key=2)
    moved(here, there, "s")
    there.finish("s", prompt=1000, completion=100)
    there.gate.end_session(key("s"), now=there.now)
    assert there.backend().footprint_tokens == 0


def test_the_lease_goes_on_where_it_went():
    here, there = Stand(5, capacity=20_000), Stand(5, capacity=20_000)
    here.arrive("s", tokens=900)
    here.finish("s", prompt=900, completion=100)
    lease_s = moved(here, there, "s").lease_s
    there.wait(lease_s - 1)
    assert there.gate.view(A, now=there.now).active == 1
    there.wait(2)
    assert there.gate.view(A, now=there.now).active == 0


def test_a_session_that_is_let_go_while_it_runs_leaves_with_its_turn():
    stand = Stand(5, capacity=20_000)
    stand.arrive("s", tokens=900)
    stand.gate.let_go(POOL, key("s"))
    assert stand.gate.view(A, now=stand.now).active == 1
    stand.finish("s", prompt=900, completion=100)
    assert stand.gate.view(A, now=stand.now).active == 0


def test_its_backend_is_down_there_so_it_waits_like_one_that_has_lost_its_place():
    here, there = Stand(5, capacity=20_000), Stand(5, 5, capacity=20_000)
    here.arrive("s", tokens=900)
    here.finish("s", prompt=900, completion=100)
    there.event(A, BackendEvent.LOST)
    moved(here, there, "s")
    assert there.gate.view(A, now=there.now).active == 0
    assert there.arrive("s", tokens=1000).lease.backend != A


def test_nobody_runs_alone_in_a_part_of_a_window():
    stand = Stand(100, unit=TOKENS)
    stand.gate.set_bounds(A, minimum=0.0, maximum=1e9, now=0.0)
    stand.gate.set_share(A, 100.0, whole=300.0, now=0.0)
    assert isinstance(stand.arrive("large", tokens=1000), Held)
    stand.note(stand.gate.set_share(A, 300.0, whole=300.0, now=0.0))
    assert stand.leases["large"].why is AdmitWhy.OVERSIZE


def test_what_a_replica_asks_for_is_what_is_active_and_what_waits():
    stand = Stand(1)
    stand.arrive("a")
    stand.wait(3)
    stand.arrive("b")
    stand.wait(2)
    stand.arrive("c")
    asked = stand.gate.asked(A, now=stand.now)
    assert (asked.load, asked.wanted, asked.first, asked.waited_s) == (1, 2, 1, 2)


def test_a_paused_session_is_told():
    told = []
    stand = Stand(1, pause="eager", capacity=20_000)
    stand.gate.on_paused(lambda pool, name: told.append((pool, name)))
    stand.arrive("s", tokens=900)
    stand.finish("s", prompt=900, completion=100)
    stand.gate.set_bounds(A, minimum=0.0, maximum=1e9, now=stand.now)
    stand.gate.resize(A, 0.0, now=stand.now)
    assert told == [(POOL, key("s"))]


def test_with_a_share_the_cache_counts_as_full_whatever_is_in_the_shadow():
    """Contexts that sessions leave there when they move are in nobody's shadow."""
    stand = thinking(0.5, capacity=1_000_000)
    stand.note(stand.gate.set_share(A, 2.0, whole=6.0, now=stand.now))
    assert isinstance(stand.arrive("waits", tokens=10_000), Held)  # with the whole window it would not wait
    assert stand.wait(1.1) == ["waits"]


@pytest.mark.parametrize("order", ["fifo", "furthest", "smallest"])
def test_what_is_asked_for_first_is_what_the_head_of_the_line_needs(order):
    stand = Stand(10_000, unit=TOKENS, capacity=100_000, order=order, max_wait_s=600)
    for name, tokens in (("large", 3000), ("small", 500)):
        stand.arrive(name, tokens=tokens)
        stand.finish(name, prompt=tokens, completion=10)
    for _ in range(2):
        stand.arrive("large", tokens=3000)
        stand.finish("large", prompt=3000, completion=10)
    stand.gate.set_share(A, 10.0, whole=30_000.0, hard=True, now=stand.now)
    stand.arrive("small", tokens=500)
    stand.wait(1)
    stand.arrive("large", tokens=3000)
    stand.wait(1)
    stand.arrive("new", tokens=100)
    asked = stand.gate.asked(A, now=stand.now)
    room = asked.load + asked.first
    assert stand.note(stand.gate.set_share(A, room - 1, whole=30_000.0, now=stand.now)) == []
    assert len(stand.note(stand.gate.set_share(A, room, whole=30_000.0, now=stand.now))) == 1


@pytest.mark.parametrize(
    ("elsewhere", "lost"),
    [
        (2.0, ["s0"]),  # five are active, and one more fits when one of them goes
        (1.0, []),  # one more fits as it is
        (9.0, []),  # were all idle places given up, still nobody would fit
    ],
)
def test_an_idle_place_is_given_up_for_another_replica_only_where_that_lets_somebody_in(elsewhere, lost):
    stand = Stand(3, capacity=20_000)
    told = []
    stand.gate.on_paused(lambda _pool, name: told.append(name.id))
    for name in ("s0", "s1", "s2"):
        stand.arrive(name, tokens=900)
    for name in ("s0", "s1"):
        stand.finish(name, prompt=900, completion=100)
    stand.gate.set_bounds(A, minimum=0.0, maximum=1e9, now=stand.now)
    share = {"whole": 5.0, "wanted_beside": elsewhere, "now": stand.now}
    for running in (30, 0):  # it was busy before
        stand.note(stand.gate.set_share(A, 2.0, elsewhere=running, **share))
    assert told == lost


@pytest.mark.parametrize("room", [1, 2], ids=["held", "running"])
def test_how_long_an_agent_was_away_is_learned_from_a_turn_that_comes_before_its_session(room):
    here, there = Stand(1, capacity=20_000), Stand(room, capacity=20_000, max_wait_s=600)
    here.arrive("s", tokens=900)
    here.finish("s", prompt=900, completion=100)
    there.arrive("other")
    here.wait(3)
    there.arrive("s", tokens=1000)
    there.wait(1)
    state = here.gate.session_state(POOL, key("s"), now=here.now)
    there.note(there.gate.take_in(state, place=1.0, now=there.now))
    assert there.gate.session_state(POOL, key("s"), now=there.now).think[0] == 1


def test_there_is_room_for_whom_nobody_knows_where_nobody_waits_and_a_usual_session_fits():
    stand = Stand(1, max_wait_s=600)
    assert stand.gate.has_room(POOL)
    stand.arrive("first")
    assert not stand.gate.has_room(POOL)
    stand.arrive("held")
    stand.resize(3)
    stand.finish("first")
    assert stand.gate.has_room(POOL)
