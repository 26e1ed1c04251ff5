"""What a run looked like over time, one point for each update of a window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from concur_proxy.core.regulator import Regulator
from concur_proxy.sim.runner import Runner


@dataclass(frozen=True, slots=True)
class Moment:
    """One backend at one update. Unknown is None."""

    at: float
    window: float
    """In the law's unit."""
    active: int
    running: int
    held: int
    kv_usage: float | None
    hit_rate: float | None
    generated_tokens: int
    """Counter of all tokens that its engine has generated for anybody."""
    law: Mapping[str, float]
    """The numbers of the law's snapshot: its congestion signal, its threshold, whatever it tells."""


@dataclass(slots=True)
class Series:
    backend: str
    moments: list[Moment] = field(default_factory=list)

    def note(self, regulator: Regulator, runner: Runner) -> None:
        """Keep the newest update."""
        point = regulator.history[-1]
        snapshot = regulator.law_snapshot()
        self.moments.append(
            Moment(
                at=point.at,
                window=point.window,
                active=point.active,
                running=point.running,
                held=point.held,
                kv_usage=point.kv_usage,
                hit_rate=point.hit_rate,
                generated_tokens=runner.generated_tokens,
                law={name: float(value) for name, value in snapshot.items() if isinstance(value, int | float)},
            )
        )
