"""``unlimited``: never holds, not even where an engine refuses turns. The baseline that other laws are compared with.

Bounds hold all the same: with ``window_max`` it is a constant window.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from concur_proxy.model import Signals, TurnRecord
from concur_proxy.windows.base import Unit, Verdict, WindowView


class Unlimited:
    name: ClassVar[str] = "unlimited"
    unit: ClassVar[Unit] = Unit.SESSIONS

    def start(self, *, capacity_tokens: float | None, typical_footprint_tokens: float | None) -> float:  # noqa: ARG002
        return math.inf

    def observe(self, record: TurnRecord, *, now: float) -> None:
        pass

    def update(self, signals: Signals, view: WindowView, *, now: float) -> Verdict:  # noqa: ARG002
        return Verdict(math.inf, "unlimited: every turn passes")

    def snapshot(self) -> Mapping[str, object]:
        return {}
