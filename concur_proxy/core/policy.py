"""What the gate is told to do, and the shapes of what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from concur_proxy.model import Admitted, Refused, TurnRecord

Decision = Admitted | Refused
"""What has become of a turn that was held."""


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


@dataclass(frozen=True, slots=True)
class Finished:
    """The record of a finished turn, and what its end has decided."""

    record: TurnRecord
    decisions: list[Decision]
