"""What may change while the proxy runs: a flat view of ``control`` and ``gate``, checked by the settings tree itself.

Names and bounds are those of the tree; only the bounds of the window take a share of the present window, too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import ValidationError

from concur_proxy.admin.schemas import schema_of
from concur_proxy.config import ControlSettings, GateSettings, Section, Settings
from concur_proxy.config.problems import describe, unknown_key
from concur_proxy.errors import InvalidSettingError
from concur_proxy.windows.base import WindowView

CONTROL = ("law", "window_min", "window_max", "fixed", "aimd", "eviction", "pid", "footprint", "gradient")
GATE = (
    "mode",
    "pause",
    "max_wait_s",
    "force_after_max_wait",
    "max_held",
    "lease_min_s",
    "lease_max_s",
    "retry_after_s",
    "order",
    "hot_share",
    "hot_objective_s",
    "hot_window_s",
    "cold_refuse_after_s",
    "weights",
    "limits",
)
BOUNDS = ("window_min", "window_max")

SectionT = TypeVar("SectionT", bound=Section)

_SHARE = re.compile(r"(\d{1,4}(?:\.\d+)?)%")


@dataclass(frozen=True, slots=True)
class Change:
    """The settings from now on, and bounds given as shares: 0.5 for ``"50%"``."""

    settings: Settings
    names: frozenset[str]
    """What the caller named; everything else stays as it is."""
    shares: Mapping[str, float] = field(default_factory=dict)


def changeable(settings: Settings, in_force: Iterable[tuple[float, float]] = ()) -> dict[str, Any]:
    """Return what may change, with its values now; what is returned can be sent back, and changes nothing then.

    ``in_force``: minimum and maximum of each backend's window, which are in no setting where shares have led to them.
    A bound that backends differ in is left out.
    """
    control, gate = settings.control.model_dump(mode="json"), settings.gate.model_dump(mode="json")
    shown = {name: control[name] for name in CONTROL} | {name: gate[name] for name in GATE}
    for name, values in zip(BOUNDS, zip(*in_force, strict=True), strict=False):
        shown[name] = values[0] if math.isfinite(values[0]) else None
        if len(set(values)) > 1:
            del shown[name]
    return shown


def read_change(body: Any, now: Settings) -> Change:
    """Check a patch against the tree; raise ``InvalidSettingError`` with everything that is wrong with it."""
    if not isinstance(body, dict) or not body:
        raise InvalidSettingError('Give the settings to change as a JSON object, such as {"window_max": "50%"}.')
    problems = [f"{key}: {unknown_key(key, (*CONTROL, *GATE))}" for key in body if key not in (*CONTROL, *GATE)]
    shares = {name: _share(body[name]) for name in BOUNDS if _is_share(body.get(name))}
    given = {name: value for name, value in body.items() if name not in shares}
    control = _section(now.control, {name: given[name] for name in CONTROL if name in given}, problems)
    gate = _section(now.gate, {name: given[name] for name in GATE if name in given}, problems)
    if problems:
        raise InvalidSettingError("; ".join(problems))
    settings = now.model_copy(update={"control": control, "gate": gate})
    return Change(settings, frozenset(body), shares)


def _is_share(value: object) -> bool:
    return isinstance(value, str) and _SHARE.fullmatch(value) is not None


def _share(value: str) -> float:
    return float(value.removesuffix("%")) / 100


def _section(now: SectionT, patch: dict[str, Any], problems: list[str]) -> SectionT:
    """Return the section with ``patch`` laid over it; add to ``problems`` what the tree refuses."""
    values = now.model_dump()
    for name, value in patch.items():
        inner = isinstance(values[name], dict) and isinstance(value, dict)
        values[name] = {**values[name], **value} if inner else value
    try:
        return type(now).model_validate(values)
    except ValidationError as error:
        problems += [describe(detail, None, root=type(now)) for detail in error.errors()]
        return now


def bounds(change: Change, view: WindowView) -> tuple[float, float]:
    """Return minimum and maximum of one backend's window; shares are of its window, or of what is active if none.

    A bound that the change does not name stays as it is: a cap that an earlier share came to is in no setting.
    """
    base = view.window if math.isfinite(view.window) else float(view.active)
    control = change.settings.control
    least, most = view.minimum, view.maximum
    if "window_min" in change.names:
        least = max(1.0, base * change.shares["window_min"]) if "window_min" in change.shares else control.window_min
    if "window_max" in change.shares:
        most = max(1.0, base * change.shares["window_max"])
    elif "window_max" in change.names:
        most = math.inf if control.window_max is None else control.window_max
    return min(least, most), most


def change_schema() -> dict[str, Any]:
    """Return the JSON schema of a patch, for the OpenAPI page."""
    properties = _properties(ControlSettings, CONTROL) | _properties(GateSettings, GATE)
    share = {"type": "string", "pattern": f"^{_SHARE.pattern}$", "examples": ["50%"]}
    for name in BOUNDS:
        properties[name] = {"anyOf": [properties[name], share], "description": properties[name]["description"]}
    return {"type": "object", "additionalProperties": False, "minProperties": 1, "properties": properties}


def _properties(section: type[Section], names: tuple[str, ...]) -> dict[str, Any]:
    known = schema_of(section)["properties"]
    return {name: known[name] for name in names}
