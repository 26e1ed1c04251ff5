"""Whose a session is, where several replicas share sessions: the data path asks before a turn goes to the gate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from concur_proxy.model import TurnFacts


class Owners(Protocol):
    def is_ours(self, turn: TurnFacts) -> bool:
        """Tell whether the turn may go to the gate at once."""

    def claim(self, turn: TurnFacts, then: Callable[[TurnFacts], None]) -> None:
        """Make the turn's session this replica's; ``then`` gets the turn as it goes on, within some milliseconds."""
