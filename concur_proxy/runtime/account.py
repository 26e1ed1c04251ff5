"""Who is told of each turn: metrics, access log, laws and health, and the other replicas where there are some.

Compiled, as it runs for every request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from concur_proxy.control.health import Health
from concur_proxy.control.loop import ControlLoop
from concur_proxy.model import Outcome, TurnRecord
from concur_proxy.observe.logs import AccessLog
from concur_proxy.observe.tallies import Tallies
from concur_proxy.observe.turnlog import TurnLog

if TYPE_CHECKING:
    from concur_proxy.runtime.replicas import Replicas


class Account:
    __slots__ = ("_access_log", "_health", "_loop", "_replicas", "_tallies")

    def __init__(
        self, tallies: Tallies, access_log: AccessLog, loop: ControlLoop, health: Health, replicas: Replicas | None
    ) -> None:
        self._tallies = tallies
        self._access_log = access_log
        self._loop = loop
        self._health = health
        self._replicas = replicas

    def record(self, record: TurnRecord) -> None:
        """Take in a turn that has given its lease back."""
        self._tallies.record(record)
        self._loop.finished(record)
        if self._replicas is not None:
            self._replicas.record(record)
        if record.outcome is not Outcome.BACKEND_LOST:  # of those the data path tells by itself
            self._health.turn_ended(record.backend, record.outcome)

    def turn(self, turn: TurnLog) -> None:
        """Take in a request that has been answered."""
        self._tallies.turn(turn)
        self._access_log(turn)
        if self._replicas is not None:
            self._replicas.turn_over(turn.session)
