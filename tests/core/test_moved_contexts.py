"""What a shadow believes of contexts whose sessions come from another replica: as old as they are, and no newer."""

from hypothesis import given
from hypothesis import strategies as st

from tests.core.test_shadow import session, shadow, use


def used(name, at):
    one = session(name)
    one.finished_at = at
    return one


def test_a_context_that_moves_is_as_old_as_it_is():
    cache = shadow(1000)
    old, young = used("old", 10.0), used("young", 20.0)
    use(cache, young, 400)
    cache.take_in(old, 400)
    assert cache.is_warm(old)
    use(cache, used("new", 30.0), 500)
    assert (cache.is_warm(old), cache.is_warm(young)) == (False, True)


def test_it_is_gone_where_one_that_was_used_later_is():
    cache = shadow(1000)
    use(cache, used("evicted", 20.0), 600)
    use(cache, used("new", 30.0), 900)
    older, newer = used("older", 19.0), used("newer", 21.0)
    for one in (older, newer):
        cache.take_in(one, 50)
    assert (cache.is_warm(older), cache.is_warm(newer)) == (False, True)


def test_a_flush_takes_the_contexts_of_others_along():
    cache = shadow(1000)
    use(cache, used("ours", 20.0), 600)
    cache.flush()
    theirs = used("theirs", 19.0)
    cache.take_in(theirs, 50)
    assert not cache.is_warm(theirs)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 400), st.booleans()), max_size=30))
def test_the_order_of_use_and_the_sum_hold_whoever_comes_from_where(steps):
    cache, now = shadow(1000), 100.0
    seen = []
    for number, (age, tokens, moves) in enumerate(steps):
        now += 1.0
        one = used(f"s{number}", now - age if moves else now)
        if moves:
            cache.take_in(one, tokens)
        else:
            use(cache, one, tokens)
        seen.append(one)
        assert cache.tokens == sum(cache.resident(each) for each in seen) <= 1000
        left = [each.finished_at for each in cache._idle]
        assert left == sorted(left)
