"""Shares of the engines in proportion to weights, whoever sends most: the tenant served least goes first."""

from __future__ import annotations

import heapq
from collections.abc import Mapping

from concur_proxy.core.lane import Entry, Lane, LaneName
from concur_proxy.core.order.base import OVERDUE, Order, Place, fifo_key
from concur_proxy.core.order.tenants import Accounts, Tenant
from concur_proxy.core.sessions import Turn
from concur_proxy.model import Usage


class Fair(Order):
    """Tenants by what they were served over their weight; the turns of one tenant first come, first served.

    A tenant that sends far more than its share waits for it: its turns must not become overdue too soon.
    """

    patience = 3.0
    learns = True

    def __init__(self, head_start_s: float, weights: Mapping[str, float]) -> None:
        super().__init__(head_start_s)
        self.accounts = Accounts(weights)

    def rank(self, turn: Turn) -> tuple[int, float]:
        return 1, fifo_key(turn, self.head_start_s)

    def lane(self, name: LaneName) -> Lane:
        return SharedLane(name, self.accounts)

    def place(self, entry: Entry) -> Place:
        if entry.rank == OVERDUE:
            return entry[:3]
        tenant = self.accounts.of(entry.turn)
        return entry.rank, self.accounts.served(tenant), tenant.number, entry.key, entry.ticket

    def goes_before(self, entry: Entry, other: Entry) -> bool:
        return self.place(entry) < self.place(other)

    def joined(self, turn: Turn) -> None:
        self.accounts.joined(turn)

    def left(self, turn: Turn) -> None:
        self.accounts.left(turn)

    def granted(self, turn: Turn) -> None:
        self.accounts.granted(turn)

    def finished(self, turn: Turn, usage: Usage | None) -> None:
        self.accounts.finished(turn, usage)


class SharedLane(Lane):
    """A lane within a lane for each tenant, and one for whoever is overdue.

    Tenants stand in a heap by what they had been served when they were last looked at. Accounts never fall, so one that
    is not up to date is too far ahead, and is put right when it comes to the top.
    """

    __slots__ = ("_accounts", "_lanes", "_overdue", "_tenants")

    def __init__(self, name: LaneName, accounts: Accounts) -> None:
        super().__init__(name)
        self._accounts = accounts
        self._overdue = Lane(name)
        self._lanes: dict[Tenant, Lane] = {}
        self._tenants: list[tuple[float, int, Tenant]] = []

    def __len__(self) -> int:
        return len(self._overdue) + sum(len(lane) for lane in self._lanes.values())

    def push(self, entry: Entry) -> None:
        if entry.rank == OVERDUE:
            self._overdue.push(entry)
            return
        tenant = self._accounts.of(entry.turn)
        lane = self._lanes.get(tenant)
        if lane is None:
            lane = self._lanes[tenant] = Lane((self.origin, self.avoid, self.cold))
            heapq.heappush(self._tenants, (tenant.served, tenant.number, tenant))
        lane.push(entry)

    def head(self) -> Entry | None:
        return self._overdue.head() or self._fair_head()

    def _fair_head(self) -> Entry | None:
        tenants = self._tenants
        while tenants:
            seen, number, tenant = tenants[0]
            entry = self._lanes[tenant].head()
            if entry is None:
                heapq.heappop(tenants)
                del self._lanes[tenant]
            elif seen < tenant.served:
                heapq.heapreplace(tenants, (tenant.served, number, tenant))
            else:
                return entry
        return None

    def pop(self) -> None:
        if self._overdue.head() is not None:
            self._overdue.pop()
        else:
            self._lanes[self._tenants[0][2]].pop()

    def bury(self, entry: Entry) -> None:
        if entry.rank == OVERDUE:
            self._overdue.bury(entry)
        else:
            self._lanes[self._accounts.of(entry.turn)].bury(entry)

    def turns(self) -> list[Turn]:
        return [turn for lane in (self._overdue, *self._lanes.values()) for turn in lane.turns()]
