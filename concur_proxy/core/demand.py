"""What one gate would have of a window that it shares with other replicas."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import islice
from typing import Final

from concur_proxy.core import placement
from concur_proxy.core.backend import Backend
from concur_proxy.core.ledger import Ledger
from concur_proxy.core.order.base import HEAD_START, fifo_key
from concur_proxy.core.sessions import Turn

SAMPLE: Final = 64
"""Held turns that are looked at one by one; the others count as these do on average."""


class Asked:
    """Amounts in the window's unit: what is active, what held turns would add, and the one that has waited longest."""

    __slots__ = ("first", "load", "waited_s", "wanted")

    def __init__(self, load: float) -> None:
        self.load = load
        self.wanted = 0.0
        self.first = 0.0
        self.waited_s = -1.0
        """With the head start of paused sessions; -1 where nothing waits for this backend."""


def of(backend: Backend, turns: Iterable[Turn], held: int, ledger: Ledger, *, now: float) -> Asked:
    """``turns``: those that are held, the first that came first. ``held``: how many of them wait in this pool."""
    asked = Asked(float(backend.load))
    seen = mine = 0
    for turn in islice(turns, SAMPLE):
        if turn.lane is None or turn.facts.pool != backend.pool:
            continue
        seen += 1
        if placement.home(turn) in {None, backend} and backend.id not in turn.avoid:
            mine += 1
            _add(asked, turn, float(backend.charge_new(turn.session, ledger.tokens(turn, backend))), now)
    if mine:
        asked.wanted *= max(1.0, held / seen)
        if math.isfinite(backend.whole) and backend.whole:
            asked.first = min(asked.first, backend.whole)
    return asked


def _add(asked: Asked, turn: Turn, charge: float, now: float) -> None:
    asked.wanted += charge
    head_start_s = HEAD_START * (turn.deadline - turn.arrived_at)
    waited_s = now - fifo_key(turn, head_start_s)
    if waited_s > asked.waited_s:
        asked.waited_s, asked.first = max(0.0, waited_s), charge
