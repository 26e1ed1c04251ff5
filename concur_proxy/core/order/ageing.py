"""Ageing: in no order does a turn wait much longer than it would have, first come, first served.

A second line, kept in that order, is served whenever a turn is let in from the real one. So it is known of every turn
when it would have gone. One that is still waiting then, because others went before it, becomes *overdue* after some
times that wait (the order's ``patience``), and goes first from then on. No clock and no estimate: it holds however fast
or slow the engines turn out to be, and where they could serve everybody in time no turn is overdue.

An order may also give a share of all rooms to those new ones who have waited longest: paused ones go before them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Final

from concur_proxy.core.lane import FEW
from concur_proxy.core.order.arrivals import Arrivals, Item
from concur_proxy.core.sessions import Turn

SOON_S: Final = 1.0
"""Shorter delays than this behind those who went before are nobody's concern."""

WAITS: Final = 1
QUEUED: Final = 2
"""It stands in the second line, where some stand that run already."""
PASSED: Final = 4
"""It is overdue."""
CHOSEN: Final = 8
"""It has waited longest of the new ones, and goes next."""


class Ageing:
    """Who would have gone, and who is overdue since. Takes as much memory as there are turns that wait."""

    __slots__ = ("_dead", "_due", "_line", "_longest", "_now", "_states", "_waiters", "patience", "share", "waiting")

    def __init__(self, patience: float, share: float = 0.0) -> None:
        self.patience = patience
        self.share = share
        """Of the turns that are let in: new ones that go next because they have waited longest."""
        self._due = 0.0
        """How many of these may go by now."""
        self._longest = Arrivals()
        """New turns by the time when they came, where there is such a share."""
        self._states: dict[int, int] = {}
        """Of tickets: which of the above is true."""
        self.waiting = 0
        """Turns that wait."""
        self._line = Arrivals()
        self._dead = 0
        self._waiters: list[Item] = []
        """Turns that should have gone, by the time when they are overdue."""
        self._now = 0.0

    def __len__(self) -> int:
        """Return the number of entries kept, dead ones included."""
        return len(self._states) + len(self._line) + len(self._waiters) + len(self._longest)

    def is_overdue(self, turn: Turn) -> bool:
        return self._states.get(turn.ticket, 0) & PASSED != 0

    def goes_next(self, turn: Turn) -> bool:
        return self._states.get(turn.ticket, 0) & CHOSEN != 0

    def joined(self, turn: Turn, key: float) -> None:
        """The turn waits; ``key``: its place, first come, first served."""
        ticket = turn.ticket
        if not self._states.get(ticket, 0) & QUEUED:
            self._line.push((key, ticket, turn))
        self._states[ticket] = WAITS | QUEUED
        self.waiting += 1
        if self.share and not turn.session.was_active:
            self._longest.push((turn.first_arrived_at, ticket, turn))

    def granted(self, turn: Turn, now: float) -> None:
        """The turn has been let in: one of the second line goes, too."""
        self._now = now
        if self._leave(turn.ticket):
            self._states[turn.ticket] = QUEUED
        self._serve()
        self._due += self.share

    def gone(self, turn: Turn) -> None:
        """The turn was refused, or its client went away."""
        if self._leave(turn.ticket):
            self._bury()
        else:
            self._serve()  # it went long ago in the second line: both stay equally long

    def newly_overdue(self, now: float) -> list[Turn]:
        """Return the turns that go first from now on: they have become overdue, or waited longest when that counts."""
        self._now = now
        found: list[Turn] = []
        while self._waiters and self._waiters[0][0] <= now:
            _, ticket, turn = heapq.heappop(self._waiters)
            state = self._states.get(ticket, 0)
            if state & WAITS and not state & PASSED:
                self._states[ticket] = state | PASSED
                found.append(turn)
        while self._due >= 1.0:
            self._due -= 1.0
            found += self._who_waited_longest()
        return found

    def follow(self, patience: float, share: float, waiting: Iterable[Item]) -> None:
        """Go by the rules of another order from now on; ``waiting``: new turns that wait, by when they came."""
        self.patience, self.share, self._due = patience, share, 0.0
        self._longest = Arrivals(waiting if share else ())
        self._states = {ticket: state & ~CHOSEN for ticket, state in self._states.items()}

    def _who_waited_longest(self) -> list[Turn]:
        """Return the one of them that goes first from now on; none where all do already."""
        while (item := self._longest.pop()) is not None:
            _, ticket, turn = item
            if self._goes_on_waiting(item):
                self._states[ticket] |= CHOSEN
                return [turn]
        return []

    def _goes_on_waiting(self, item: Item) -> bool:
        return self._states.get(item[1], 0) & (WAITS | PASSED | CHOSEN) == WAITS

    def _leave(self, ticket: int) -> bool:
        """The turn waits no more; True where it still stands in the second line."""
        state = self._states.pop(ticket)
        self.waiting -= 1
        if len(self._waiters) > FEW and len(self._waiters) > 2 * self.waiting:
            self._waiters = [item for item in self._waiters if self._states.get(item[1], 0) & WAITS]
            heapq.heapify(self._waiters)
        if len(self._longest) > FEW and len(self._longest) > 2 * self.waiting:
            self._longest = self._longest.only(self._goes_on_waiting)
        return state & QUEUED != 0

    def _serve(self) -> None:
        while (item := self._line.pop()) is not None:
            _, ticket, turn = item
            state = self._states.get(ticket, 0)
            if not state & QUEUED:
                self._dead -= 1
                continue
            if state & WAITS:
                self._states[ticket] = state - QUEUED
                heapq.heappush(self._waiters, (self._overdue_at(turn), ticket, turn))
            else:
                del self._states[ticket]
            return

    def _overdue_at(self, turn: Turn) -> float:
        """Return when a turn that should go now is overdue, which leaves it half of the time until it is refused."""
        now = self._now
        patience = max((self.patience - 1.0) * (now - turn.arrived_at), SOON_S)
        return now + min(patience, max(0.0, turn.deadline - now) / 2)

    def _bury(self) -> None:
        self._dead += 1
        if self._dead > FEW and self._dead > len(self._line) // 2:
            self._line = self._line.only(self._is_queued)
            self._dead = 0

    def _is_queued(self, item: Item) -> bool:
        return self._states.get(item[1], 0) & QUEUED != 0
