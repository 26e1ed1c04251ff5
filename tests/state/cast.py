"""Replicas without sockets: real gates, real replicas and a real Redis, and a courier that loses what it carries."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from redis import Redis

from concur_proxy.core.gate import Gate, GatePolicy
from concur_proxy.model import (
    Admitted,
    BackendEvent,
    BackendId,
    FinishReason,
    Held,
    Lease,
    Outcome,
    PoolId,
    SessionKey,
    TurnFacts,
    Usage,
)
from concur_proxy.state.link import SCRIPT
from concur_proxy.state.replica import Replica
from concur_proxy.windows.base import Unit

A = BackendId("a")
POOL = PoolId("pool")


class Courier:
    """A link whose calls go when the test says so, and arrive, or not."""

    def __init__(self, client: Redis, prefix: str, name: str) -> None:
        self._script = client.register_script(SCRIPT)
        self._prefix, self._name = prefix, name
        self._waiting: list[tuple[Any, Callable[[Any], None]]] = []
        self._astray: list[str] = []
        self.up = True
        self.first: Callable[[], Any] = lambda: None
        self.on_change: Callable[[bool], None] = lambda _: None

    def send(self, operation: Any, then: Callable[[Any], None]) -> None:
        self._waiting.append((operation, then))

    def hurry(self) -> None:
        """Nothing goes by itself."""

    def _evaluate(self, operations: str) -> Any:
        keys = [f"{self._prefix}replicas"]
        return json.loads(self._script(keys=keys, args=[self._prefix, self._name, operations]))

    def go(self, fate: str = "arrives") -> bool:
        """Carry what waits: it ``arrives``, its ``answer`` is lost, it is lost itself, or it arrives ``late``."""
        first = self.first()
        batch = ([first] if first is not None else []) + self._waiting
        self._waiting = []
        if not batch:
            return False
        operations = json.dumps([operation for operation, _ in batch])
        answers = self._evaluate(operations) if fate in {"arrives", "answer"} else None
        if fate == "late":
            self._astray.append(operations)
        answers = answers if fate == "arrives" else [None] * len(batch)
        for (_, then), answer in zip(batch, answers, strict=True):
            then(answer)
        return True

    def arrive_late(self) -> None:
        if self._astray:
            self._evaluate(self._astray.pop(0))


class Door:
    """The dispatcher's part: decisions become leases of ours."""

    def __init__(self, *, capacity: float | None = 1e6, **policy: Any) -> None:
        self.gate = Gate(GatePolicy(**policy))
        self.clock = time.monotonic
        self.leases: dict[int, Lease] = {}
        self.tickets: set[int] = set()
        self.gate.add_backend(A, POOL, unit=Unit.SESSIONS, window=0.0, minimum=0.0, capacity_tokens=capacity, now=0.0)
        self.note(self.gate.backend(A, BackendEvent.UP, now=self.clock()))

    def note(self, decisions: Any) -> None:
        for decision in decisions:
            self.tickets.discard(decision.ticket)
            if isinstance(decision, Admitted):
                self.leases[decision.ticket] = decision.lease

    def arrive(self, facts: TurnFacts) -> None:
        answer = self.gate.arrive(facts, now=self.clock())
        if isinstance(answer, Held):
            self.tickets.add(answer.ticket)
        else:
            self.note([answer])

    def finish(self, ticket: int) -> Lease:
        lease = self.leases.pop(ticket)
        usage = Usage(100, 10, 30)
        done = self.gate.finish(
            lease, Outcome.COMPLETED, usage, finish_reason=FinishReason.TOOL_CALLS, now=self.clock()
        )
        self.note(done.decisions)
        return lease

    def refuse_all(self, reason: Any) -> None:
        self.note(self.gate.refuse_all(reason, now=self.clock()))

    def reopen(self) -> None:
        self.gate.reopen()

    @property
    def held(self) -> int:
        return len(self.tickets)

    def carry_out(self, act: Any) -> None:
        self.note(act(self.clock()))

    def view(self, backend: BackendId) -> Any:
        return self.gate.view(backend, now=self.clock())

    def set_unit(self, backend: BackendId, unit: Unit, window: float) -> None:
        self.note(self.gate.set_unit(backend, unit, window, now=self.clock()))

    def set_bounds(self, backend: BackendId, minimum: float, maximum: float) -> None:
        self.note(self.gate.set_bounds(backend, minimum=minimum, maximum=maximum, now=self.clock()))

    def set_capacity(self, backend: BackendId, tokens: float | None) -> None:
        self.gate.set_capacity(backend, tokens, now=self.clock())

    def backend_event(self, backend: BackendId, event: BackendEvent) -> None:
        self.note(self.gate.backend(backend, event, now=self.clock()))


class Actor:
    """One replica: its gate, its courier, and what of it the test looks at."""

    def __init__(
        self, client: Redis, prefix: str, name: str, window: float, *, unit: Unit = Unit.SESSIONS, **policy: Any
    ) -> None:
        self.name = name
        self._arrivals = 0
        self.door = Door(**policy)
        self.courier = Courier(client, prefix, name)
        self.replica = Replica(self.courier, self.door, name=name, max_sessions=1000)  # type: ignore[arg-type]
        self.replica.set_bounds(A, 1.0, float("inf"))
        self.replica.begin(A, unit, window)

    @property
    def share(self) -> float:
        return self.door.gate.snapshot(now=self.door.clock()).backends[A].window

    @property
    def active(self) -> int:
        return self.door.gate.snapshot(now=self.door.clock()).backends[A].active

    @property
    def load(self) -> float:
        return self.door.gate.asked(A, now=self.door.clock()).load

    def sync(self, fate: str = "arrives") -> None:
        self.replica.sync_soon()
        self.courier.go(fate)

    def arrive(self, session: str) -> None:
        """Agents of three kinds, which now and then change their minds about what kind they are."""
        self._arrivals += 1
        facts = TurnFacts(
            POOL, SessionKey("tenant", session), body_bytes=400, max_output_tokens=10, prefix_key=self._arrivals % 3
        )
        owners = self.replica.owners
        if owners.is_ours(facts):
            self.door.arrive(facts)
        else:
            owners.claim(facts, self.door.arrive)

    def finish(self, ticket: int) -> None:
        lease = self.door.finish(ticket)
        self.replica.owners.turn_ended(lease.backend, lease.session)


def settle(actors: list[Actor], rounds: int = 8) -> None:
    """Let everybody say and hear everything."""
    for _ in range(rounds):
        for actor in actors:
            actor.sync()
            while actor.courier.go():
                pass
