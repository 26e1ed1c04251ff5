"""Pools of interchangeable backends, each with the line of the turns that wait for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from concur_proxy.core.backend import Backend
from concur_proxy.core.ordering import Line
from concur_proxy.core.sessions import Turn
from concur_proxy.model import BackendId, PoolId


@dataclass(slots=True, eq=False)
class Pool:
    id: PoolId
    line: Line
    backends: dict[BackendId, Backend] = field(default_factory=dict)

    @property
    def is_up(self) -> bool:
        return any(backend.up for backend in self.backends.values())


class Pools:
    """Only backends make pools, never clients (invariant 9); one without backends is forgotten."""

    __slots__ = ("_backends", "_pools", "head_start_s")

    def __init__(self, head_start_s: float) -> None:
        self.head_start_s = head_start_s
        self._backends: dict[BackendId, Backend] = {}
        self._pools: dict[PoolId, Pool] = {}

    def __iter__(self) -> Iterator[Pool]:
        return iter(list(self._pools.values()))

    def get(self, pool: PoolId) -> Pool | None:
        return self._pools.get(pool)

    def backend(self, backend: BackendId) -> Backend:
        """Return a backend; raise ``KeyError`` for one that is not here."""
        return self._backends[backend]

    def backends(self) -> Iterator[Backend]:
        return iter(self._backends.values())

    def held(self, pool: PoolId) -> int:
        """Return how many turns wait in a pool."""
        found = self._pools.get(pool)
        return found.line.waiting if found is not None else 0

    def line_up_anew(self, turn: Turn) -> None:
        """Let a turn that stands in line look where to stand now."""
        pool = self._pools.get(turn.facts.pool)
        if pool is not None:
            pool.line.move(turn)

    def add(self, backend: Backend) -> None:
        if backend.id in self._backends:
            raise ValueError(f"backend {backend.id} is here already")
        self._backends[backend.id] = backend
        self._enter(backend)

    def remove(self, backend: Backend) -> None:
        del self._backends[backend.id]
        self._leave(backend)

    def move(self, backend: Backend, pool: PoolId) -> None:
        self._leave(backend)
        backend.pool = pool
        self._enter(backend)

    def set_head_start(self, seconds: float) -> None:
        self.head_start_s = seconds
        for pool in self._pools.values():
            pool.line.head_start_s = seconds

    def clean_up(self, pool: PoolId) -> None:
        """Forget a pool that nobody serves."""
        found = self._pools.get(pool)
        if found is not None and not found.backends:
            del self._pools[pool]

    def _enter(self, backend: Backend) -> None:
        pool = self._pools.get(backend.pool)
        if pool is None:
            pool = self._pools[backend.pool] = Pool(backend.pool, Line(self.head_start_s))
        pool.backends[backend.id] = backend

    def _leave(self, backend: Backend) -> None:
        del self._pools[backend.pool].backends[backend.id]
