"""Keeps in touch with the other replicas: tells what is here, applies shares, and leads where nobody else does.

    every POLL_S, and whenever there is news     sync: what is in use here  ─▶  what may be in use here
    where this replica leads                     lead: windows, targets     ─▶  everybody's reports

A share that falls is in force as soon as it is heard of, and given to others when Redis has been told so; one that
rises is there already in Redis. So the sum of what is in use never exceeds the window, whatever is lost on the way.

While Redis is gone for all everything stays as it is. One that is cut off alone, which it hears from others that are
not (``neighbours``), gives its share up before others are given it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from concur_proxy.core.gate import Decision
from concur_proxy.model import BackendId, RefusalReason, TurnRecord
from concur_proxy.state.holding import Holding, Whole, text
from concur_proxy.state.leader import Leader
from concur_proxy.state.link import TIMEOUT_S, Answer, Link, Operation, Then
from concur_proxy.state.owners import Owners, Place
from concur_proxy.state.ports import Door, Laws
from concur_proxy.state.reports import Departures, Report, add_up, dump_records, dump_reports, load_records, report_of
from concur_proxy.state.shares import Demand
from concur_proxy.tasks import end
from concur_proxy.windows.base import Unit, WindowView

POLL_S = 0.25
"""Longest time between two syncs."""

TICK_S = 0.025
"""Shortest time between two syncs for more room."""

MEMBER_MS = 5000
"""A replica that is not heard of for this long is dead: what it had in use is free."""

SUSPECT_S = 3.0
"""After so long without an answer a replica asks its neighbours whether they have one, in time for ``MEMBER_MS``."""

ASK_EVERY_S = 0.5

REFUSE_AFTER_S = 20.0
"""One that is cut off lets turns wait for so long, since most cuts are short; then it refuses them."""

FRESH_S = 1.5
"""Whoever has had an answer to what was sent within this time reaches Redis."""

GRACE_MS = 2000
"""After silence, or where Redis knows nothing: time for all replicas to say what they use."""

MOST_RECORDS = 2000
"""Finished turns that wait to be told to the leader."""

_log = logging.getLogger(__name__)


class Replica:
    """One of several; ``name`` is its own and never used again."""

    def __init__(self, link: Link, door: Door, *, name: str, max_sessions: int) -> None:
        self.link = link
        self.door = door
        self.name = name
        self.owners = Owners(
            link, door, limit=2 * max_sessions, on_place=self._place_came, newest_sync=lambda: self._number
        )
        self.leader = Leader(link, name, door.clock, self._led)
        self.peers = 0
        self.address = ""
        """Where others may ask whether we reach Redis; empty for nowhere."""
        self.neighbours: list[tuple[str, str]] = []
        """Names and addresses of the others."""
        self.ask_neighbours: Callable[[list[tuple[str, str]], Callable[[], None]], None] = lambda _others, _then: None
        """Call back where one of them reaches Redis."""
        self.is_cut_off = False
        """Others reach Redis, and we do not: our share is theirs."""
        self.settled = False
        """Redis knows this replica, and everybody has had the time to say what they use."""
        self.is_leaving: Callable[[], bool] = lambda: False
        self._laws: Laws | None = None
        self._holdings: dict[BackendId, Holding] = {}
        self._reports: dict[str, dict[BackendId, Report]] = {}
        self._departures = Departures()
        self._records: list[TurnRecord] = []
        self._refused: Counter[BackendId] = Counter()
        self._number = 0
        self.born = 0
        """The sync since which Redis knows us."""
        self.moves_seen = 0
        """How many of the sessions that others have taken from us we have heard of."""
        self._due = True
        self._synced_at = self._heard_at = self._asked_at = -math.inf
        self._refuses_at = math.inf
        self._told: dict[BackendId, float] = {}
        self._tasks: list[asyncio.Task[None]] = []
        link.first = self._first
        link.on_change = self._link_changed
        door.gate.on_paused(self.owners.paused)
        door.gate.on_vacated(self.owners.vacated)

    # life

    def start(self, laws: Laws) -> None:
        self._laws = laws
        self.link.start()
        self.link.hurry()
        self._tasks.append(asyncio.get_running_loop().create_task(self._poll(), name="state poll"))

    async def stop(self) -> None:
        """Leave in an orderly way: what was in use here is free at once."""
        await end(*self._tasks)
        if self.link.up:
            await self.link.ask(["leave"])
        await self.link.aclose()

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.look()

    def look(self) -> None:
        """Sync where it is time to, and at once where turns wait for more room than we have."""
        now = self.door.clock()
        if self.neighbours and now - self._heard_at >= SUSPECT_S and now - self._asked_at >= ASK_EVERY_S:
            self._asked_at = now
            self.ask_neighbours(self.neighbours, self._cut_off)
        if now >= self._refuses_at:
            self._refuses_at = math.inf
            self.door.refuse_all(RefusalReason.CUT_OFF)
        if not self.link.up and now - self._heard_at >= MEMBER_MS / 1000 + TIMEOUT_S:
            self.owners.free_all()
        since = now - self._synced_at
        if since >= POLL_S or (self.door.held and self.link.up):
            self.sync_soon()

    @property
    def reaches_redis(self) -> bool:
        return self.door.clock() - self._heard_at < FRESH_S

    def _cut_off(self) -> None:
        """Others reach Redis: they will be given our share, if we are not heard of in time."""
        if self.is_cut_off or self.door.clock() - self._heard_at < SUSPECT_S:
            return
        self.is_cut_off = True
        _log.warning("cut off from the shared state, which others reach: no turns here until it answers")
        for backend, holding in self._holdings.items():
            holding.in_force = holding.target = 0.0
            if holding.whole is not None:
                self._set_share(backend, holding)
        self._refuses_at = self.door.clock() + REFUSE_AFTER_S

    def sync_soon(self) -> None:
        self._due = True
        self.link.hurry()

    def _link_changed(self, up: bool) -> None:  # noqa: FBT001 - a callback
        if up:
            self.owners.say_all()
            return
        for backend, holding in self._holdings.items():
            holding.elsewhere, holding.running_elsewhere, holding.waiting_elsewhere = (
                0.0,
                0,
                0,
            )  # nobody knows: every gate goes by what it sees
            if holding.whole is not None:
                self._set_share(backend, holding)

    @property
    def leads(self) -> bool:
        return self.leader.leads

    @property
    def windows(self) -> dict[BackendId, float]:
        """The whole of each, as far as it is known."""
        return {name: each.whole.window for name, each in self._holdings.items() if each.whole is not None}

    # what the control loop tells

    def begin(self, backend: BackendId, unit: Unit, window: float) -> None:
        """A law takes over a window: here its first value, in force where no leader has decided otherwise."""
        holding = self._holdings.get(backend)
        if holding is None:
            holding = self._holdings[backend] = Holding(unit)
        if holding.whole is None or holding.unit is not unit or self.leads:
            self.leader.decide(backend, Whole(window, unit), first=not self.leads)
        if holding.unit is not unit or holding.whole is None:
            self._set_unit(backend, holding, unit)

    def set_bounds(self, backend: BackendId, minimum: float, maximum: float) -> None:
        holding = self._holdings.get(backend)
        if holding is None:
            holding = self._holdings[backend] = Holding(Unit.SESSIONS)
        holding.minimum, holding.maximum = minimum, maximum
        self.door.set_bounds(backend, 0.0, maximum)

    def set_capacity(self, backend: BackendId, tokens: float) -> None:
        holding = self._holdings.get(backend)
        if holding is not None:
            holding.capacity_tokens = tokens
            self._tell_capacity(backend, holding)
        else:
            self._holdings[backend] = Holding(Unit.SESSIONS, capacity_tokens=tokens)

    def decide(self, backend: BackendId, window: float, *, hard: bool) -> None:
        """Set the whole window, where this replica leads."""
        if self.leads:
            self.leader.bound.discard(backend)
            self.leader.decide(backend, Whole(window, self._holdings[backend].unit, hard))

    def view(self, backend: BackendId) -> WindowView:
        """Return a backend as all replicas see it, where this one leads; else as it is here."""
        whole = self.leader.decided.get(backend)
        if not self.leads or whole is None:
            return self.door.view(backend)
        holding = self._holdings[backend]
        here = self._view_here(backend, holding)
        self._departures.hear(self.name, backend, here.departed)
        bound = here.bound or holding.bound
        others = [said[backend] for name, said in self._reports.items() if name != self.name and backend in said]
        return add_up(
            [report_of(here, self._demand(backend), bound=bound), *others],
            window=whole.window,
            minimum=holding.minimum,
            maximum=holding.maximum,
            bound=bound or backend in self.leader.bound,
            departed=self._departures.of(backend),
        )

    # what the proxy tells

    def record(self, record: TurnRecord) -> None:
        """A turn has finished here: whoever leads learns from it."""
        if not self.leads and len(self._records) < MOST_RECORDS:
            self._records.append(record)

    def refused(self, backend: BackendId) -> None:
        """An engine has refused a turn of ours."""
        if not self.leads:
            self._refused[backend] += 1
            self.sync_soon()

    # sync

    def _first(self) -> tuple[Operation, Then] | None:
        """Make the sync that is due: what is in force now, and nothing on its way that could change it."""
        if not self._due:
            return None
        self._due = False
        self._number += 1
        for backend in [each for each in self._holdings if self.door.gate.pool_of(each) is None]:
            del self._holdings[backend]
            self.leader.forget(backend)
        now = self._synced_at = self.door.clock()
        reports = {backend: self._report(backend, holding) for backend, holding in self._holdings.items()}
        using = {backend: holding.in_force for backend, holding in self._holdings.items()}
        windows = [
            [each, text(using[each]), text(report.demand.load), report.running, report.held, *self._cached(each)]
            for each, report in reports.items()
        ]
        turns = self._turns(now)
        wants = self._wants(reports)
        heard_of = [self.born, self.moves_seen]
        operation = ["sync", self._number, MEMBER_MS, heard_of, dump_reports(reports), windows, turns, GRACE_MS]
        moved = self.owners.take_moved_places()
        return [*operation, wants, self.address], lambda answer: self._synced(answer, using, now, moved)

    def _report(self, backend: BackendId, holding: Holding) -> Report:
        view = self._view_here(backend, holding)
        bound = view.bound or holding.bound
        holding.bound = False
        return report_of(view, self._demand(backend), bound=bound, leaving=self.is_leaving())

    def _view_here(self, backend: BackendId, holding: Holding) -> WindowView:
        view = self.door.view(backend)
        return replace(view, cache_tokens=holding.whole_cache_tokens(view.cache_tokens))

    def _demand(self, backend: BackendId) -> Demand:
        asked = self.door.gate.asked(backend, now=self.door.clock())
        waited_s = asked.waited_s if asked.waited_s >= 0 else None
        return Demand(asked.load, asked.wanted, asked.first, waited_s, asked.rank)

    def _wants(self, reports: Mapping[BackendId, Report]) -> bool:
        """Tell whether the leader should hear at once: more is asked for than there is, and more than before."""
        wants = False
        for backend, report in reports.items():
            asked = report.demand.whole
            short = report.demand.wanted > 0 and asked > self._holdings[backend].in_force
            wants = wants or (short and asked > self._told.get(backend, 0.0))
            self._told[backend] = asked if short else 0.0
        return wants

    def _turns(self, now: float) -> str:
        if not self._records and not self._refused:
            return ""
        said = {"records": dump_records(self._records, now=now), "refused": dict(self._refused)}
        self._records.clear()
        self._refused.clear()
        return json.dumps(said)

    def _synced(
        self, answer: Answer | None, using: Mapping[BackendId, float], sent_at: float, moved: Sequence[Place]
    ) -> None:
        if answer is None or answer.get("late"):
            self.owners.put_moved_places(moved)
            return
        self._hear_of_others(answer, sent_at)
        if answer["born"] != self.born:
            self.born, self.moves_seen = answer["born"], 0
            self.owners.free_all()  # of one that was taken for dead nobody could take them
            self.owners.say_all()
        for count, name in answer["moves"] or ():
            self.moves_seen = max(self.moves_seen, count)
            self.owners.moved_away(name)
        for name, (grant, target, *decided) in (answer["shares"] or {}).items():
            backend = BackendId(name)
            if (holding := self._holdings.get(backend)) is not None:
                holding.target, whole, running = float(target), holding.whole, holding.running_elsewhere
                if decided:
                    whole = Whole(float(decided[0]), Unit(decided[2]), decided[1])
                    holding.elsewhere = float(decided[3])
                    holding.running_elsewhere, holding.waiting_elsewhere = decided[4], decided[5]
                    holding.cached_elsewhere, holding.oldest_elsewhere_s = float(decided[6]), float(decided[7])
                if whole is not None:
                    self._apply(backend, holding, float(grant), whole, news=running != holding.running_elsewhere)
                self._tell_capacity(backend, holding)
        self.owners.free(moved)
        if answer["moves"] or any(self._holdings[each].in_force < using[each] - 1e-9 for each in using):
            self.sync_soon()  # what we have given back is others' when Redis has heard that we have
        if answer["leader"] in {"", self.name}:
            self.leader.renew()

    def _hear_of_others(self, answer: Answer, sent_at: float) -> None:
        self._heard_at = sent_at
        self.peers, self.settled = answer["peers"], not answer["settling"]
        self.neighbours = [(name, address) for name, address in answer.get("addresses") or () if address]
        if self.is_cut_off:
            self.is_cut_off, self._refuses_at = False, math.inf
            if not self.is_leaving():
                self.door.reopen()

    def _apply(self, backend: BackendId, holding: Holding, grant: float, whole: Whole, *, news: bool) -> None:
        """Put a share in force; ``news``: the gate should hear of others, whatever the share."""
        if whole.unit is not holding.unit:
            holding.whole = whole
            self._set_unit(backend, holding, whole.unit)
        elif (
            news
            or grant != holding.in_force
            or whole != holding.whole
            or self.door.held
            or self._is_over(backend, grant)
        ):
            holding.in_force, holding.whole = grant, whole
            self._set_share(backend, holding)

    def _is_over(self, backend: BackendId, grant: float) -> bool:
        return self._demand(backend).load > grant

    def _set_share(self, backend: BackendId, holding: Holding) -> None:
        holding.bound = holding.bound or self.door.view(backend).bound
        whole, demand = holding.whole, self._demand(backend)
        assert whole is not None
        may_have_room = self.link.up and demand.load + holding.elsewhere + demand.first <= whole.window

        def act(now: float) -> list[Decision]:
            return self.door.gate.set_share(
                backend,
                holding.in_force,
                whole=whole.window,
                hard=whole.hard or self.is_cut_off,
                elsewhere=holding.running_elsewhere,
                may_have_room=may_have_room,
                wanted_beside=holding.elsewhere if holding.waiting_elsewhere else None,
                now=now,
            )

        self.door.carry_out(act)

    def _set_unit(self, backend: BackendId, holding: Holding, unit: Unit) -> None:
        """What is in force in another unit says nothing in this one."""
        holding.unit, holding.in_force = unit, 0.0
        self.door.set_unit(backend, unit, 0.0)
        if holding.whole is None:  # nobody is alone here until it is known that nobody else is there
            self.door.carry_out(lambda now: self.door.gate.set_share(backend, 0.0, whole=math.inf, now=now))
        self.sync_soon()

    def _tell_capacity(self, backend: BackendId, holding: Holding) -> None:
        """Let the gate's shadow of the cache have the part that our sessions use; small changes are none."""
        told, seems = holding.told_capacity, self.door.view(backend).cache_tokens
        trust = seems / told if seems and told else 1.0
        tokens = holding.our_cache_tokens(self._cached(backend)[1], self.peers + 1, trust)
        if tokens is None or (told and abs(tokens - told) < 0.02 * told):
            return
        holding.told_capacity = tokens
        self.door.set_capacity(backend, tokens)

    def _cached(self, backend: BackendId) -> tuple[int, float]:
        asked = self.door.gate.asked(backend, now=self.door.clock())
        return asked.resident, asked.oldest_s

    def _place_came(self, backend: BackendId, charge: float, tokens: int) -> None:
        """A session brings its place with it, and a context that others have counted until now."""
        holding = self._holdings.get(backend)
        if holding is not None:
            holding.in_force += charge
            holding.target += charge
            holding.cached_elsewhere = max(0.0, holding.cached_elsewhere - tokens)
            self._tell_capacity(backend, holding)

    # leading

    def _led(self, reports: dict[str, dict[BackendId, Report]], learned: Mapping[str, Any] | None) -> None:
        """Everybody's reports have come; ``learned``: we lead from now on."""
        self._reports = reports
        self._departures.keep(reports)
        for name, said in reports.items():
            for backend, report in said.items():
                if name != self.name:
                    self._departures.hear(name, backend, report.departed)
        if learned is not None and self._laws is not None:
            self._laws.take_over(learned)

    def heard(self, said: Mapping[str, str]) -> None:
        """Another replica has told of its turns."""
        if self._laws is None or said.get("from") == self.name:
            return
        try:
            turns = json.loads(said["turns"])
            records = load_records(turns["records"], now=self.door.clock())
        except (KeyError, TypeError, ValueError) as error:
            _log.warning("what another replica told of its turns is ignored: %s", error)
            return
        for record in records:
            self._laws.finished(record)
        for backend, count in turns["refused"].items():
            for _ in range(count):
                self._laws.refused(BackendId(backend))

    def woken(self, why: str, whom: str) -> None:
        """Something has happened that others may want to hear of."""
        if why == "targets" or (why == "moved" and whom == self.name):
            self.sync_soon()
        elif why == "freed":
            if whom != self.name and any(holding.is_short for holding in self._holdings.values()):
                self.sync_soon()
        elif self.leads:
            self.leader.renew()
        elif why == "gone":
            self.sync_soon()
