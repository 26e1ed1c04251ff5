"""A hot lane for interactive work, a cold one for batch work that uses whatever is idle.

Turns whose client asks for less than usual urgency are cold. Hot ones go first, and have a share of every window to
themselves (``gate.hot_share``): a hot turn finds room at once while hot ones have not filled it. A cold turn that is
overdue goes before hot ones, but not into their share.
"""

from __future__ import annotations

from concur_proxy.core.order.base import Order, fifo_key
from concur_proxy.core.sessions import Turn

HOT, COLD = 1, 2


class Lanes(Order):
    """First come, first served in each lane."""

    def rank(self, turn: Turn) -> tuple[int, float]:
        return COLD if turn.session.cold else HOT, fifo_key(turn, self.head_start_s)

    def is_cold(self, turn: Turn) -> bool:
        return turn.session.cold
