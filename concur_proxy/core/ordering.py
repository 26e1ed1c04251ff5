"""The turns that wait in one pool, in the order in which they may go: paused sessions before new ones, each in turn.

Precedence is a head start in arrival time, not a class of its own: a new turn that has waited longer than the head
start goes first, so no wait is unbounded (ageing).

A turn that must go back to its origin stands in the lane of that backend, all others in a common one, so that nobody
who could run is looked for among thousands who cannot. A turn that comes to the head and does not fit *reserves* the
backend it would go to: those behind it take the others.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence

from concur_proxy.core import placement
from concur_proxy.core.backend import Backend
from concur_proxy.core.sessions import Turn
from concur_proxy.model import BackendId

FEW = 64
"""Dead entries that are not worth a clean-up."""

Entry = tuple[float, int, Turn]


class Lane:
    """A heap with lazy deletion: an entry counts while it is its turn's entry."""

    __slots__ = ("_dead", "_heap", "avoid", "origin")

    def __init__(self, origin: BackendId | None, avoid: frozenset[BackendId]) -> None:
        self.origin = origin
        self.avoid = avoid
        self._heap: list[Entry] = []
        self._dead = 0

    def __len__(self) -> int:
        return len(self._heap)

    def leads_to(self, able: Collection[BackendId]) -> bool:
        """Tell whether its turns may run on one of ``able``."""
        if self.origin is not None:
            return self.origin in able
        return not self.avoid or any(backend not in self.avoid for backend in able)

    def push(self, entry: Entry) -> None:
        heapq.heappush(self._heap, entry)

    def head(self) -> Entry | None:
        while self._heap and self._heap[0][2].entry is not self._heap[0]:
            heapq.heappop(self._heap)
            self._dead -= 1
        return self._heap[0] if self._heap else None

    def pop(self) -> None:
        heapq.heappop(self._heap)

    def bury(self) -> None:
        """Take note of an entry that does not count any more."""
        self._dead += 1
        if self._dead > FEW and self._dead > len(self._heap) // 2:
            self._heap = [entry for entry in self._heap if entry[2].entry is entry]
            heapq.heapify(self._heap)
            self._dead = 0


class Line:
    """All lanes of one pool, and who has reserved what in it."""

    __slots__ = ("_lanes", "_reserved", "head_start_s", "waiting")

    def __init__(self, head_start_s: float) -> None:
        self.head_start_s = head_start_s
        self.waiting = 0
        self._lanes: dict[tuple[BackendId | None, frozenset[BackendId]], Lane] = {}
        self._reserved: dict[BackendId, tuple[float, int]] = {}

    def place_of(self, turn: Turn) -> tuple[float, int]:
        """Return the turn's place in line; smaller goes first."""
        start = self.head_start_s if turn.session.was_active else 0.0
        return turn.first_arrived_at - start, turn.ticket

    def push(self, turn: Turn) -> None:
        home = placement.home(turn)
        name = (None if home is None else home.id, frozenset() if home is not None else turn.avoid)
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = Lane(*name)
        due, ticket = self.place_of(turn)
        turn.lane, turn.entry = lane, (due, ticket, turn)
        lane.push(turn.entry)
        self.waiting += 1

    def discard(self, turn: Turn) -> None:
        if turn.lane is not None:
            lane, turn.lane, turn.entry = turn.lane, None, None
            lane.bury()
            self.waiting -= 1

    def move(self, turn: Turn) -> None:
        """Put a turn where it belongs now: its context has gone cold, or is alive again."""
        if turn.lane is not None:
            self.discard(turn)
            self.push(turn)

    def take_first(self, able: Collection[BackendId]) -> Turn | None:
        """Take out the first turn that may run on one of ``able``."""
        first: Entry | None = None
        for name, lane in list(self._lanes.items()):
            entry = lane.head()
            if entry is None:
                del self._lanes[name]
            elif (first is None or entry < first) and lane.leads_to(able):
                first = entry
        if first is None:
            return None
        turn = first[2]
        assert turn.lane is not None
        turn.lane.pop()
        turn.lane, turn.entry = None, None
        self.waiting -= 1
        return turn

    def release(self) -> None:
        """Forget all reservations: the line is gone through from its head again."""
        self._reserved.clear()

    def reserve(self, backend: Backend, turn: Turn) -> None:
        """Keep those behind ``turn`` from a backend until the line is gone through again."""
        mine = self.place_of(turn)
        theirs = self._reserved.get(backend.id)
        self._reserved[backend.id] = mine if theirs is None else min(mine, theirs)

    def open_to(self, turn: Turn, backends: Sequence[Backend]) -> Sequence[Backend]:
        """Return those that nobody before ``turn`` has reserved."""
        if not self._reserved:
            return backends
        mine = self.place_of(turn)
        return [each for each in backends if self._reserved.get(each.id, mine) >= mine]
