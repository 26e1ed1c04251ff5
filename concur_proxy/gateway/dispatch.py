"""The gate among sockets: who waits is told, the clock is read, one timer stands for all deadlines.

The gate decides and never calls anybody; here its decisions reach the turns that wait for them. Calls that keep no KV
between turns do not pass the gate: ``place`` gives them the least busy backend.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from concur_proxy.core.gate import Decision, Gate, GatePolicy
from concur_proxy.core.report import GateSnapshot
from concur_proxy.model import (
    Admitted,
    BackendEvent,
    BackendId,
    FinishReason,
    Held,
    Lease,
    Outcome,
    PoolId,
    RefusalReason,
    Refused,
    SessionKey,
    TurnFacts,
    TurnRecord,
    Usage,
)
from concur_proxy.windows.base import Unit, WindowView

SHORTEST_TIMER_S: Final = 0.001
"""A deadline in the past must not make the loop spin."""

logger = logging.getLogger(__name__)


class Waiter(Protocol):
    """A turn that waits for the gate's answer: it gets exactly one of these, perhaps before ``arrive`` returns."""

    def granted(self, admitted: Admitted) -> None: ...

    def refused(self, refused: Refused) -> None: ...


def ignore(_: object) -> None:
    """Take no notice."""


class Dispatcher:
    """One per process, in one event loop."""

    def __init__(
        self,
        gate: Gate,
        *,
        clock: Callable[[], float] = time.monotonic,
        on_record: Callable[[TurnRecord], None] = ignore,
    ) -> None:
        self.gate = gate
        self.clock = clock
        self.on_record = on_record
        """Told of every turn that has given its lease back."""
        self._waiters: dict[int, Waiter] = {}
        self._undelivered: deque[Decision] = deque()
        self._delivering = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._members: dict[PoolId, tuple[BackendId, ...]] = {}
        self._up: set[BackendId] = set()
        self._in_flight: dict[BackendId, int] = {}

    # turns

    def arrive(self, turn: TurnFacts, waiter: Waiter, *, avoid: frozenset[BackendId] = frozenset()) -> int:
        """Bring a turn to the gate and return its ticket. ``avoid``: backends it must not run on."""
        answer = self.gate.arrive(turn, now=self.clock(), avoid=avoid)
        self._waiters[answer.ticket] = waiter
        if not isinstance(answer, Held):
            self._undelivered.append(answer)
        self._deliver()
        return answer.ticket

    def abandon(self, ticket: int) -> None:
        """The client of a held turn went away. Nothing happens where the gate has answered already."""
        if self._waiters.pop(ticket, None) is not None:
            self._deliver(self.gate.abandon(ticket, now=self.clock()))

    def finish(
        self,
        lease: Lease,
        outcome: Outcome,
        usage: Usage | None,
        *,
        finish_reason: FinishReason | None = None,
        first_token_at: float | None = None,
    ) -> None:
        """Give a lease back."""
        self._count(lease.backend, -1)
        finished = self.gate.finish(
            lease, outcome, usage, finish_reason=finish_reason, first_token_at=first_token_at, now=self.clock()
        )
        self.on_record(finished.record)
        self._deliver(finished.decisions)

    def requeue(
        self, lease: Lease, ticket: int, waiter: Waiter, *, not_before: float, avoid: frozenset[BackendId]
    ) -> None:
        """Put a turn back among the held, its place in line kept: its backend was full, or lost."""
        self._count(lease.backend, -1)
        self._waiters[ticket] = waiter
        self._deliver(self.gate.requeue(lease, not_before=not_before, avoid=avoid, now=self.clock()))

    # calls that do not pass the gate

    def place(self, pool: PoolId, *, avoid: frozenset[BackendId] = frozenset()) -> BackendId | None:
        """Return the backend with the fewest calls in flight, counted in; None where none is up. Then ``unplace``."""
        able = [backend for backend in self.up(pool) if backend not in avoid]
        if not able:
            return None
        chosen = min(able, key=self.in_flight)
        self._count(chosen, 1)
        return chosen

    def unplace(self, backend: BackendId) -> None:
        self._count(backend, -1)

    # what control, fleet and admin tell

    def add_backend(
        self,
        backend: BackendId,
        pool: PoolId | None = None,
        *,
        unit: Unit,
        window: float,
        capacity: float | None = None,
    ) -> None:
        """Take in a backend; it takes turns from its ``UP`` on. Without ``pool`` it stands alone until ``set_pool``."""
        home = PoolId(backend) if pool is None else pool
        self._deliver(
            self.gate.add_backend(backend, home, unit=unit, window=window, capacity_tokens=capacity, now=self.clock())
        )

    def remove_backend(self, backend: BackendId) -> None:
        """Forget a backend; what runs there may still finish."""
        self._up.discard(backend)
        if not self.in_flight(backend):
            self._in_flight.pop(backend, None)
        self._deliver(self.gate.remove_backend(backend, now=self.clock()))

    def set_pool(self, backend: BackendId, pool: PoolId) -> None:
        self._deliver(self.gate.set_pool(backend, pool, now=self.clock()))

    def set_members(self, pool: PoolId, backends: Iterable[BackendId]) -> None:
        """Name the backends of a pool; they take calls from their ``UP`` on."""
        self._members[pool] = tuple(backends)
        if not self._members[pool]:
            del self._members[pool]

    def backend_event(self, backend: BackendId, event: BackendEvent) -> None:
        if event is BackendEvent.UP:
            self._up.add(backend)
        elif event is not BackendEvent.FLUSHED:
            self._up.discard(backend)
        self._deliver(self.gate.backend(backend, event, now=self.clock()))

    def resize(self, backend: BackendId, window: float, *, hard: bool = False) -> None:
        self._deliver(self.gate.resize(backend, window, hard=hard, now=self.clock()))

    def set_bounds(self, backend: BackendId, minimum: float, maximum: float) -> None:
        self._deliver(self.gate.set_bounds(backend, minimum=minimum, maximum=maximum, now=self.clock()))

    def set_unit(self, backend: BackendId, unit: Unit, window: float) -> None:
        self._deliver(self.gate.set_unit(backend, unit, window, now=self.clock()))

    def set_capacity(self, backend: BackendId, tokens: float | None) -> None:
        self.gate.set_capacity(backend, tokens, now=self.clock())

    def follow_cache(self, backend: BackendId, resident: Callable[[str], int | None]) -> None:
        self._deliver(self.gate.follow_cache(backend, resident, now=self.clock()))

    def set_policy(self, policy: GatePolicy) -> None:
        self._deliver(self.gate.set_policy(policy, now=self.clock()))

    def view(self, backend: BackendId) -> WindowView:
        return self.gate.view(backend, now=self.clock())

    def snapshot(self) -> GateSnapshot:
        return self.gate.snapshot(now=self.clock())

    def end_session(self, key: SessionKey) -> None:
        self._deliver(self.gate.end_session(key, now=self.clock()))

    def refuse_all(self, reason: RefusalReason) -> None:
        """Refuse every held turn."""
        self._deliver(self.gate.refuse_all(reason, now=self.clock()))

    def reopen(self) -> None:
        """Take turns again after ``refuse_all``."""
        self.gate.reopen()

    def carry_out(self, act: Callable[[float], list[Decision]]) -> None:
        """Let the gate decide something, ``act(now)``, and tell those who wait."""
        self._deliver(act(self.clock()))

    def tick(self) -> None:
        self._deliver(self.gate.tick(now=self.clock()))

    def up(self, pool: PoolId) -> list[BackendId]:
        """Return the backends of a pool that take new calls."""
        return [backend for backend in self._members.get(pool, ()) if backend in self._up]

    def is_up(self, backend: BackendId) -> bool:
        return backend in self._up

    def in_flight(self, backend: BackendId) -> int:
        """Return how many calls run on a backend, leases and others."""
        return self._in_flight.get(backend, 0)

    @property
    def held(self) -> int:
        return len(self._waiters)

    # inside

    def _count(self, backend: BackendId, change: int) -> None:
        self._in_flight[backend] = self._in_flight.get(backend, 0) + change

    def _deliver(self, decisions: Iterable[Decision] = ()) -> None:
        """Tell the waiters; what their reaction decides is told in turn, not from within."""
        undelivered = self._undelivered
        if decisions:
            undelivered.extend(decisions)
        if self._delivering:
            return
        if undelivered:
            self._delivering = True
            try:
                while undelivered:
                    self._tell(undelivered.popleft())
            finally:
                self._delivering = False
        self._arm()

    def _tell(self, decision: Decision) -> None:
        waiter = self._waiters.pop(decision.ticket)
        if isinstance(decision, Admitted):
            self._count(decision.lease.backend, 1)
        try:
            if isinstance(decision, Admitted):
                waiter.granted(decision)
            else:
                waiter.refused(decision)
        except Exception:
            logger.exception("a turn could not take the gate's answer")

    def _arm(self) -> None:
        """Keep one timer that fires no later than the gate's next deadline; firing early only costs a tick."""
        deadline = self.gate.next_deadline()
        if deadline is None or (self._timer is not None and self._timer_at <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        wait = max(deadline - self.clock(), SHORTEST_TIMER_S)
        self._timer = asyncio.get_running_loop().call_later(wait, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.tick()

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
