"""Pools of interchangeable backends, each with the line of the turns that wait for them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from concur_proxy.core.backend import Backend
from concur_proxy.core.breaker import Breaker
from concur_proxy.core.order.base import HEAD_START, Size
from concur_proxy.core.order.registry import make_order
from concur_proxy.core.ordering import Line
from concur_proxy.core.policy import GatePolicy
from concur_proxy.core.sessions import Session, Turn
from concur_proxy.model import BackendId, ColdLane, Outcome, PoolId, Usage

LOOK_EVERY_S = 1.0


@dataclass(slots=True, eq=False)
class Pool:
    id: PoolId
    line: Line
    backends: dict[BackendId, Backend] = field(default_factory=dict)
    seen_at: float = -math.inf
    """When the need of hot sessions was looked at last."""
    breaker: Breaker | None = None
    """Where there is an objective for hot turns."""

    def see_hot(self, now: float) -> None:
        """Learn what hot sessions need; a look each second is enough."""
        if now - self.seen_at >= LOOK_EVERY_S:
            self.seen_at = now
            for backend in self.backends.values():
                backend.see_hot(now)

    @property
    def cold_lane(self) -> ColdLane:
        return ColdLane.OPEN if self.breaker is None else self.breaker.state

    @property
    def is_up(self) -> bool:
        return any(backend.up for backend in self.backends.values())


class Pools:
    """Only backends make pools, never clients (invariant 9); one without backends is forgotten."""

    __slots__ = ("_backends", "_policy", "_pools", "_size", "learns", "watch_at")

    def __init__(self, policy: GatePolicy, size: Size) -> None:
        self._policy = policy
        self._size = size
        self.learns = make_order(policy, size).learns
        """The order in force wants to hear of turns that have run."""
        self._backends: dict[BackendId, Backend] = {}
        self._pools: dict[PoolId, Pool] = {}
        self.watch_at = math.inf
        """When the next window of a breaker ends; infinite where hot turns have no objective."""

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

    def holds(self, turn: Turn) -> bool:
        """Tell whether a turn must wait, whatever room there is."""
        pool = self._pools.get(turn.facts.pool)
        return pool is not None and pool.line.holds(turn)

    def line_up_anew(self, turn: Turn) -> None:
        """Let a turn that stands in line look where to stand now."""
        pool = self._pools.get(turn.facts.pool)
        if pool is not None:
            pool.line.move(turn)

    def add(self, backend: Backend) -> None:
        if backend.id in self._backends:
            raise ValueError(f"backend {backend.id} is here already")
        self._backends[backend.id] = backend
        self._set_lanes(backend)
        self._enter(backend)

    def remove(self, backend: Backend) -> None:
        del self._backends[backend.id]
        self._leave(backend)

    def move(self, backend: Backend, pool: PoolId) -> None:
        self._leave(backend)
        backend.pool = pool
        self._enter(backend)

    def set_policy(self, policy: GatePolicy) -> None:
        """Change the rules; where the order changes, everybody who waits lines up anew."""
        before, self._policy = self._policy, policy
        changed = (before.order, before.weights) != (policy.order, policy.weights)
        for pool in self._pools.values():
            if changed:
                pool.line.set_order(make_order(policy, self._size))
            pool.line.order.head_start_s = HEAD_START * policy.max_wait_s
            if before != policy:
                self._watch(pool, before)
        self.learns = make_order(policy, self._size).learns
        for backend in self._backends.values():
            self._set_lanes(backend)

    def _set_lanes(self, backend: Backend) -> None:
        backend.has_lanes = self._policy.order == "lanes"
        backend.hot_share = self._policy.hot_share if backend.has_lanes else 0.0

    def finished(self, turn: Turn, usage: Usage | None) -> None:
        """Let the order learn from a turn that has run."""
        pool = self._pools.get(turn.facts.pool)
        if pool is not None:
            pool.line.order.finished(turn, usage)

    def heard(self, turn: Turn, outcome: Outcome, first_token_at: float | None, now: float) -> None:
        """Let the breaker know how long a hot turn took; asked only where there is one."""
        pool = self._pools.get(turn.facts.pool)
        if turn.session.cold or pool is None or pool.breaker is None:
            return
        latency_s = (now if first_token_at is None else first_token_at) - turn.arrived_at
        if first_token_at is not None or outcome is Outcome.COMPLETED:
            pool.breaker.saw(latency_s)
        elif outcome is not Outcome.CLIENT_ERROR:
            pool.breaker.saw_at_least(latency_s)

    def _watch(self, pool: Pool, before: GatePolicy | None) -> None:
        """Give a pool its breaker, a new one where its rules have changed."""
        policy = self._policy
        if policy.order != "lanes" or policy.hot_objective_s <= 0.0:
            pool.breaker = None
        elif pool.breaker is None or before is None or _rules(before) != _rules(policy):
            pool.breaker = Breaker(policy)
        self.hold_cold(pool)

    def hold_cold(self, pool: Pool) -> None:
        """Put in force what a pool's breaker says; and see when to look next."""
        pool.line.holds_cold = pool.cold_lane is not ColdLane.OPEN and self._policy.mode == "enforce"
        breakers = (each.breaker for each in self._pools.values())
        self.watch_at = min((breaker.ends_at for breaker in breakers if breaker is not None), default=math.inf)

    def vanished(self, session: Session) -> None:
        """Let the order learn from a session of which nothing more is expected."""
        pool = self._pools.get(session.pool)
        if pool is not None and self.learns:
            pool.line.order.vanished(session)

    def clean_up(self, pool: PoolId) -> None:
        """Forget a pool that nobody serves."""
        found = self._pools.get(pool)
        if found is not None and not found.backends:
            del self._pools[pool]

    def _enter(self, backend: Backend) -> None:
        pool = self._pools.get(backend.pool)
        if pool is None:
            pool = self._pools[backend.pool] = Pool(backend.pool, Line(make_order(self._policy, self._size)))
            self._watch(pool, None)
        pool.backends[backend.id] = backend

    def _leave(self, backend: Backend) -> None:
        del self._pools[backend.pool].backends[backend.id]


def _rules(policy: GatePolicy) -> tuple[float, float, float]:
    return policy.hot_objective_s, policy.hot_window_s, policy.cold_refuse_after_s
