"""Which sessions are ours. A session belongs to the replica that its last turn came to.

A turn of a session that is ours goes on at once; Redis is told, and nobody waits for that. Any other turn asks Redis,
which makes the session ours unless it is busy elsewhere. No turn waits for that longer than ``PATIENCE_S`` where there
is room for it: it goes on as one of a session that is new here, and what Redis answers later is taken in then. One that
would be held in any case has nothing to gain by that, and might be let in at once with what Redis knows of it; in line
as one of a new session it would have places taken from others, and contexts with them. It waits a little longer.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence

from concur_proxy.core.gate import Decision
from concur_proxy.model import BackendId, PoolId, SessionKey, TurnFacts
from concur_proxy.state.holding import text
from concur_proxy.state.link import Answer, Link, Operation
from concur_proxy.state.ports import Door
from concur_proxy.state.reports import dump_session, load_session, name_of, pool_and_key

PATIENCE_S = 0.005
HELD_PATIENCE_S = 0.25
"""Of a turn that would be held; longer than a Redis that does answer takes."""
KEEP_MS = 3_600_000
"""A session that has not been heard of for this long is forgotten."""

Name = tuple[PoolId, SessionKey]
Place = tuple[BackendId, int]
"""One that an idle session has lost, and the tokens that it is."""

_log = logging.getLogger(__name__)


class Owners:
    """``on_place(backend, charge, tokens)``: a session brings that part of the window, its place, and its context."""

    def __init__(
        self,
        link: Link,
        door: Door,
        *,
        limit: int,
        on_place: Callable[[BackendId, float, int], None],
        newest_sync: Callable[[], int],
    ) -> None:
        self._link = link
        self._door = door
        self._limit = limit
        self._on_place = on_place
        self._newest_sync = newest_sync
        self._ours: OrderedDict[Name, None] = OrderedDict()
        self._unsaid: set[Name] = set()
        self._saying = False
        self._vacated: dict[Name, tuple[Place, ...]] = {}
        """Places that sessions have lost here: their room is free when Redis has said that no other has them."""
        self._moved_places: list[Place] = []
        """Those of sessions that others have taken."""
        self.claims = 0
        """Turns that have asked, ever."""
        self.moved = 0
        """Sessions that have come from other replicas, ever."""
        self.late = 0
        """Turns that went on before Redis had answered, ever."""

    def __len__(self) -> int:
        return len(self._ours)

    # what the data path asks

    def is_ours(self, turn: TurnFacts) -> bool:
        """Tell whether a turn may go on at once; where Redis is gone, every turn may."""
        if turn.session is None or not self._link.up:
            return True
        name = turn.pool, turn.session
        if name not in self._ours:
            return False
        self._tell(["busy", name_of(*name)], name)
        return True

    def claim(self, turn: TurnFacts, then: Callable[[TurnFacts], None]) -> None:
        """Make a turn's session ours; ``then`` gets the turn as it goes on, soon and once."""
        assert turn.session is not None
        self.claims += 1
        claim = _Claim(self, turn.pool, turn.session, turn, then)
        claim.start()
        self._link.send(["claim", name_of(turn.pool, turn.session), KEEP_MS, self._newest_sync()], claim.answered)

    def has_room(self, pool: PoolId) -> bool:
        return self._door.gate.has_room(pool)

    # what the proxy tells

    def turn_ended(self, backend: BackendId, key: SessionKey) -> None:
        pool = self._door.gate.pool_of(backend)
        if pool is not None:
            self._say((pool, key))

    def turn_over(self, key: SessionKey) -> None:
        """A turn has come to its end, whichever way: it may never have run."""
        for pool in self._door.gate.pool_ids():
            if (pool, key) in self._ours:
                self._say((pool, key))

    def paused(self, pool: PoolId, key: SessionKey) -> None:
        """A session has lost its place."""
        self._say((pool, key))

    def vacated(self, backend: BackendId, pool: PoolId, key: SessionKey, tokens: int) -> None:
        """A session has lost its place, and another replica may have taken it with that place."""
        name = pool, key
        self._vacated[name] = (*self._vacated.get(name, ()), (backend, tokens))
        self._say(name)

    def take_moved_places(self) -> list[Place]:
        """Return the vacated places that have gone elsewhere: the next answer to a sync is about our share without."""
        moved, self._moved_places = self._moved_places, []
        return moved

    def put_moved_places(self, places: Sequence[Place]) -> None:
        """That answer has not come."""
        self._moved_places += places

    def free_all(self) -> None:
        """No other replica can take a place of ours any more: all that wait for an answer are free."""
        places = [place for left in self._vacated.values() for place in left]
        self._vacated.clear()
        self.free(places + self.take_moved_places())

    def free(self, places: Sequence[Place]) -> None:
        if places:
            self._door.carry_out(lambda now: self._door.gate.free(places, now=now))

    def say_all(self) -> None:
        """Redis may have forgotten: tell it of every session of ours."""
        self._unsaid.update(self._ours)
        self._say_soon()

    def moved_away(self, text_name: str) -> None:
        """Another replica has the session now."""
        name = pool_and_key(text_name)
        self._ours.pop(name, None)
        self._unsaid.discard(name)
        self._door.gate.let_go(*name)

    # telling Redis

    def _say(self, name: Name) -> None:
        self._unsaid.add(name)
        self._say_soon()

    def _say_soon(self) -> None:
        if self._unsaid and not self._saying and self._link.up:
            self._saying = True
            asyncio.get_running_loop().call_soon(self._say_now)

    def _say_now(self) -> None:
        self._saying = False
        now = self._door.clock()
        unsaid, self._unsaid = self._unsaid, set()
        for name in unsaid:
            state = self._door.gate.session_state(*name, now=now)
            if state is None:
                if name in self._ours or name in self._vacated:
                    self._ours.pop(name, None)
                    self._tell(["forget", name_of(*name)], name)
            elif state.busy:
                if name in self._vacated:
                    self._tell(["busy", name_of(*name)], name)
            else:
                self._own(name)
                charge, lease_ms = text(state.charge), int(1000 * state.lease_s)
                operation = ["save", name_of(*name), "0", state.origin or "", charge, lease_ms, dump_session(state)]
                self._tell([*operation, KEEP_MS, state.resident], name)

    def _tell(self, operation: Operation, name: Name) -> None:
        """Tell Redis of a session, and hear whether it is still ours, and so the places that it has lost until now."""
        left = self._vacated.pop(name, ())
        self._link.send(operation, lambda answer: self._heard(name, left, answer))

    def _heard(self, name: Name, left: tuple[Place, ...], answer: Answer | None) -> None:
        if answer is None:
            self._unsaid.add(name)
            if left:
                self._vacated[name] = left + self._vacated.get(name, ())
        elif answer["lost"]:
            self._moved_places += left
            self.moved_away(name_of(*name))
        else:
            self.free(left)

    # being told

    def _own(self, name: Name) -> None:
        self._ours[name] = None
        self._ours.move_to_end(name)
        while len(self._ours) > self._limit:
            self._ours.popitem(last=False)

    def taken(self, name: Name, answer: Answer) -> None:
        """Redis has made a session ours."""
        self._own(name)
        if answer["got"] == "new" or not answer["state"]:
            return
        self.moved += answer["got"] == "moved"
        charge, window = float(answer["charge"]), BackendId(answer["window"])
        state = load_session(name_of(*name), answer["state"], age_s=answer["age"] / 1000.0)
        self._on_place(window, charge, int(answer["tokens"]))

        def take_in(now: float) -> list[Decision]:
            return self._door.gate.take_in(state, place=charge, now=now)

        self._door.carry_out(take_in)


