"""``fixed``: a constant window, the operator's own word: no signal moves it, not even an engine that refuses turns.

Refused turns still wait and go again, but as many as before; who wants the window to follow takes another law.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from concur_proxy.model import Signals, TurnRecord
from concur_proxy.windows.base import Unit, Verdict, WindowView


class Fixed:
    """``window``: sessions that may be active on one backend, 1 or more; default 16."""

    name: ClassVar[str] = "fixed"
    unit: ClassVar[Unit] = Unit.SESSIONS

    def __init__(self, *, window: float = 16.0) -> None:
        self.window = window

    def start(self, *, capacity_tokens: float | None, typical_footprint_tokens: float | None) -> float:  # noqa: ARG002
        return self.window

    def observe(self, record: TurnRecord, *, now: float) -> None:
        pass

    def update(self, signals: Signals, view: WindowView, *, now: float) -> Verdict:  # noqa: ARG002
        return Verdict(self.window, f"fixed at {self.window:g} sessions")

    def snapshot(self) -> Mapping[str, object]:
        return {"window": self.window}
