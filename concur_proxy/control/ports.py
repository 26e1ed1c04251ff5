"""What the control loops need from elsewhere beside the gate: a way to ask an engine, and the time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from concur_proxy.control.target import EngineTarget
from concur_proxy.model import BackendId, PoolId

Clock = Callable[[], float]
"""Seconds of the one monotonic clock."""


class PoolPort(Protocol):
    """Who must know which backends stand in for each other: the dispatcher again."""

    def set_pool(self, backend: BackendId, pool: PoolId) -> None: ...

    def set_members(self, pool: PoolId, backends: Iterable[BackendId]) -> None: ...


@dataclass(frozen=True, slots=True)
class Reply:
    """What an engine answered to a probe."""

    status: int
    text: str


@dataclass(frozen=True, slots=True)
class Unreached:
    """There was no whole answer; ``reason`` says why, in words for an operator."""

    reason: str
    silent: bool = False
    """No answer came in time; the engine may be there, but busy."""


class Fetch(Protocol):
    """Asks an engine for one page. Never raises: whatever goes wrong is an ``Unreached``."""

    async def __call__(self, target: EngineTarget, path: str, *, timeout_s: float) -> Reply | Unreached:
        """Return the answer to ``GET path``; a path that is a whole URL is taken as it is."""
        ...


class Prepare(Protocol):
    """Makes a backend ready for turns. Never raises, and is done in bounded time."""

    async def __call__(self, target: EngineTarget, *, trial: bool) -> str | None:
        """Return what a trial has shown to be wrong, None for nothing; without ``trial`` the cache is warmed."""
        ...