class _Claim:
    """One turn that asks."""

    __slots__ = ("_key", "_owners", "_pool", "_then", "_timer", "_turn")

    def __init__(
        self, owners: Owners, pool: PoolId, key: SessionKey, turn: TurnFacts, then: Callable[[TurnFacts], None]
    ) -> None:
        self._owners = owners
        self._pool, self._key = pool, key
        self._turn: TurnFacts | None = turn
        self._then = then
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(PATIENCE_S, self._too_late)

    def _too_late(self) -> None:
        if self._owners.has_room(self._pool):
            self._leave()
        else:
            self._timer = asyncio.get_running_loop().call_later(HELD_PATIENCE_S - PATIENCE_S, self._leave)

    def _leave(self) -> None:
        """Go on without an answer."""
        self._owners.late += 1
        self._go_on(guest=False)

    def answered(self, answer: Answer | None) -> None:
        guest = answer is not None and answer["got"] == "busy"
        if answer is not None and not guest:
            self._owners.taken((self._pool, self._key), answer)
        self._go_on(guest=guest)

    def _go_on(self, *, guest: bool) -> None:
        """``guest``: other turns of the session run elsewhere; this one takes room of its own, and leaves with it."""
        turn, self._turn = self._turn, None
        if turn is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._then(dataclasses.replace(turn, final=True) if guest else turn)
