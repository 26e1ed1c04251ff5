"""A backend's control state as people and programs read it: plain values, None for unknown and for no limit."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from concur_proxy.core.regulator import Regulator


def describe(regulator: Regulator, *, kind: str | None, problem: str | None, now: float) -> dict[str, object]:
    """Return what is known of one backend, ready for JSON."""
    latest = regulator.tracker.latest
    verdict, bounds = regulator.verdict, regulator.bounds
    return {
        "kind": kind,
        "scrape_error": problem,
        "sample_age_s": plain(now - latest.at) if latest else None,
        "capacity_tokens": plain(regulator.capacity),
        "kv_usage_mean": plain(latest.kv_usage_mean) if latest else None,
        "window": plain(verdict.window),
        "hard": verdict.hard,
        "reason": verdict.reason,
        "window_min": plain(bounds.minimum),
        "window_max": plain(bounds.maximum),
        "set_by_operator": regulator.operator_window is not None,
        "signals": plain(dataclasses.asdict(regulator.signals)),
        "law": plain(regulator.law_snapshot()),
    }


def plain(value: object) -> object:
    """Return ``value`` with numbers that JSON does not have (infinite, NaN) as None, and all containers plain."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
