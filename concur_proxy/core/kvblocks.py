"""Which blocks of their contexts sessions still have in one engine's cache, as the engine tells it block by block.

An engine that publishes its KV events says of each block that it stores which session it was computed for and which
block it follows, and names those that it has removed. Blocks that a request has found in the cache are not told again:
a context that begins with those of another session is followed back through them. One that several share, and that is
computed again after it was removed, counts for the session that it was computed for.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

Block = int | bytes
"""What the engine calls it by."""

KNOWN: Final = 10_000
"""Sessions that are remembered; those that were told of longest ago are forgotten."""


class KvBlocks:
    """One engine's cache. What has been stored before its first event is not known."""

    __slots__ = ("_chains", "_missing", "_owners", "block_tokens")

    def __init__(self) -> None:
        self.block_tokens = 0
        self._chains: OrderedDict[str, list[Block]] = OrderedDict()
        """The blocks of each session's newest context, in order; the last one is there."""
        self._missing: dict[str, int] = {}
        """How many of them have been removed."""
        self._owners: dict[Block, set[str]] = {}
        """Of the blocks that are there."""

    def stored(self, session: str | None, blocks: Sequence[Block], after: Block | None, block_tokens: int) -> None:
        """``blocks`` are there now; they follow ``after``, or begin a context."""
        if session is None or not blocks:
            return
        self.block_tokens = block_tokens
        own = self._chains.get(session)
        if own and own[-1] == after:
            self._append(session, own, blocks)
            return
        begins_with = self._up_to(session, after)
        there = [block for block in begins_with or () if block in self._owners]
        self._forget(session)
        if begins_with is None:
            return
        self._chains[session] = list(begins_with)
        self._missing[session] = len(begins_with) - len(there)
        self._own(session, there)
        self._append(session, self._chains[session], blocks)
        if len(self._chains) > KNOWN:
            self._forget(next(iter(self._chains)))

    def _append(self, session: str, chain: list[Block], blocks: Sequence[Block]) -> None:
        chain += blocks
        self._own(session, blocks)

    def _own(self, session: str, blocks: Sequence[Block]) -> None:
        for block in blocks:
            self._owners.setdefault(block, set()).add(session)

    def removed(self, blocks: Sequence[Block]) -> None:
        for block in blocks:
            for session in self._owners.pop(block, ()):
                self._missing[session] += 1
                self._trim(session)

    def _trim(self, session: str) -> None:
        """Forget what is missing at the end of a context: it is told again when it is computed again."""
        chain = self._chains[session]
        while chain and session not in self._owners.get(chain[-1], ()):
            chain.pop()
            self._missing[session] -= 1

    def cleared(self) -> None:
        """Nothing is there any more."""
        self.removed(list(self._owners))

    def forget(self) -> None:
        """Some events were missed: nothing is known any more."""
        self._chains.clear()
        self._missing.clear()
        self._owners.clear()

    def resident(self, session: str) -> int | None:
        """Return how many tokens of a session's context are there; None where that is not known."""
        chain = self._chains.get(session)
        return None if chain is None else (len(chain) - self._missing[session]) * self.block_tokens

    def _up_to(self, session: str, block: Block | None) -> list[Block] | None:
        """Return what of a context comes up to ``block``: its own, or another's that begins alike; None: not known."""
        if block is None:
            return []
        for name in (session, *self._owners.get(block, ())):
            chain = self._chains.get(name)
            if not chain:
                continue
            if chain[-1] == block:
                return chain
            if block in chain:
                return chain[: chain.index(block) + 1]
        return None

    def _forget(self, session: str) -> None:
        for block in self._chains.pop(session, ()):
            owners = self._owners.get(block)
            if owners is not None:
                owners.discard(session)
                if not owners:
                    del self._owners[block]
        self._missing.pop(session, None)
