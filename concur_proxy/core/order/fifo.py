"""First come, first served: paused sessions before new ones, each in turn."""

from __future__ import annotations

from concur_proxy.core.order.base import Order, fifo_key
from concur_proxy.core.sessions import Turn


class Fifo(Order):
    """Ages by itself: precedence is a head start in time, see ``fifo_key``."""

    ages = False
    by_time = True

    def rank(self, turn: Turn) -> tuple[int, float]:
        return 1, fifo_key(turn, self.head_start_s)
