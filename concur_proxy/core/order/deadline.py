"""Earliest deadline first."""

from __future__ import annotations

from concur_proxy.core.order.base import Order
from concur_proxy.core.sessions import Turn

MOST_URGENT = 8
"""Urgencies beyond this, either way, count alike."""


class Deadline(Order):
    """A turn is due when its client says so (``deadline_s``), else when it would be refused.

    Each step of urgency halves the time until then. Paused sessions have their head start.
    """

    def rank(self, turn: Turn) -> tuple[int, float]:
        facts = turn.facts
        within = turn.deadline - turn.arrived_at
        if facts.deadline_s is not None:
            within = min(within, facts.deadline_s)
        if facts.urgency:
            within *= 2.0 ** -max(-MOST_URGENT, min(facts.urgency, MOST_URGENT))
        start = self.head_start_s if turn.session.was_active else 0.0
        return 1, turn.first_arrived_at + within - start
