from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.fleet.pool import DEFAULT_POOL, Fleet
from concur_proxy.model import BackendId, PoolId

A, B, C = (BackendId(name) for name in "abc")


def entries(*names):
    return [{"id": name, "object": "model", "root": f"/models/{name}"} for name in names]


def fleet(**served):
    of = Fleet()
    for backend in served:
        of.add(BackendId(backend))
    for backend, names in served.items():
        if names is not None:
            of.learn(BackendId(backend), entries(*names))
    return of


def test_backends_that_share_a_model_share_a_pool_also_through_others():
    of = fleet(a=["m"], b=["n"], c=["m", "n"])
    assert of.pools() == {DEFAULT_POOL: (A, B, C)}


def test_backends_that_share_nothing_have_pools_of_their_own():
    of = fleet(a=["m"], b=["n"], c=["n", "adapter"])
    assert of.pools() == {DEFAULT_POOL: (A,), PoolId("pool-b"): (B, C)}
    assert of.resolve("m") == DEFAULT_POOL
    assert of.resolve("adapter") == PoolId("pool-b")


def test_a_backend_whose_models_nobody_knows_is_in_the_default_pool():
    of = fleet(a=["m"], b=["n"], c=None)
    assert of.pool_of(C) == DEFAULT_POOL
    assert of.pool_of(B) == PoolId("pool-b")


def test_backends_that_are_not_up_yet_stand_beside_the_first_that_is():
    of = fleet(a=None, b=["m"], c=["m"])
    assert of.pools() == {DEFAULT_POOL: (A, B, C)}
    assert of.learn(A, entries("m")) == {}


def test_a_turn_that_names_no_model_goes_to_the_default_pool():
    assert fleet(a=["m"]).resolve(None) == DEFAULT_POOL
    assert Fleet().resolve(None) == DEFAULT_POOL


def test_an_unknown_model_is_refused_only_where_all_models_are_known():
    assert fleet(a=["m"], b=["n"]).resolve("x") is None
    assert fleet(a=["m"], b=None).resolve("x") == DEFAULT_POOL
    assert Fleet().resolve("x") == DEFAULT_POOL


def test_an_engine_that_serves_nothing_is_known_to():
    assert fleet(a=[]).resolve("x") is None


def test_only_what_changes_is_told():
    of = Fleet()
    assert of.add(A) == {A: DEFAULT_POOL}
    assert of.add(B) == {B: DEFAULT_POOL}
    assert of.learn(A, entries("m")) == {}
    assert of.learn(B, entries("n")) == {B: "pool-b"}
    assert of.learn(B, entries("n")) == {}
    assert of.learn(B, entries("n", "m")) == {B: DEFAULT_POOL}
    assert of.remove(A) == {}


def test_the_next_pool_is_the_default_when_the_first_is_gone_and_keeps_the_name_under_which_turns_wait():
    of = fleet(a=["m"], b=["n"], c=None)
    assert of.remove(A) == {C: PoolId("pool-b")}
    assert of.resolve("m") == PoolId("pool-b")  # perhaps c serves it
    assert of.resolve("n") == of.resolve(None) == PoolId("pool-b")


def test_one_that_is_known_late_takes_no_name_away():
    of = fleet(a=None, b=["n"])
    assert of.learn(A, entries("m")) == {A: PoolId("pool-a")}
    assert of.resolve("n") == DEFAULT_POOL
    assert of.resolve(None) == PoolId("pool-a")


def test_pools_that_grow_together_have_the_name_of_the_older_one_and_part_again_under_two():
    of = fleet(a=["m"], b=["n"])
    assert of.learn(B, entries("m", "n")) == {B: DEFAULT_POOL}
    assert of.learn(B, entries("n")) == {B: PoolId("pool-b")}


def test_a_pool_keeps_its_name_while_backends_are_replaced():
    of = fleet(a=["m"], b=["n"])
    of.add(C)
    of.learn(C, entries("n"))
    of.remove(B)
    assert of.resolve("n") == PoolId("pool-b")
    of.add(B)
    assert of.learn(B, entries("o")) == {B: PoolId("pool-b-2")}


def test_a_list_that_comes_late_from_a_removed_backend_brings_it_not_back():
    of = fleet(a=["m"])
    of.remove(A)
    assert of.learn(A, entries("m")) == {}
    assert of.pools() == {}


def test_a_backend_named_like_the_default_pool_has_a_pool_of_its_own():
    of = fleet(a=["m"], default=["n"])
    assert of.pool_of(BackendId("default")) != DEFAULT_POOL


def test_models_are_listed_once_with_all_their_fields():
    of = fleet(a=["m", "adapter"], b=["n", "m"], c=None)
    of.learn(A, [{"id": "m", "max_model_len": 4096, "permission": [{"x": 1}]}, *entries("adapter")])
    assert of.models() == [
        {"id": "m", "max_model_len": 4096, "permission": [{"x": 1}]},
        *entries("adapter"),
        *entries("n"),
    ]


lists = st.none() | st.sets(st.sampled_from("mnopq"), max_size=3)


@given(st.dictionaries(st.sampled_from("abcdefg"), lists, max_size=7), st.sets(st.sampled_from("abcdefg")))
def test_pools_are_exactly_what_shared_models_connect(served, removed):
    of = fleet(**served)
    for backend in removed:
        of.remove(BackendId(backend))
    left = {backend: names for backend, names in served.items() if backend not in removed}
    pools = of.pools()
    assert sorted(member for members in pools.values() for member in members) == sorted(left)
    for backend, names in left.items():
        if names is None:
            assert of.pool_of(BackendId(backend)) == of.resolve(None)
        for name in names or ():
            assert of.resolve(name) == of.pool_of(BackendId(backend))
    for members in pools.values():
        assert _connected([left[member] for member in members if left[member] is not None] or [()])


@given(st.dictionaries(st.sampled_from("abcd"), lists, max_size=4), st.sets(st.sampled_from("abcd")))
def test_strangers_are_exactly_those_of_the_pool_that_list_models_without_this_one(served, removed):
    of = fleet(**served)
    kept = of.strangers
    for backend in removed:
        of.remove(BackendId(backend))
    left = {backend: names for backend, names in served.items() if backend not in removed and names is not None}
    wanted = {}
    for name in set().union(*left.values()):
        pool = [backend for backend in left if of.pool_of(BackendId(backend)) == of.resolve(name)]
        wanted[name] = {backend for backend in pool if name not in left[backend] and left[backend]}
    assert kept == {name: strangers for name, strangers in wanted.items() if strangers}


def _connected(sets):
    reached, rest = set(sets[0]), sets[1:]
    while touching := [names for names in rest if names & reached]:
        reached = reached.union(*touching)
        rest = [names for names in rest if not names & reached]
    return not rest
