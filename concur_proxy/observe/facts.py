"""What a scrape reads of the running proxy; ``runtime`` gathers it. None is unknown and makes no sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from concur_proxy.model import AdmitWhy, BackendId, RefusalReason, Signals
from concur_proxy.windows.base import Unit


@dataclass(frozen=True, slots=True)
class BackendFacts:
    """One backend as the gate, the control loop and the data path see it."""

    backend: BackendId
    up: bool
    unit: Unit
    window: float
    """Infinite for the law ``unlimited``."""
    window_min: float
    window_max: float
    running: int
    """Sessions with a turn in flight."""
    idle: int
    """Sessions that hold a place between two turns."""
    footprint_tokens: float
    signals: Signals
    """What the newest update of the window went by."""
    sample_age_s: float
    """As of now, unlike that of the signals; infinite before the first sample."""
    stale: bool
    connections_open: int
    connections_idle: int
    connection_retries: int
    windows: tuple[tuple[float, float], ...] = ()
    """When the window was updated lately, and to what; oldest first."""


@dataclass(frozen=True, slots=True)
class TurnCounts:
    """Turns since the start: arrived = admitted + held + refused + abandoned (invariant 1)."""

    arrived: int
    admitted: Mapping[AdmitWhy, int]
    refused: Mapping[RefusalReason, int]
    abandoned: int
    requeued: int
    held: int


@dataclass(frozen=True, slots=True)
class SessionCounts:
    """Sessions now, and what happened to them since the start."""

    known: int
    paused: int
    pauses: int
    resumptions: int
    lease_expiries: int


@dataclass(frozen=True, slots=True)
class ProxyFacts:
    law: str
    mode: str
    turns: TurnCounts
    sessions: SessionCounts
    backends: tuple[BackendFacts, ...]
