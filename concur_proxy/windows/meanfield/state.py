"""What the law has learned, as a value that can be written to a file, and back with all of it checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from concur_proxy.windows.meanfield.costs import StepCosts
from concur_proxy.windows.meanfield.think import EDGES, ThinkTimes
from concur_proxy.windows.meanfield.turns import Sums, Turns

VERSION = 2
"""Of the form; another one is not read."""


def dump(turns: Turns, think: ThinkTimes, costs: StepCosts) -> dict[str, object]:
    return {"version": VERSION, "turns": turns.dump(), "think": think.dump(), "costs": costs.dump()}


def load(state: object, turns: Turns, think: ThinkTimes, costs: StepCosts) -> None:
    """Take over what ``dump`` gave; ValueError, and nothing taken over, where it is not that."""
    kept = _part(state, "the state")
    if kept.get("version") != VERSION:
        raise ValueError(f"the state is not of version {VERSION}")
    parts = [_part(kept.get(name), name) for name in ("turns", "think", "costs")]
    sums = {field.name: _number(parts[0], field.name) for field in fields(Sums)}
    weights, seconds = (_numbers(parts[1], name, len(EDGES)) for name in ("weights", "sums"))
    products, results = _numbers(parts[2], "products", 16), _numbers(parts[2], "results", 4)
    weight, busy_s = _number(parts[2], "weight"), _number(parts[2], "busy_s")
    turns.load(sums)
    think.load(weights, seconds)
    costs.load(products, results, weight, busy_s)


def _part(value: object, name: str) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    raise ValueError(f"{name} is not there")


def _number(part: Mapping[str, Any], name: str) -> float:
    return _checked(part.get(name), name)


def _numbers(part: Mapping[str, Any], name: str, count: int) -> list[float]:
    values = part.get(name)
    if not isinstance(values, list) or len(values) != count:
        raise ValueError(f"{name} is not a list of {count} numbers")
    return [_checked(value, name) for value in values]


def _checked(value: object, name: str) -> float:
    """Everything that is kept is a sum of what is never negative."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{name} is not a number of 0 or more")
    return float(value)
