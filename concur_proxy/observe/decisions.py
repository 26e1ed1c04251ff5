"""What the laws decide, a line for each change of a window that matters; small steps add up, and are told together."""

from __future__ import annotations

import logging
import math

from concur_proxy.model import BackendId, ColdLane, PoolId

COLD_LANE = {
    ColdLane.OPEN: "goes on",
    ColdLane.HELD: "is held back for interactive turns",
    ColdLane.REFUSED: "is refused, since interactive turns are still too slow",
}

WORTH_TELLING = 0.1
"""Change against the window that was told last."""

logger = logging.getLogger(__name__)


class DecisionLog:
    """Knows the window of each backend that was told last."""

    def __init__(self) -> None:
        self._told: dict[BackendId, tuple[float, str]] = {}

    def moved(self, backend: BackendId, before: float, after: float, *, unit: str, reason: str) -> None:
        """Take in a change; ``before`` counts where nothing of this backend has been told yet."""
        last, counted = self._told.setdefault(backend, (before, unit))
        if counted == unit and math.isfinite(last) and abs(after - last) <= WORTH_TELLING * last:
            return
        self._told[backend] = after, unit
        was = _number(last) if counted == unit else f"{_number(last)} {counted}"
        logger.info("window of %s: %s to %s %s: %s", backend, was, _number(after), unit, reason)

    @staticmethod
    def cold_lane(pool: PoolId, becomes: ColdLane, p99_s: float | None, *, objective_s: float) -> None:
        """Take in what becomes of batch work from now on."""
        fares = "nobody asks for anything" if p99_s is None else f"p99 to the first token {p99_s:.2f} s"
        words = COLD_LANE[becomes]
        level = logging.INFO if becomes is ColdLane.OPEN else logging.WARNING
        logger.log(level, "batch work in %s %s: %s, objective %g s", pool, words, fares, objective_s)


def _number(window: float) -> str:
    return f"{window:,.1f}" if window < 1000 else f"{window:,.0f}"
