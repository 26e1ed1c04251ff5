"""Whoever has got furthest goes first: agents end one after another instead of all of them at last."""

from __future__ import annotations

from typing import Final

from concur_proxy.core.order.base import Order, class_of, fifo_key
from concur_proxy.core.sessions import Turn

TURN_S: Final = 86_400.0
"""Head start for each turn done, longer than any turn waits: arrival decides among those that have done as many."""


class Furthest(Order):
    """Most turns first. Paused sessions before new ones.

    Those that are likely to end soonest keep the places that there are, so that few agents wait, and for long, instead
    of all of them in turns, each time with a context to compute again. It is the shortest remaining time first, as far
    as turns tell that (L. Schrage, "A proof of the optimality of the shortest remaining processing time discipline",
    1968).
    """

    by_time = True

    def rank(self, turn: Turn) -> tuple[int, float]:
        return class_of(turn.session), fifo_key(turn, self.head_start_s) - TURN_S * turn.session.turns
