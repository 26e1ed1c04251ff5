"""Keeps gate and dispatcher told which backends stand in for each other."""

from __future__ import annotations

from collections.abc import Callable

from concur_proxy.control.ports import PoolPort
from concur_proxy.fleet.pool import Fleet, Models
from concur_proxy.model import BackendId, PoolId


class Roster:
    """The fleet, with everybody told of its changes."""

    __slots__ = ("_port", "_told", "fleet")

    def __init__(self, fleet: Fleet, port: PoolPort) -> None:
        self.fleet = fleet
        self._port = port
        self._told: dict[PoolId, tuple[BackendId, ...]] = {}

    def add(self, backend: BackendId) -> None:
        self._apply(lambda: self.fleet.add(backend))

    def learn(self, backend: BackendId, models: Models) -> None:
        self._apply(lambda: self.fleet.learn(backend, models))

    def remove(self, backend: BackendId) -> None:
        self._apply(lambda: self.fleet.remove(backend))

    def _apply(self, change: Callable[[], dict[BackendId, PoolId]]) -> None:
        changed = change()
        members = self.fleet.pools()
        for pool in self._told.keys() | members.keys():
            if self._told.get(pool) != members.get(pool):
                self._port.set_members(pool, members.get(pool, ()))
        self._told = members
        for backend, pool in changed.items():
            self._port.set_pool(backend, pool)
