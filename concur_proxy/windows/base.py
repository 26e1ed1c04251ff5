"""The contract between the gate and the laws that move its window.

Once per control period, per backend, the loop hands a law what the engine says (``Signals``) and what the gate sees
(``WindowView``) and gets a ``Verdict``. Laws also see every finished turn. They know no clock and keep no session.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from concur_proxy.model import Signals, TurnRecord


class Unit(enum.Enum):
    """What a window counts."""

    SESSIONS = "sessions"
    TOKENS = "tokens"


@dataclass(frozen=True, slots=True)
class WindowView:
    """One backend as the gate sees it at the moment of an update."""

    window: float
    """The window in force, in the law's unit; infinite for ``unlimited``."""
    minimum: float
    maximum: float
    active: int
    """Sessions that hold a place: running and idle."""
    running: int
    held: int
    """Turns that wait in the pool of this backend."""
    bound: bool
    """The window has kept a turn waiting at some time since the last update: growth would be used (invariant 5)."""
    footprint_tokens: float
    """Tokens that active sessions occupy, shared prefixes counted once."""
    typical_footprint_tokens: float | None
    """Mean footprint of an active session; None before the first."""
    records_age_s: float
    """Seconds since the last finished turn; infinite before the first."""
    shared_tokens: float = 0.0
    """Part of ``footprint_tokens`` that is prefixes which sessions share."""
    running_tokens: float = 0.0
    """Tokens of the running turns' contexts, what they will generate included."""
    busy_s: float = 0.0
    """Seconds in which something ran, since the backend is known."""
    cache_tokens: float | None = None
    """KV cache that seems to be there for our sessions; None where nobody knows the capacity."""
    departed: int = 0
    """Sessions that have ended here since the backend is known, or that have been away for longer than their leases."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The law's answer: the window from now on, whether it is a hard limit, and why, in one sentence for a person."""

    window: float
    reason: str
    hard: bool = False
    """A hard limit holds every turn over it, warm or not (preemptions, the engine's own 429/503)."""


@runtime_checkable
class Learner(Protocol):
    """A law that learns what is worth keeping across restarts."""

    def dump(self) -> Mapping[str, object]:
        """Return what has been learned: plain values, ready for JSON."""
        ...

    def load(self, state: Mapping[str, object]) -> None:
        """Take over what ``dump`` gave; ValueError where it is not that, and nothing has changed."""
        ...


class Law(Protocol):
    """A control law. ``update`` is called about once a second; a law ignores calls within its own stated period."""

    @property
    def name(self) -> str: ...

    @property
    def unit(self) -> Unit: ...

    def start(self, *, capacity_tokens: float | None, typical_footprint_tokens: float | None) -> float:
        """Return the first window (warm start), before anything has been seen."""
        ...

    def observe(self, record: TurnRecord, *, now: float) -> None:
        """Take in a finished turn."""
        ...

    def update(self, signals: Signals, view: WindowView, *, now: float) -> Verdict:
        """Return the window from now on."""
        ...

    def snapshot(self) -> Mapping[str, object]:
        """Return what the law knows, for ``GET /concur/status``."""
        ...
