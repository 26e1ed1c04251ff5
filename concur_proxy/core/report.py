"""What the gate tells of itself: frozen pictures for status pages, metrics and tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from concur_proxy.model import AdmitWhy, BackendId, ColdLane, Outcome, PoolId, RefusalReason, SessionKey
from concur_proxy.windows.base import Unit


@dataclass(slots=True)
class Counts:
    """What has happened since the start."""

    arrived: int = 0
    abandoned: int = 0
    requeued: int = 0
    paused: int = 0
    resumed: int = 0
    reclaimed: int = 0
    leases_expired: int = 0
    admitted_by: dict[AdmitWhy, int] = field(default_factory=dict)
    finished: dict[Outcome, int] = field(default_factory=dict)
    refused: Counter[RefusalReason] = field(default_factory=Counter)
    cold_lane: Counter[ColdLane] = field(default_factory=Counter)
    """Changes of what becomes of cold turns, by what they became."""


@dataclass(frozen=True, slots=True)
class BackendSnapshot:
    id: BackendId
    pool: PoolId
    up: bool
    unit: Unit
    window: float
    minimum: float
    maximum: float
    hard: bool
    active: int
    """Sessions that hold a place."""
    running: int
    """Turns in flight."""
    idle: int
    held: int
    """Turns that wait in its pool."""
    footprint_tokens: float
    capacity_tokens: float | None
    cached_tokens: int
    """Cached prompt tokens that responses told, since the start."""
    expected_cached_tokens: int
    """What an undisturbed cache would have given for the same turns."""
    cache_tokens: float | None = None
    """KV cache that seems to be there for our sessions; None where nobody knows the capacity."""

    @property
    def evicted_tokens(self) -> int:
        """Expected in the cache and not found there."""
        return max(0, self.expected_cached_tokens - self.cached_tokens)


@dataclass(frozen=True, slots=True)
class HotLane:
    """How interactive turns of a pool fare, where they have an objective."""

    cold_lane: ColdLane
    """What becomes of batch work therefore."""
    p99_s: float | None
    """Of the times to the first token in the last window; None where nobody asked for anything."""


@dataclass(frozen=True, slots=True)
class GateSnapshot:
    """Invariant 1: arrived = admitted + held + refused + abandoned; admitted = running + finished."""

    arrived: int
    admitted: int
    running: int
    finished: Mapping[Outcome, int]
    held: int
    refused: Mapping[RefusalReason, int]
    abandoned: int
    admitted_by: Mapping[AdmitWhy, int]
    """Grants, repeated ones of turns that were put back included."""
    requeued: int
    paused: int
    resumed: int
    reclaimed: int
    leases_expired: int
    sessions: int
    backends: Mapping[BackendId, BackendSnapshot]
    held_paused: int = 0
    """Held turns whose sessions have run before."""
    longest_wait_s: float | None = None
    """Time that the turn which stands in line longest has waited; None where none waits."""
    hot_lanes: Mapping[PoolId, HotLane] = field(default_factory=dict)
    """Pools in which interactive turns have an objective."""
    cold_lane_changes: Mapping[ColdLane, int] = field(default_factory=dict)
    """How often batch work came to be let on, held back and refused."""


@dataclass(frozen=True, slots=True)
class SessionView:
    key: SessionKey
    state: str
    """running, idle, held (never admitted), paused, or gone (no place, no turn)."""
    backend: BackendId | None
    turns: int
    footprint_tokens: float
    idle_s: float | None
    lease_s: float | None
    rule: str
    parent: SessionKey | None


@dataclass(frozen=True, slots=True)
class HeldView:
    """A turn that waits."""

    session: SessionKey
    named: bool
    """False: a turn without a session, whose key means nothing."""
    paused: bool
    """Its session has run before."""
    rule: str
    pool: PoolId
    backend: BackendId | None
    """Where its context is, or was."""
    waited_s: float
    left_s: float
    """Until it is refused."""
    footprint_tokens: float
