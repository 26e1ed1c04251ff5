"""The shadow of an engine's prefix cache: what is evicted, what is warm, how it is corrected."""

from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.core.sessions import Session
from concur_proxy.core.shadow import LEAST_TRUST, MOST_TRUST, Shadow
from concur_proxy.core.shared import PrefixSizes
from concur_proxy.model import Held
from tests.core.stand import POOL, A, B, Stand, key


def session(name, prefix=None):
    return Session(key(name), POOL, prefix_key=prefix)


def shadow(capacity, sizes=None):
    made = Shadow(sizes or PrefixSizes())
    made.set_capacity(capacity)
    return made


def use(cache, one, tokens):
    """A turn of ``one`` from start to end."""
    return [*cache.start(one, tokens), *cache.end(one, tokens, tokens)]


def test_the_context_released_longest_ago_goes_first_and_by_blocks_not_whole():
    cache = shadow(1000)
    old, young, new = session("old"), session("young"), session("new")
    use(cache, old, 400)
    use(cache, young, 400)
    use(cache, new, 300)
    assert (cache.resident(old), cache.resident(young), cache.resident(new)) == (300, 400, 300)
    assert cache.is_warm(old)
    assert use(cache, session("more"), 150) == [old]  # 150 of 400 are left: it has just turned cold
    assert (cache.is_warm(old), cache.is_warm(young)) == (False, True)


def test_a_turn_makes_its_session_the_newest():
    cache = shadow(1000)
    one, two = session("one"), session("two")
    use(cache, one, 400)
    use(cache, two, 400)
    use(cache, one, 400)
    use(cache, session("three"), 400)
    assert (cache.is_warm(one), cache.is_warm(two)) == (True, False)


def test_what_runs_is_never_evicted():
    cache = shadow(1000)
    runs = session("runs")
    cache.start(runs, 900)
    idle = session("idle")
    use(cache, idle, 500)
    assert cache.is_warm(runs)
    assert not cache.is_warm(idle)


def test_parallel_turns_pin_together_and_leave_one_context():
    cache = shadow(1000)
    one = session("one")
    cache.start(one, 300)
    cache.start(one, 200)
    cache.end(one, 300, 350)
    assert (cache.tokens, cache.is_warm(one)) == (200, True)
    cache.end(one, 200, 350)
    assert (cache.tokens, cache.resident(one)) == (350, 350)


def test_a_turn_that_computed_nothing_leaves_nothing():
    cache = shadow(1000)
    one = session("one")
    cache.start(one, 300)
    cache.end(one, 300, 0)
    assert (cache.tokens, len(cache), cache.is_warm(one)) == (0, 0, False)


def test_without_a_capacity_only_what_runs_is_warm():
    cache = shadow(None)
    one = session("one")
    cache.start(one, 300)
    assert cache.is_warm(one)
    cache.end(one, 300, 300)
    assert (cache.is_warm(one), len(cache)) == (False, 0)


def test_a_smaller_capacity_evicts_at_once_and_says_whom():
    cache = shadow(1000)
    one = session("one")
    use(cache, one, 400)
    assert cache.set_capacity(100) == [one]
    assert cache.resident(one) == 100
    cache.set_capacity(None)
    assert len(cache) == 0


def test_a_flush_leaves_what_runs():
    cache = shadow(1000)
    runs, idle = session("runs"), session("idle")
    cache.start(runs, 100)
    use(cache, idle, 100)
    assert cache.flush() == [idle]
    assert (cache.tokens, cache.is_warm(runs), cache.is_warm(idle)) == (100, True, False)


def test_a_shared_prefix_is_there_once():
    sizes = PrefixSizes()
    sizes.learn(1, 500)
    cache = shadow(1000, sizes)
    members = [session(str(number), prefix=1) for number in range(4)]
    for one in members:
        use(cache, one, 100)
    assert cache.tokens == 900
    assert all(cache.is_warm(one) for one in members)
    cache.resize_prefix(1, 300)
    assert cache.tokens == 700
    cache.flush()
    assert cache.tokens == 0


