"""The proxy's history as JSON. A long one is read in parts, so that no turn waits for it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from dataclasses import dataclass

from concur_proxy.admin.reports import HistoryReport, Series
from concur_proxy.errors import BackendNotFoundError
from concur_proxy.history import INTERVAL_S, History, Moment, Ring

AT_ONCE = 120
"""Moments read without a pause: less than a millisecond."""
DIGITS = 4


@dataclass(frozen=True, slots=True)
class Past:
    """The history, and the present by its own clock and by the calendar's."""

    history: History
    now: float
    epoch_s: float
    present: frozenset[str] = frozenset()
    """The backends that there are now; of a new one nothing is remembered yet."""


async def report(past: Past, *, backend: str | None, span_s: float, points: int) -> HistoryReport:
    """Return the last ``span_s`` in at most ``points`` moments. ``BackendNotFoundError`` for one that is not known."""
    ring = past.history.ring(backend)
    if ring is None and backend in past.present:
        ring = Ring(1)
    if ring is None:
        raise BackendNotFoundError(f"Nothing is known of a backend {backend!r}.", param="backend")
    start, step = past.now - span_s, span_s / points
    parts = max(1, int(AT_ONCE * INTERVAL_S / step))
    found: list[tuple[float, Moment]] = []
    for first in range(0, points, parts):
        last = min(first + parts, points)
        found += ring.thinned(start + step * first, start + step * last, last - first)
        await asyncio.sleep(0)
    return HistoryReport(
        now=past.epoch_s,
        interval_s=INTERVAL_S,
        span_s=span_s,
        backend=backend,
        backends=sorted({*past.history.backends, *past.present}),
        at=[round(past.epoch_s - (past.now - at), 1) for at, _ in found],
        series=_series([moment for _, moment in found]),
    )


def _series(moments: list[Moment]) -> dict[str, Series]:
    columns = zip(*moments, strict=True) if moments else ((),) * len(Moment._fields)
    series = {name: _plain(column) for name, column in zip(Moment._fields, columns, strict=True)}
    return {**series, "hit_rate": _plain(moment.hit_rate for moment in moments)}


def _plain(column: Iterable[float]) -> Series:
    return [round(value, DIGITS) if math.isfinite(value) else None for value in column]
