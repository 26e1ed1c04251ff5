"""Which requests are sent again after an engine failed before any byte of its answer, and how many of them. Pure.

One that was never sent may always go again. One that may have been executed may where that does no harm, and
generation where the operator says so. All together within a budget: when engines fail under a whole fleet, tries
beyond the first must not double what the rest has to do.
"""

from __future__ import annotations

from typing import Final

from concur_proxy.gateway.paths import Kind

RESERVE: Final = 10.0
"""Tries that a budget has at the start, however little traffic there was."""
MOST: Final = 100.0
"""Tries that it saves up."""

SAME_PAUSE_S: Final = 0.25
"""Before a turn goes to the backend again that has failed it, where there is no other."""

_HARMLESS: Final = frozenset(
    {
        Kind.COUNT_TOKENS,
        Kind.EMBEDDINGS,
        Kind.RERANK,
        Kind.SCORE,
        Kind.TOKENIZE,
        Kind.DETOKENIZE,
        Kind.POOLING,
        Kind.CLASSIFY,
    }
)
_GENERATING: Final = frozenset({Kind.CHAT, Kind.COMPLETIONS, Kind.RESPONSES, Kind.MESSAGES, Kind.AUDIO, Kind.IMAGES})
_READING: Final = frozenset({b"GET", b"HEAD", b"OPTIONS"})


def may_repeat(kind: Kind, method: bytes, *, generation: bool) -> bool:
    """Tell whether a request may be sent again although the engine may have executed it."""
    return kind in _HARMLESS or method in _READING or (generation and kind in _GENERATING)


class RetryBudget:
    """Tries beyond the first: ``share`` of the requests, saved up to ``MOST``; a share of 0 allows none."""

    __slots__ = ("_left", "_seen", "_share", "refused", "resumed", "taken")

    def __init__(self, share: float) -> None:
        self._share = share
        self._left = RESERVE if share > 0.0 else 0.0
        self._seen = 0
        self.taken = 0
        self.refused = 0
        self.resumed = 0
        """Of those taken, streams that went on in the middle."""

    def counts(self) -> dict[str, int]:
        """Return what became of requests that engines failed."""
        return {"sent_again": self.taken - self.resumed, "resumed": self.resumed, "over_budget": self.refused}

    def take(self, requests: int) -> bool:
        """Tell whether one more may be sent again, now that there have been so many requests."""
        self._left = min(MOST, self._left + self._share * (requests - self._seen))
        self._seen = requests
        if self._left < 1.0:
            self.refused += 1
            return False
        self._left -= 1.0
        self.taken += 1
        return True
