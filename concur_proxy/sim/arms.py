"""What a run is controlled by: a law with its parameters, a cap on requests, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from concur_proxy.core.regulator import MakeLaw
from concur_proxy.errors import ConfigError
from concur_proxy.windows import LAWS, build_law

PAUSES = ("eager", "lazy")


@dataclass(frozen=True, slots=True)
class Arm:
    name: str
    """As a person writes it: ``aimd``, ``fixed:20``, ``requests:8``, ``aimd/eager``, ``fixed:20/smallest``."""
    make_law: MakeLaw
    names_sessions: bool = True
    """Without it every request stands for itself: a cap on requests in flight."""
    window: float | None = None
    """Of a constant window."""
    gate: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the gate that it brings along."""


def arm(text: str, params: Mapping[str, Any] | None = None) -> Arm:
    """Read an arm: a law's name, ``fixed:WINDOW``, or ``requests:N`` for at most N requests in flight per backend.

    What follows a slash is a way of pausing, ``eager`` or ``lazy``, or else the name of an order. ``params`` are the
    law's own. ConfigError says what is wrong.
    """
    plain, *ways = text.split("/")
    name, _, number = plain.partition(":")
    params = dict(params or {})
    if name not in (*LAWS, "requests"):
        raise ConfigError(f"{text}: no such law; there are {', '.join(LAWS)}, and requests:N caps requests in flight")
    law = "fixed" if name == "requests" else name
    if number:
        if law != "fixed":
            raise ConfigError(f"{text}: only fixed and requests take a number")
        params["window"] = _window(text, number)
    elif name == "requests":
        raise ConfigError("requests: needs a number, such as requests:8")
    try:
        build_law(law, params, minimum=1.0, maximum=float("inf"))
    except TypeError as error:
        raise ConfigError(f"{text}: {error}") from None
    return Arm(
        text,
        partial(build_law, law, params),
        names_sessions=name != "requests",
        window=params.get("window"),
        gate={"pause" if way in PAUSES else "order": way for way in ways},
    )


def _window(text: str, number: str) -> float:
    try:
        window = float(number)
    except ValueError:
        window = 0.0
    if not 1 <= window < float("inf"):
        raise ConfigError(f"{text}: {number!r} must be a number from 1 on")
    return window
