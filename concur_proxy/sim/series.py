"""What a run looked like over time, one point for each update of a window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from concur_proxy.core.regulator import Regulator


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
    unit: str = "sessions"
    """Of the windows."""
    moments: list[Moment] = field(default_factory=list)

    def note(self, regulator: Regulator, generated_tokens: int) -> None:
        """Keep the newest update, with the tokens that the engine had generated when it was last read."""
        point = regulator.history[-1]
        snapshot = regulator.law_snapshot()
        self.unit = regulator.law.unit.value
        self.moments.append(
            Moment(
                at=point.at,
                window=point.window,
                active=point.active,
                running=point.running,
                held=point.held,
                kv_usage=point.kv_usage,
                hit_rate=point.hit_rate,
                generated_tokens=generated_tokens,
                law={name: float(value) for name, value in snapshot.items() if isinstance(value, int | float)},
            )
        )
