"""What the gate is told to do, and the shapes of what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from concur_proxy.model import Admitted, Refused, TurnRecord

Decision = Admitted | Refused
"""What has become of a turn that was held."""


@dataclass(frozen=True, slots=True)
class TenantLimits:
    """What one tenant may take; None: as much as there is."""

    active_sessions: int | None = None
    held_turns: int | None = None
    turns_per_minute: float | None = None
    tokens_per_minute: float | None = None
    """Computed by engines: not found in the cache, or generated."""


@dataclass(frozen=True, slots=True)
class GatePolicy:
    """Settings of the gate, with the settings tree's names, defaults and meanings."""

    mode: Literal["enforce", "observe"] = "enforce"
    """``observe``: decides and counts, but lets every turn in."""
    pause: Literal["lazy", "eager"] = "lazy"
    """``eager``: idle sessions over the window lose their places at once, the longest idle first."""
    max_wait_s: float = 540.0
    force_after_max_wait: bool = False
    max_held: int = 20_000
    lease_min_s: float = 30.0
    lease_max_s: float = 600.0
    max_sessions: int = 100_000
    retry_after_s: float = 2.0
    order: str = "furthest"
    """Name of the order in which held turns go (``order.registry``)."""
    hot_share: float = 0.3
    """Part of every window that the order ``lanes`` keeps for turns that are not cold."""
    hot_objective_s: float = 0.0
    """Time to the first token that 99 % of the turns that are not cold should not exceed; 0: no objective."""
    hot_window_s: float = 10.0
    """Time over which that is looked at."""
    cold_refuse_after_s: float = 60.0
    """How long cold turns are held back for that objective before they are refused."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Shares of tenants in the order ``fair``, by name; 1 for those not named."""
    limits: Mapping[str, TenantLimits] = field(default_factory=dict)
    """Of tenants by name; ``default`` is for those not named."""


@dataclass(init=False, slots=True, unsafe_hash=True)
class Finished:
    """The record of a finished turn, and what its end has decided."""

    record: Final[TurnRecord]
    decisions: Final[list[Decision]]

    def __init__(
        self,
        record: TurnRecord,
        decisions: list[Decision],
    ) -> None:
        self.record = record
        self.decisions = decisions
