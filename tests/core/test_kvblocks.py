"""What an engine tells of its blocks, against an engine that knows: what a prompt would find is what is told."""

from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.core.kvblocks import KNOWN, KvBlocks

BLOCK = 16


def test_a_context_grows_and_loses_blocks():
    blocks = KvBlocks()
    assert blocks.resident("a") is None
    blocks.stored("a", [1, 2, 3], None, BLOCK)
    blocks.stored("a", [4, 5], 3, BLOCK)
    assert blocks.resident("a") == 5 * BLOCK
    blocks.removed([5, 4, 77])
    assert blocks.resident("a") == 3 * BLOCK
    blocks.stored("a", [6], 3, BLOCK)  # computed again, and goes on otherwise
    assert blocks.resident("a") == 4 * BLOCK
    blocks.cleared()
    assert blocks.resident("a") == 0


def test_what_is_found_in_the_cache_is_not_told_again():
    blocks = KvBlocks()
    blocks.stored("a", [1, 2, 3], None, BLOCK)
    blocks.stored("b", [4], 2, BLOCK)
    assert blocks.resident("b") == 3 * BLOCK
    blocks.stored("a", [9], None, BLOCK)  # begins anew: what "b" shares with it stays
    assert blocks.resident("b") == 3 * BLOCK
    blocks.removed([2])
    assert (blocks.resident("a"), blocks.resident("b")) == (BLOCK, 2 * BLOCK)


def test_contexts_whose_beginning_was_missed_are_not_known():
    blocks = KvBlocks()
    blocks.stored("a", [8, 9], 7, BLOCK)
    assert blocks.resident("a") is None
    blocks.stored("a", [1, 2], None, BLOCK)
    blocks.forget()
    blocks.stored("a", [3], 2, BLOCK)
    assert blocks.resident("a") is None


def test_blocks_of_nobody_in_particular_are_passed_over():
    blocks = KvBlocks()
    blocks.stored(None, [1, 2], None, BLOCK)
    blocks.stored("a", [3], 2, BLOCK)
    assert blocks.resident("a") is None


def test_it_does_not_grow_without_bound():
    blocks = KvBlocks()
    for number in range(KNOWN + 50):
        blocks.stored(str(number), [number], None, BLOCK)
        blocks.removed([number])
    assert len(blocks._chains) == len(blocks._missing) == KNOWN
    assert not blocks._owners
    assert blocks.resident("0") is None


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 6), st.integers(0, 12), st.booleans()), max_size=60))
def test_it_is_what_the_next_turn_would_find(turns):
    """Each session grows by some blocks a turn, what was evicted is computed again; sessions share their beginning."""
    blocks, contexts, cached = KvBlocks(), {}, []
    for number, (name, grows, evicted, anew) in enumerate(turns):
        context = contexts.get(name, [("all", 0), ("all", 1)])
        if anew:
            context = context[:2]
        context = contexts[name] = [*context, *((name, number, more) for more in range(grows))]
        identities = [hash(tuple(context[: end + 1])) for end in range(len(context))]
        found = next((index for index, one in enumerate(identities) if one not in cached), len(identities))
        new = identities[found:]
        if new:
            blocks.stored(name, new, identities[found - 1] if found else None, BLOCK)
        for one in reversed(identities):  # least recently used first; of one context the end
            if one in cached:
                cached.remove(one)
            cached.append(one)
        gone, cached = cached[:evicted], cached[evicted:]
        blocks.removed(gone)
        for other, theirs in contexts.items():
            whole = [hash(tuple(theirs[: end + 1])) for end in range(len(theirs))]
            told = blocks.resident(other)
            assert told is not None
            there = [one in cached for one in whole]
            assert BLOCK * sum(there[2:]) <= told <= BLOCK * sum(there)
