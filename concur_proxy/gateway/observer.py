"""Where tracing looks at turns. By default nobody does, and a turn only finds that out.

    begin ──▶ (held ──▶) admitted ──▶ sent ──▶ first_byte ──▶ ended

Calls that do not pass the gate are never held or admitted. A turn that goes to an engine again (it was full, or lost)
is held, admitted and sent again; every story has one ``begin`` and one ``ended``. All methods return at once and never
raise: they are called in the middle of a request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from concur_proxy.model import BackendId
from concur_proxy.observe.turnlog import TurnLog


@dataclass(frozen=True, slots=True)
class Ingress:
    """A request that has been read."""

    at: float
    """Seconds of the dispatcher's clock, as all times here."""
    request_id: str
    kind: str
    """Family of its path, as in ``TurnLog``."""
    headers: Mapping[str, str]
    """By lower-case name: ``traceparent``, ``tracestate`` and ``baggage`` are among them. Keys are, too: log none."""


class TurnTrace(Protocol):
    """The story of one turn."""

    @property
    def traceparent(self) -> bytes:
        """What the engine is told instead of what the client sent (W3C trace context); empty: just that.

        Asked after ``sent``: a call may have a context of its own.
        """

    def held(self, at: float) -> None: ...

    def admitted(self, at: float, backend: BackendId) -> None: ...

    def sent(self, at: float, backend: BackendId) -> None:
        """The request is on its way to an engine."""

    def first_byte(self, at: float, status: int) -> None:
        """The head of an engine's answer is there."""

    def ended(self, at: float, turn: TurnLog) -> None:
        """What the client got is complete, or will never be."""


class TurnObserver(Protocol):
    def begin(self, ingress: Ingress) -> TurnTrace | None:
        """Return who takes down this turn's story; None where it is left out."""
