"""The turns that wait in one pool, in the order in which they may go.

Which order that is, an ``order`` says (``order/``). Whatever it is, a turn that would have gone long ago had it been
first come, first served goes before all others (``order/ageing``).

A turn that must go back to its origin stands in the lane of that backend, all others in a common one, so that nobody
who could run is looked for among thousands who cannot. A turn that comes to the head and does not fit *reserves* the
backend it would go to: those behind it take the others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from concur_proxy.core import placement
from concur_proxy.core.backend import Backend
from concur_proxy.core.lane import Entry, Lane, LaneName
from concur_proxy.core.order.ageing import Ageing
from concur_proxy.core.order.base import NEXT, OVERDUE, Order, Place, fifo_key
from concur_proxy.core.sessions import Turn
from concur_proxy.model import BackendId


class Line:
    """All lanes of one pool, and who has reserved what in it."""

    __slots__ = (
        "_ageing",
        "_aside",
        "_kept_from_cold",
        "_lanes",
        "_newest",
        "_reserved",
        "holds_cold",
        "order",
        "waiting",
    )

    def __init__(self, order: Order) -> None:
        self.order = order
        self.waiting = 0
        self.holds_cold = False
        """Cold turns wait, whatever room there is."""
        self._ageing = Ageing(order.patience, order.longest_share) if order.ages else None
        self._lanes: dict[LaneName, Lane] = {}
        self._aside: list[Turn] = []
        self._newest: Entry | None = None
        """Of the turn that has arrived last, until it joins or the line is gone through again."""
        self._reserved: dict[BackendId, Place] = {}
        self._kept_from_cold: dict[BackendId, Place] = {}
        """Backends that only cold turns are kept from."""

    def place_of(self, turn: Turn) -> Place:
        """Return the turn's place in line, or the one that it would have; smaller goes first."""
        return self.order.place(turn.entry or self._entry(turn))

    def _entry(self, turn: Turn) -> Entry:
        """Return the entry of a turn that stands in no line; one that arrives is asked for it more than once."""
        entry = self._newest
        if entry is None or entry.turn is not turn:
            entry = self._newest = self._new_entry(turn)
        return entry

    def _new_entry(self, turn: Turn) -> Entry:
        if self._ageing is not None and self._ageing.is_overdue(turn):
            return Entry(OVERDUE, fifo_key(turn, self.order.head_start_s), turn.ticket, turn)
        if self._ageing is not None and self._ageing.goes_next(turn):
            return Entry(NEXT, turn.first_arrived_at, turn.ticket, turn)
        rank, key = self.order.rank(turn)
        return Entry(rank, key, turn.ticket, turn)

    # coming and going

    def join(self, turn: Turn) -> None:
        """Let a turn stand in line, until it leaves."""
        self.order.joined(turn)
        if self._ageing is not None:
            self._ageing.joined(turn, fifo_key(turn, self.order.head_start_s))
        self.push(turn)

    def push(self, turn: Turn) -> None:
        """Put a turn where it belongs; one that was taken out and is put back has the place that it had."""
        home = placement.home(turn)
        cold = self.order.is_cold(turn)
        name = (None if home is None else home.id, frozenset() if home is not None else turn.avoid, cold)
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = self.order.lane(name)
        turn.lane = lane
        turn.entry = turn.entry or self._entry(turn)
        self._newest = None
        lane.push(turn.entry)
        self.waiting += 1

    def grant(self, turn: Turn, now: float) -> None:
        """The turn leaves the line because it may run."""
        if turn.entry is not None:
            self.order.granted(turn)
            self._leave(turn)
            if self._ageing is not None:
                self._ageing.granted(turn, now)

    def discard(self, turn: Turn) -> None:
        """The turn leaves the line for nothing, if it stands there."""
        if turn.entry is not None:
            self._leave(turn)
            if self._ageing is not None:
                self._ageing.gone(turn)

    def _leave(self, turn: Turn) -> None:
        self._take_out(turn)
        self.order.left(turn)

    def _take_out(self, turn: Turn) -> None:
        if turn.lane is not None:
            assert turn.entry is not None
            lane, entry = turn.lane, turn.entry
            turn.lane = turn.entry = None
            lane.bury(entry)
            self.waiting -= 1
        turn.entry = None

    def move(self, turn: Turn) -> None:
        """Put a turn where it belongs now: its context has gone cold, or is alive again."""
        if turn.lane is not None:
            self._take_out(turn)
            self.push(turn)

    def regroup(self, turn: Turn, topic: int) -> None:
        """It has turned out what a turn is about: it stands with others of its kind, where the order knows kinds."""
        if not self.order.has_lanes or turn.lane is None:
            turn.topic = topic
            return
        self._take_out(turn)
        self.order.left(turn)
        turn.topic = topic
        entry = self._new_entry(turn)
        self.order.joined(turn)
        turn.entry = entry
        self.push(turn)

    def set_order(self, order: Order) -> None:
        """Let everybody line up anew, in another order; nobody is lost, and who is overdue stays so."""
        turns = [turn for lane in self._lanes.values() for turn in lane.turns()]
        self._lanes, self.waiting, self._newest = {}, 0, None
        self._forget_reservations()
        if not order.ages:
            self._ageing = None
        elif self._ageing is None:
            self._ageing = Ageing(order.patience, order.longest_share)
            for turn in turns:
                self._ageing.joined(turn, fifo_key(turn, order.head_start_s))
        else:
            waiting = ((each.first_arrived_at, each.ticket, each) for each in turns if not each.session.was_active)
            self._ageing.follow(order.patience, order.longest_share, waiting)
        self.order = order
        for turn in turns:
            turn.lane = turn.entry = None
            order.joined(turn)
            self.push(turn)

    # who goes next

    def start_round(self, now: float) -> None:
        """Forget all reservations, and let those go first who are overdue: the line is gone through from its head."""
        self._newest = None
        self._forget_reservations()
        if self._ageing is not None:
            for turn in self._ageing.newly_overdue(now):
                self.move(turn)

    def _forget_reservations(self) -> None:
        self._reserved.clear()
        self._kept_from_cold.clear()

    def first(self, able: Collection[BackendId]) -> Turn | None:
        """Return the first turn that may run on one of ``able``; it stays where it is."""
        first: Entry | None = None
        for name, lane in list(self._lanes.items()):
            entry = lane.head()
            if entry is None:
                del self._lanes[name]
            elif lane.cold and self.holds_cold:
                continue
            elif (first is None or self.order.goes_before(entry, first)) and lane.leads_to(able, self._kept_from_cold):
                first = entry
        return None if first is None else first.turn

    def standing(self, turn: Turn) -> tuple[int, float]:
        """Return the rank of a turn that waits, and since when it does with the head start that the order gives it.

        Of orders that go by something else than time the rank alone counts, and then as if first come, first served.
        """
        assert turn.entry is not None
        rank, key = turn.entry.rank, turn.entry.key
        return rank, key if self.order.by_time or rank == OVERDUE else fifo_key(turn, self.order.head_start_s)

    def set_aside(self, turn: Turn) -> None:
        """Take out a turn that finds no room, so that the next one is seen, until ``put_back``."""
        lane, entry = turn.lane, turn.entry
        assert lane is not None
        assert entry is not None
        if lane.head() is entry:
            lane.pop()
        else:  # somebody has come before it meanwhile
            turn.entry = Entry(*entry)
            lane.bury(entry)
        turn.lane = None
        self.waiting -= 1
        self._aside.append(turn)

    def put_back(self) -> None:
        """Let those that were set aside have their places again."""
        for turn in self._aside:
            self.push(turn)
        self._aside.clear()

    def reserve(self, backend: Backend, turn: Turn) -> bool:
        """Keep those behind ``turn`` from a backend until the line is gone through again; True where it keeps all.

        A cold turn keeps only other cold ones from a backend where hot ones have not taken their share yet.
        """
        all_ = not (self.order.is_cold(turn) and backend.kept_for_hot)
        reserved = self._reserved if all_ else self._kept_from_cold
        mine = self.place_of(turn)
        theirs = reserved.get(backend.id)
        reserved[backend.id] = mine if theirs is None else min(mine, theirs)
        return all_

    def holds(self, turn: Turn) -> bool:
        """Tell whether a turn must wait, whatever room there is."""
        return self.holds_cold and self.order.is_cold(turn)

    def open_for(self, turn: Turn, able: Mapping[BackendId, Backend]) -> Collection[Backend]:
        """Return those of a round's ``able`` backends that ``turn``, which stands first now, may be let in on."""
        if self._kept_from_cold and self.order.is_cold(turn):
            return [backend for backend in able.values() if backend.id not in self._kept_from_cold]
        return able.values()

    def open_to(self, turn: Turn, backends: Sequence[Backend]) -> Sequence[Backend]:
        """Return those that nobody before ``turn`` has reserved."""
        if not self._reserved and not self._kept_from_cold:
            return backends
        mine = self.place_of(turn)
        free = [each for each in backends if self._reserved.get(each.id, mine) >= mine]
        if self._kept_from_cold and self.order.is_cold(turn):
            free = [each for each in free if self._kept_from_cold.get(each.id, mine) >= mine]
        return free
