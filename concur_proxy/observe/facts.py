"""What a scrape reads of the running proxy; ``runtime`` gathers it. None is unknown and makes no sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from concur_proxy.core.report import GateSnapshot
from concur_proxy.model import BackendId, Signals


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What is known of one backend beyond the gate."""

    signals: Signals
    """What the newest update of its window went by."""
    state: str = "unknown"
    """Of its health: what the probes and the turns there say."""
    models: tuple[str, ...] = ()
    """What it serves, as it says."""
    law_values: Mapping[str, float] = field(default_factory=dict)
    """What its law knows and goes by, by name."""
    set_by_operator: bool = False
    """The window was set by hand: the law does not move it."""
    connections_open: int = 0
    connections_idle: int = 0
    connection_retries: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0


@dataclass(frozen=True, slots=True)
class SharedFacts:
    """What is known of the other replicas of this proxy."""

    up: bool
    """Redis answers; where it does not, shares stay as they are."""
    leads: bool
    replicas: int
    """Heard of lately, this one included."""
    claims: int
    claims_late: int
    moved: int
    windows: Mapping[BackendId, float] = field(default_factory=dict)
    """What the replicas have together, in the law's unit."""


@dataclass(frozen=True, slots=True)
class ProxyFacts:
    """``stale_after_s`` is the age from which signals are too old to steer by."""

    law: str
    mode: str
    stale_after_s: float
    gate: GateSnapshot
    engines: Mapping[BackendId, EngineFacts]
    law_parameters: Mapping[str, float] = field(default_factory=dict)
    """What the law was told to go by: thresholds, factors, periods."""
    requests_open: int = 0
    """Requests on their way, held and running, on all paths."""
    background_leases: int = 0
    """Leases of background responses whose requests have been answered."""
    lineage_sessions: int | None = None
    """Sessions that are known by what they have said; None where none are."""
    lineage_bytes: int | None = None
    """Memory that this takes, as it is reckoned against its bound."""
    compiled: bool = False
    """The data path runs compiled."""
    repeats: Mapping[str, int] = field(default_factory=dict)
    """What became of requests that engines failed: sent again, resumed in the middle, or over the budget for that."""
    shared: SharedFacts | None = None
    """None where this proxy is the only one."""
