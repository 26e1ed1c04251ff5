"""The KV cache of one engine: a pool of blocks that are counted, shared and reused, with vLLM's rules.

- A block holds the keys and values of ``block_size`` tokens. Block 0 is the null block: it exists, nobody gets it.
- A full block is *registered* under a hash of its content and of everything before it. Requests that start with the
  same tokens share it: each holds a reference.
- A block without references is free, but keeps its content until somebody needs the space: the free queue is an LRU
  list. New blocks come from its front. Released blocks go to its tail, a request's last block first, so that a long
  context loses its end before its beginning. Blocks that were never full are of no use to others and go to the front.
- Two requests that compute the same content at the same time fill two blocks with one hash; they are not merged.

Invariant 10: used + free + 1 (the null block) = total.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice
from typing import cast

NULL_BLOCK = 0
_LOOKUP_STRIDE = 256
"""Blocks looked up at once: the look-up runs at the speed of ``map``, yet a cold request pays for one stride only."""


class BlockPool:
    """All blocks of one engine. Every operation costs time in proportion to the blocks it names."""

    __slots__ = ("_cached", "_free", "_further", "_hash_of", "_twins", "block_size", "evictions", "total")

    def __init__(self, total: int, block_size: int) -> None:
        """``total`` counts the null block, as ``num_gpu_blocks`` of vLLM does."""
        if total < 2 or block_size < 1:
            raise ValueError(f"a pool needs at least 2 blocks of at least 1 token, not {total} of {block_size}")
        self.total = total
        self.block_size = block_size
        self.evictions = 0
        """Registered blocks whose content was given up for new content."""
        self._further: dict[int, int] = {}
        """Block → references beyond the first."""
        self._hash_of: list[int | None] = [None] * total
        self._cached: dict[int, int] = {}
        self._twins: dict[int, list[int]] = {}
        """Hash → further blocks with the content of ``_cached[hash]``."""
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, total))

    @property
    def free(self) -> int:
        """Blocks without references; some of them may still hold content."""
        return len(self._free)

    @property
    def used(self) -> int:
        return self.total - 1 - len(self._free)

    @property
    def usage(self) -> float:
        """Share of the blocks that running requests hold, 0..1: ``vllm:kv_cache_usage_perc``."""
        return self.used / (self.total - 1)

    @property
    def registered(self) -> int:
        """Different full blocks that a new request could share."""
        return len(self._cached)

    def lookup(self, hashes: Sequence[int], limit: int) -> list[int]:
        """The blocks that hold the longest known beginning of ``hashes[:limit]``. Takes no reference."""
        found: list[int] = []
        for start in range(0, limit, _LOOKUP_STRIDE):
            stop = min(start + _LOOKUP_STRIDE, limit)
            blocks = list(map(self._cached.get, hashes[start:stop]))
            if None in blocks:
                blocks = blocks[: blocks.index(None)]
                stop = start
            found += cast("list[int]", blocks)
            if stop == start:
                break
        return found

    def idle(self, blocks: Sequence[int]) -> int:
        """How many of ``blocks`` are free: holding them takes that many out of the free queue."""
        return sum(map(self._free.__contains__, blocks))

    def hold(self, blocks: Sequence[int]) -> None:
        """Take one more reference on each block."""
        free, further = self._free, self._further
        for block in blocks:
            if block in free:
                del free[block]
            else:
                further[block] = further.get(block, 0) + 1

    def take(self, count: int) -> list[int]:
        """``count`` blocks from the front of the free queue, each with one reference; their old content is gone."""
        if count > len(self._free):
            raise ValueError(f"{count} blocks wanted, {len(self._free)} free")
        blocks = list(islice(self._free, count))
        free, hash_of = self._free, self._hash_of
        for block in blocks:
            del free[block]
            if hash_of[block] is not None:
                self._evict(block)
        return blocks

    def register(self, block: int, content: int) -> None:
        """Say that ``block``, held by the caller, is full and what is in it."""
        self._hash_of[block] = content
        if content in self._cached:
            self._twins.setdefault(content, []).append(block)
        else:
            self._cached[content] = block

    def release(self, blocks: Sequence[int]) -> None:
        """Give back one reference on each of a request's blocks, given in the order of its tokens."""
        free, hash_of = self._free, self._hash_of
        if not free.keys().isdisjoint(blocks):
            raise ValueError("a block was given back more often than it was taken")
        last = self._last_references(blocks) if self._further else blocks
        free.update(dict.fromkeys(reversed(last)))
        for block in [block for block in last if hash_of[block] is None]:
            free.move_to_end(block, last=False)

    def _last_references(self, blocks: Sequence[int]) -> list[int]:
        """Give back one reference where there are several; return the blocks that had only one."""
        further = self._further
        last: list[int] = []
        for block in blocks:
            more = further.get(block)
            if more is None:
                last.append(block)
            elif more == 1:
                del further[block]
            else:
                further[block] = more - 1
        return last

    def reset(self) -> bool:
        """Forget all content. False, and nothing happens, while a request holds blocks."""
        if self.used:
            return False
        self._cached.clear()
        self._twins.clear()
        self._hash_of = [None] * self.total
        return True

    def forget(self) -> None:
        """Forget all content that no request holds."""
        for block in self._free:
            if self._hash_of[block] is not None:
                self._evict(block)

    def references(self, block: int) -> int:
        return 0 if block in self._free or block == NULL_BLOCK else 1 + self._further.get(block, 0)

    def eviction_order(self) -> list[int]:
        """The free queue from its front: which block goes next."""
        return list(self._free)

    def _evict(self, block: int) -> None:
        content = self._hash_of[block]
        assert content is not None
        self._hash_of[block] = None
        self.evictions += 1
        twins = self._twins.get(content)
        if self._cached[content] != block:
            assert twins is not None
            twins.remove(block)
        elif twins:
            self._cached[content] = twins.pop(0)
        else:
            del self._cached[content]
        if twins is not None and not twins:
            del self._twins[content]