def test_answers_correct_the_trust_in_the_capacity():
    cache = shadow(1000)
    one, two = session("one"), session("two")
    use(cache, one, 500)
    use(cache, two, 500)
    for _ in range(20):
        cache.correct(believed_warm=True, found_warm=False)
    use(cache, two, 500)
    assert not cache.is_warm(one)
    before = cache.trust
    cache.correct(believed_warm=False, found_warm=False)
    assert cache.trust == before
    for _ in range(500):
        cache.correct(believed_warm=True, found_warm=False)
    assert cache.trust == LEAST_TRUST
    for _ in range(500):
        cache.correct(believed_warm=False, found_warm=True)
    assert cache.trust == MOST_TRUST


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 600), st.booleans()), max_size=60),
    st.sampled_from([50, 500, 2000]),
)
def test_idle_contexts_fit_beside_what_runs(turns, capacity):
    """Invariants 9 and 10: evicted exactly as much as needed, counted as what is there."""
    sizes = PrefixSizes()
    sizes.learn(0, 40)
    cache = shadow(capacity, sizes)
    sessions = [session(str(number), prefix=0 if number % 2 else None) for number in range(6)]
    running = {}
    for number, tokens, ends in turns:
        one = sessions[number]
        if one in running and ends:
            cache.end(one, running.pop(one), tokens)
        elif one not in running:
            running[one] = tokens
            cache.start(one, tokens)
        used = [each for each in sessions if cache.resident(each)]
        resident = sum(cache.resident(each) for each in used)
        shared = 40 if any(each.prefix_key is not None for each in used) else 0
        assert cache.tokens == resident + shared
        pinned = sum(running.values())
        assert cache.tokens <= max(capacity, pinned + 40)
        assert all(cache.is_warm(each) for each in running)


def test_contexts_found_where_they_were_believed_bring_trust_back_up_to_the_whole():
    cache = shadow(1000)
    for _ in range(20):
        cache.correct(believed_warm=True, found_warm=False)
    low = cache.trust
    for _ in range(10):
        cache.correct(believed_warm=True, found_warm=True)
    assert low < cache.trust < 1.05 * low
    for _ in range(2000):
        cache.correct(believed_warm=True, found_warm=True)
    assert cache.trust == 1.0
    cache.correct(believed_warm=False, found_warm=True)
    above = cache.trust
    cache.correct(believed_warm=True, found_warm=True)
    assert cache.trust == above > 1.0


def test_a_shadow_believes_the_engine_in_what_is_left():
    stand = Stand(4, capacity=1000)
    for name in ("told", "untold"):
        stand.run(name, prompt=400)
    stand.arrive("works")
    stand.gate.follow_cache(A, {"told": 100}.get, now=stand.now)
    shadow = next(stand.gate._pools.backends()).shadow
    warm = {session.key.id: shadow.is_warm(session) for session in stand.gate._intake.sessions.newest_first()}
    assert (warm["told"], warm["untold"]) == (False, True)
    stand.gate.follow_cache(A, {"told": 9999}.get, now=stand.now)
    told = next(session for session in shadow._idle if session.key.id == "told")
    assert shadow.resident(told) == 400
    stand.gate.set_capacity(A, 450.0, now=stand.now)
    assert shadow.resident(told) == 400  # what the model would evict first
    stand.gate.follow_cache(A, {}.get, now=stand.now)
    assert shadow.resident(told) < 400  # nobody tells any more


def test_a_turn_whose_context_is_gone_by_the_engines_word_may_go_elsewhere():
    stand = Stand(1, 1, capacity=10_000)
    stand.run("agent", prompt=1000, avoid=frozenset({B}))
    stand.arrive("works", avoid=frozenset({B}), tokens=100)
    stand.wait(5.0)  # it has taken the place of "agent"
    assert isinstance(stand.arrive("agent"), Held)
    assert stand.note(stand.gate.follow_cache(A, {"agent": 0}.get, now=stand.now)) == ["agent"]
    assert stand.leases["agent"].backend == B


def told(capacity, tokens):
    """Three sessions that have left so much, of which the engine tells."""
    one = shadow(capacity)
    for name in ("a", "b", "c"):
        who = session(name)
        one.start(who, tokens)
        one.end(who, tokens, tokens)
        one.follow(lambda _: tokens)
    return one


def test_an_engine_that_evicts_beside_room_has_less_of_it_for_us():
    """Others use it, too. An eviction that was due tells nothing."""
    due, early = told(1000, 500), told(1000, 100)
    due.follow({"a": 0, "b": 500, "c": 500}.get)
    early.follow({"a": 0, "b": 100, "c": 100}.get)
    assert due.trust == 1.0
    assert early.trust < 1.0


def test_who_has_just_ended_is_warm_until_the_engine_tells_otherwise():
    one = told(1000, 500)
    who = session("d")
    one.start(who, 500)
    one.end(who, 500, 500)
    assert one.is_warm(who)
    one.follow({"a": 500, "b": 500, "c": 500}.get)  # nothing of "d": reckoned like any other
    assert not one.is_warm(who)
