"""What a scrape reads of the running proxy; ``runtime`` gathers it. None is unknown and makes no sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from concur_proxy.core.report import GateSnapshot
from concur_proxy.model import BackendId, Signals


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What is known of one backend beyond the gate."""

    signals: Signals
    """What the newest update of its window went by."""
    connections_open: int = 0
    connections_idle: int = 0
    connection_retries: int = 0


@dataclass(frozen=True, slots=True)
class ProxyFacts:
    """``stale_after_s`` is the age from which signals are too old to steer by."""

    law: str
    mode: str
    stale_after_s: float
    gate: GateSnapshot
    engines: Mapping[BackendId, EngineFacts]
