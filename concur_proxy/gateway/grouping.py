"""What the data path asks of whoever groups batch turns that wait (``meaning``)."""

from __future__ import annotations

from typing import Protocol


class Grouping(Protocol):
    """May hear of each batch turn that is held."""

    def held(self, ticket: int, body: bytes) -> None:
        """Take note of a turn that waits; must not take any time."""
        ...
