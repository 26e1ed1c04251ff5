"""Ageing: in no order does a turn wait much longer than it would have, first come, first served.

A second line, kept in that order, is served whenever a turn is let in from the real one. So it is known of every turn
when it would have gone. One that is still waiting then, because others went before it, becomes *overdue* after some
times that wait (the order's ``patience``), and goes first from then on. No clock and no estimate: it holds however fast
or slow the engines turn out to be, and where they could serve everybody in time no turn is overdue.
"""

from __future__ import annotations

import heapq

from concur_proxy.core.lane import FEW
from concur_proxy.core.sessions import Turn

SOON_S = 1.0
"""Shorter delays than this behind those who went before are nobody's concern."""

_Item = tuple[float, int, Turn]


class Ageing:
    """Who would have gone, and who is overdue since. Takes as much memory as there are turns that wait."""

    __slots__ = ("_dead", "_here", "_line", "_now", "_overdue", "_queued", "_waiters", "patience")

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self._here: set[int] = set()
        """Tickets of the turns that wait."""
        self._queued: set[int] = set()
        """Tickets of those that wait in the second line; some of them run already."""
        self._line: list[_Item] = []
        self._dead = 0
        self._waiters: list[_Item] = []
        """Turns that should have gone, by the time when they are overdue."""
        self._overdue: set[int] = set()
        self._now = 0.0

    def __len__(self) -> int:
        """Return the number of entries kept, dead ones included."""
        return len(self._line) + len(self._waiters) + len(self._overdue)

    def is_overdue(self, turn: Turn) -> bool:
        return turn.ticket in self._overdue

    def joined(self, turn: Turn, key: float) -> None:
        """The turn waits; ``key``: its place, first come, first served."""
        self._here.add(turn.ticket)
        if turn.ticket not in self._queued:
            self._queued.add(turn.ticket)
            heapq.heappush(self._line, (key, turn.ticket, turn))

    def granted(self, turn: Turn, now: float) -> None:
        """The turn has been let in: one of the second line goes, too."""
        self._now = now
        self._leave(turn.ticket)
        self._serve()

    def gone(self, turn: Turn) -> None:
        """The turn was refused, or its client went away."""
        self._leave(turn.ticket)
        if turn.ticket in self._queued:
            self._queued.remove(turn.ticket)
            self._bury()
        else:
            self._serve()  # it went long ago in the second line: both stay equally long

    def newly_overdue(self, now: float) -> list[Turn]:
        """Return the turns that have become overdue by now."""
        self._now = now
        found = []
        while self._waiters and self._waiters[0][0] <= now:
            turn = heapq.heappop(self._waiters)[2]
            if turn.ticket in self._here and turn.ticket not in self._overdue:
                self._overdue.add(turn.ticket)
                found.append(turn)
        return found

    def _leave(self, ticket: int) -> None:
        self._here.discard(ticket)
        self._overdue.discard(ticket)
        if len(self._waiters) > FEW and len(self._waiters) > 2 * len(self._here):
            self._waiters = [item for item in self._waiters if item[1] in self._here]
            heapq.heapify(self._waiters)

    def _serve(self) -> None:
        while self._line:
            _, ticket, turn = heapq.heappop(self._line)
            if ticket not in self._queued:
                self._dead -= 1
                continue
            self._queued.remove(ticket)
            if ticket in self._here:
                heapq.heappush(self._waiters, (self._overdue_at(turn), ticket, turn))
            return

    def _overdue_at(self, turn: Turn) -> float:
        """Return when a turn that should go now is overdue, which leaves it half of the time until it is refused."""
        now = self._now
        patience = max((self.patience - 1.0) * (now - turn.arrived_at), SOON_S)
        return now + min(patience, max(0.0, turn.deadline - now) / 2)

    def _bury(self) -> None:
        self._dead += 1
        if self._dead > FEW and self._dead > len(self._line) // 2:
            self._line = [item for item in self._line if item[1] in self._queued]
            heapq.heapify(self._line)
            self._dead = 0
