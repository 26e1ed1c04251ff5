"""Control laws: one file each, ``LAWS`` names them, ``build_law`` puts one into its guards.

``base`` is the contract with the gate; ``guards``, ``refusals``, ``freshness`` and ``guarded`` are what fits around any
law. docs/laws.md has each law in words, and where it fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from concur_proxy.model import Signals
from concur_proxy.windows.aimd import Aimd
from concur_proxy.windows.base import Law, WindowView
from concur_proxy.windows.eviction import Eviction
from concur_proxy.windows.fixed import Fixed
from concur_proxy.windows.footprint import Footprint
from concur_proxy.windows.freshness import FreshOnly
from concur_proxy.windows.gradient import Gradient
from concur_proxy.windows.guarded import Guarded
from concur_proxy.windows.guards import GrowWhileBound, OneCutPerDrain, StopAtPreemption, WithinSlew
from concur_proxy.windows.meanfield import Meanfield
from concur_proxy.windows.pid import Pid
from concur_proxy.windows.refusals import CutOnRejection, TaperAfterRefusal
from concur_proxy.windows.unlimited import Unlimited

LAWS: Mapping[str, type[Law]] = {
    "unlimited": Unlimited,
    "fixed": Fixed,
    "aimd": Aimd,
    "eviction": Eviction,
    "pid": Pid,
    "footprint": Footprint,
    "gradient": Gradient,
    "meanfield": Meanfield,
}

CONSTANT = frozenset({"unlimited", "fixed"})
"""Laws that follow no signal, not even a refusal: the operator's word. They need no guard."""


def build_law(
    name: str,
    params: Mapping[str, Any],
    *,
    minimum: float,  # noqa: ARG001  # the bounds in force come with every view; laws that plan ahead take these
    maximum: float,  # noqa: ARG001
    stale_after_s: float = 10.0,
    decay_after_s: float = 60.0,
) -> Law:
    """Return the law ``name`` with its parameters, in its guards. Raises ``KeyError`` for an unknown name."""
    law = LAWS[name](**params)
    if name in CONSTANT:
        return Guarded(law)

    def start(signals: Signals, view: WindowView) -> float:
        return law.start(
            capacity_tokens=signals.capacity_tokens, typical_footprint_tokens=view.typical_footprint_tokens
        )

    # A return to the warm start is no cut, so it comes after the guard that counts cuts; a refusal is news whatever
    # the age of the samples, so it comes after freshness; nothing may grow unbound, nor step too far.
    guards = (
        OneCutPerDrain(law.unit),
        FreshOnly(start, stale_after_s=stale_after_s, decay_after_s=decay_after_s),
        GrowWhileBound(),
        StopAtPreemption(),
        CutOnRejection(law.unit),
        TaperAfterRefusal(),
        WithinSlew(),
    )
    return Guarded(law, guards, stale_after_s=stale_after_s)
