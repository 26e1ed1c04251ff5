"""What one gate would have of a window that it shares with other replicas."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import islice
from typing import Final

from concur_proxy.core import placement
from concur_proxy.core.backend import Backend
from concur_proxy.core.ledger import Ledger
from concur_proxy.core.ordering import Line
from concur_proxy.core.sessions import Turn

SAMPLE: Final = 64
"""Held turns that are looked at one by one; the others count as these do on average."""


class Asked:
    """Amounts in the window's unit: what is active, what held turns would add, and the one that goes first."""

    __slots__ = ("first", "load", "oldest_s", "rank", "resident", "waited_s", "wanted")

    def __init__(self, load: float, resident: int, oldest_s: float) -> None:
        self.load = load
        self.resident = resident
        """Tokens of contexts in the cache, shared prefixes apart."""
        self.oldest_s = oldest_s
        """For how long the one has not been used that is evicted next; 0 where there is none."""
        self.wanted = 0.0
        self.first = 0.0
        self.rank = 0
        """Of the one that goes first, in the order of held turns; a smaller one goes before all others."""
        self.waited_s = -1.0
        """By that one, with the head start that the order gives it; -1 where nothing waits for this backend."""


def of(backend: Backend, turns: Iterable[Turn], line: Line | None, ledger: Ledger, *, now: float) -> Asked:
    """``turns``: those that are held, the first that came first. ``line``: that of their pool."""
    shadow = backend.shadow
    used_at = shadow.oldest_used_at
    asked = Asked(float(backend.load), shadow.own_tokens, 0.0 if used_at is None else now - used_at)
    seen = mine = 0
    for turn in islice(turns, SAMPLE):
        if turn.lane is None or turn.facts.pool != backend.pool:
            continue
        seen += 1
        if placement.home(turn) in {None, backend} and backend.id not in turn.avoid:
            mine += 1
            asked.wanted += float(backend.charge_new(turn.session, ledger.tokens(turn, backend)))
    if mine and line is not None:
        asked.wanted *= max(1.0, line.waiting / seen)
        _see_first(asked, backend, line, ledger, now)
    return asked


def _see_first(asked: Asked, backend: Backend, line: Line, ledger: Ledger, now: float) -> None:
    turn = line.first((backend.id,))
    if turn is None:
        return
    asked.rank, since = line.standing(turn)
    asked.waited_s = max(0.0, now - since)
    asked.first = float(backend.charge_new(turn.session, ledger.tokens(turn, backend)))
    if math.isfinite(backend.whole) and backend.whole:
        asked.first = min(asked.first, backend.whole)
