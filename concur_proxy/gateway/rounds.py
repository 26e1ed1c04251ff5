"""Something to be done for many at the same interval, by one timer: who came first is due first."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Protocol


class Member(Protocol):
    def on_round(self) -> None:
        """An interval has passed since ``start``, or since the last call."""


class Rounds:
    __slots__ = ("_due", "_interval_s", "_timer")

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._due: OrderedDict[Member, float] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def start(self, member: Member) -> None:
        """Call ``member`` from one interval on; nothing changes for one that is called already."""
        if member not in self._due:
            self._due[member] = asyncio.get_running_loop().time() + self._interval_s
            self._arm()

    def stop(self, member: Member) -> None:
        self._due.pop(member, None)
        if not self._due and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def __len__(self) -> int:
        return len(self._due)

    def _arm(self) -> None:
        if self._timer is None and self._due:
            self._timer = asyncio.get_running_loop().call_at(next(iter(self._due.values())), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        while self._due and next(iter(self._due.values())) <= now:
            member, _ = self._due.popitem(last=False)
            self._due[member] = now + self._interval_s
            member.on_round()
        self._arm()
