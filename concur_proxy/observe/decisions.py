"""What the laws decide, a line for each change of a window that matters; small steps add up, and are told together."""

from __future__ import annotations

import logging
import math

from concur_proxy.model import BackendId

WORTH_TELLING = 0.1
"""Change against the window that was told last."""

logger = logging.getLogger(__name__)


class DecisionLog:
    """Knows the window of each backend that was told last."""

    def __init__(self) -> None:
        self._told: dict[BackendId, float] = {}

    def moved(self, backend: BackendId, before: float, after: float, *, unit: str, reason: str) -> None:
        """Take in a change; ``before`` counts where nothing of this backend has been told yet."""
        last = self._told.setdefault(backend, before)
        if math.isfinite(last) and abs(after - last) <= WORTH_TELLING * last:
            return
        self._told[backend] = after
        logger.info("window of %s: %s to %s %s: %s", backend, _number(last), _number(after), unit, reason)


def _number(window: float) -> str:
    return f"{window:,.1f}" if window < 1000 else f"{window:,.0f}"
