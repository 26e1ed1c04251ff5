"""The block pool against a slow model of itself, and its rules one by one."""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from concur_proxy.sim.kvcache import NULL_BLOCK, BlockPool


class PoolMachine(RuleBasedStateMachine):
    """Requests take, share, fill and give back blocks; a list plays the free queue.

    Contents are small numbers so that requests meet: content n follows content n - 1 only.
    """

    TOTAL = 12

    def __init__(self):
        super().__init__()
        self.pool = BlockPool(self.TOTAL, 4)
        self.queue = list(range(1, self.TOTAL))
        self.content: dict[int, int] = {}
        self.held: list[list[int]] = []

    @rule(start=st.integers(0, 3), length=st.integers(1, 6), full=st.integers(0, 6))
    def request(self, start, length, full):
        hashes = [start * 100 + index for index in range(length)]
        hits = self.pool.lookup(hashes, length)
        assert [self.content[block] for block in hits] == hashes[: len(hits)]
        assert len(hits) == length or hashes[len(hits)] not in self.content.values()
        missing = length - len(hits)
        if missing + self.pool.idle(hits) > self.pool.free:
            return
        self.pool.hold(hits)
        self.queue = [block for block in self.queue if block not in hits]
        fresh = self.pool.take(missing)
        assert fresh == self.queue[:missing]
        del self.queue[:missing]
        for block in fresh:
            self.content.pop(block, None)
        blocks = hits + fresh
        for index in range(len(hits), min(full, length)):
            self.pool.register(blocks[index], hashes[index])
            self.content[blocks[index]] = hashes[index]
        self.held.append(blocks)

    @rule(data=st.data())
    def give_back(self, data):
        if not self.held:
            return
        blocks = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.pool.release(blocks)
        references = self.references()
        freed = [block for block in reversed(blocks) if not references[block]]
        self.queue = [b for b in freed if b not in self.content] + self.queue + [b for b in freed if b in self.content]

    @rule()
    def reset(self):
        assert self.pool.reset() is (not self.held)
        if not self.held:
            self.content.clear()

    def references(self):
        return Counter(block for blocks in self.held for block in blocks)

    @invariant()
    def invariant_10_blocks_are_conserved(self):
        assert self.pool.used + self.pool.free + 1 == self.TOTAL
        assert self.pool.used == len(self.references())

    @invariant()
    def references_are_those_of_the_holders(self):
        references = self.references()
        assert [self.pool.references(block) for block in range(self.TOTAL)] == [
            references[block] for block in range(self.TOTAL)
        ]

    @invariant()
    def eviction_order_is_the_models(self):
        assert self.pool.eviction_order() == self.queue
        assert NULL_BLOCK not in self.queue

    @invariant()
    def everything_registered_is_found_once(self):
        assert self.pool.registered == len(set(self.content.values()))


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def filled(pool: BlockPool, hashes: list[int]) -> list[int]:
    blocks = pool.take(len(hashes))
    for block, content in zip(blocks, hashes, strict=True):
        pool.register(block, content)
    return blocks


def test_the_null_block_is_never_handed_out():
    pool = BlockPool(4, 16)
    assert NULL_BLOCK not in pool.take(3)
    with pytest.raises(ValueError, match="1 blocks wanted, 0 free"):
        pool.take(1)


def test_the_end_of_the_oldest_context_goes_first():
    pool = BlockPool(7, 16)
    old, new = filled(pool, [1, 2, 3]), filled(pool, [11, 12, 13])
    pool.release(old)
    pool.release(new)
    pool.take(4)
    assert pool.lookup([1, 2, 3], 3) == []
    assert pool.lookup([11, 12, 13], 3) == new[:2]
    assert pool.evictions == 4


def test_a_hit_saves_a_context_from_eviction():
    pool = BlockPool(7, 16)
    old, new = filled(pool, [1, 2, 3]), filled(pool, [11, 12, 13])
    pool.release(old)
    pool.release(new)
    pool.hold(pool.lookup([1, 2, 3], 3))
    pool.release(old)
    pool.take(3)
    assert pool.lookup([1, 2, 3], 3) == old
    assert pool.lookup([11], 1) == []


def test_blocks_that_were_never_full_are_reused_before_cached_ones():
    pool = BlockPool(6, 16)
    pool.release(filled(pool, [1, 2]))
    pool.release(pool.take(3))
    pool.take(3)
    assert len(pool.lookup([1, 2], 2)) == 2


def test_a_shared_block_stays_while_one_holder_is_left():
    pool = BlockPool(4, 16)
    blocks = filled(pool, [1, 2])
    pool.hold(blocks)
    pool.release(blocks)
    assert pool.used == 2
    pool.release(blocks)
    assert pool.used == 0
    with pytest.raises(ValueError, match="more often than it was taken"):
        pool.release(blocks)


def test_content_computed_twice_survives_the_loss_of_either_copy():
    pool = BlockPool(3, 16)
    first, second = filled(pool, [7]), filled(pool, [7])
    assert pool.lookup([7], 1) == first
    pool.release(first)
    pool.take(1)
    assert pool.lookup([7], 1) == second
    pool.release(second)
    pool.take(1)
    assert pool.lookup([7], 1) == []


def test_reset_forgets_everything_but_only_when_nothing_is_held():
    pool = BlockPool(4, 16)
    blocks = filled(pool, [1, 2])
    assert not pool.reset()
    pool.release(blocks)
    assert pool.reset()
    assert pool.lookup([1, 2], 2) == []
    assert pool.free == 3


def test_a_long_lookup_ends_at_the_first_gap():
    pool = BlockPool(1001, 16)
    blocks = filled(pool, list(range(1000)))
    assert pool.lookup(range(1000), 900) == blocks[:900]
    assert pool.lookup([*range(600), -1, *range(601, 1000)], 1000) == blocks[:600]


@pytest.mark.parametrize(("total", "size"), [(1, 16), (8, 0)])
def test_a_pool_without_blocks_is_refused(total, size):
    with pytest.raises(ValueError, match="a pool needs"):
        BlockPool(total, size)
