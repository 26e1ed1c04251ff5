"""The contract between a line and the order that it is kept in.

An order gives each turn that joins the line a key that does not change while it stands there, and so never asks for the
time: picking the next turn stays a look at the top of a heap. What does change (``fair``'s accounts, a turn that is
overdue) changes by an event, and whole groups of turns at once.
"""

from __future__ import annotations

from collections.abc import Callable

from concur_proxy.core.lane import Entry, Lane, LaneName
from concur_proxy.core.sessions import Session, Turn
from concur_proxy.model import Usage

OVERDUE, PAUSED, NEXT, NEW = 0, 1, 2, 3
"""Ranks that most orders use; a smaller one goes first, whatever the keys are."""

HEAD_START = 0.5
"""Share of the longest wait that paused sessions go ahead of new ones."""

Place = tuple[float, ...]
"""A place in line; smaller goes first."""

Size = Callable[[Turn], int]
"""Tokens of KV that a turn will occupy, as far as is known."""


def fifo_key(turn: Turn, head_start_s: float) -> float:
    """Return the key of ``fifo``: arrival, paused sessions with a head start in time rather than a class of their own.

    A new turn that has waited longer than the head start goes before a paused one, so no wait is unbounded.
    """
    return turn.first_arrived_at - head_start_s if turn.session.was_active else turn.first_arrived_at


def class_of(session: Session) -> int:
    return PAUSED if session.was_active else NEW


class Order:
    """Subclasses say ``rank``; those that learn from turns that have run say so."""

    ages = True
    """The line sees to it that nobody waits much longer than first come, first served would let them."""
    patience = 2.0
    """A turn is overdue after this many times that wait; it then still waits for the next room."""
    longest_share = 0.0
    """Of the turns that are let in: new ones that have waited longest, and go next after paused ones."""
    learns = False
    by_time = False
    """Keys are times: turns of several lines can be compared by how long ago they are."""
    has_lanes = False
    """Cold turns leave a share of every window to hot ones."""

    def __init__(self, head_start_s: float) -> None:
        self.head_start_s = head_start_s

    def rank(self, turn: Turn) -> tuple[int, float]:
        """Return rank and key of a turn; smaller goes first, equal ones in the order of their tickets."""
        raise NotImplementedError

    def lane(self, name: LaneName) -> Lane:
        """Return a new lane of the line."""
        return Lane(name)

    def place(self, entry: Entry) -> Place:
        """Return where an entry stands among those of all lanes."""
        return entry[:3]

    def goes_before(self, entry: Entry, other: Entry) -> bool:
        """Compare the heads of two lanes."""
        return entry < other

    def is_cold(self, turn: Turn) -> bool:  # noqa: ARG002
        """Tell whether a turn leaves a part of the window to others, and so is no measure for them."""
        return False

    # what happens to turns

    def joined(self, turn: Turn) -> None:
        """The turn waits from now on."""

    def left(self, turn: Turn) -> None:
        """The turn waits no more."""

    def granted(self, turn: Turn) -> None:
        """It left because it may run."""

    def finished(self, turn: Turn, usage: Usage | None) -> None:
        """A turn has run, whether it had to wait or not; asked only where the order ``learns``."""

    def vanished(self, session: Session) -> None:
        """Nothing more is expected of a session; asked only where the order ``learns``."""
