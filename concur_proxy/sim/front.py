"""The proxy's data path in virtual time: the real gate, its timer, and the turns that wait for its answers.

What ``gateway.dispatch`` and ``gateway.turn`` do among sockets: a grant sends the turn to its engine, a turn whose
engine dies goes back among the held once where another backend is up, a client that leaves takes its turn along.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from random import Random

from concur_proxy.core.gate import Decision, Gate
from concur_proxy.model import (
    Admitted,
    BackendEvent,
    BackendId,
    FinishReason,
    Held,
    Lease,
    Outcome,
    PoolId,
    Refused,
    TurnFacts,
    TurnRecord,
    Usage,
)
from concur_proxy.sim.events import Events
from concur_proxy.sim.runner import End, Runner
from concur_proxy.sim.step import Request
from concur_proxy.windows.base import Unit, WindowView


@dataclass(slots=True, eq=False)
class Call:
    """One request of an agent, through the proxy or past it, until it is answered."""

    facts: TurnFacts
    make_request: Callable[[float], Request]
    """Builds what the engine gets; its argument is the time."""
    on_answer: Callable[[Call], None]
    on_failure: Callable[[Call, str, float], None]
    """Told why there is no answer, and how many seconds to wait before another try."""
    finish_reason: FinishReason
    request: Request | None = None
    lease: Lease | None = None
    ticket: int | None = None
    runner: Runner | None = None
    tries: int = 0
    """How often an engine has refused it."""
    lost: frozenset[BackendId] = field(default_factory=frozenset)


MAX_TRIES = 30
LONGEST_PAUSE_S = 4.0
"""As in ``gateway``: a turn that an engine has refused waits a while, longer with every try, and is then sent again."""


class Front:
    """Also the gate as regulators see it (``core.regulator.GatePort``)."""

    def __init__(
        self,
        gate: Gate,
        runners: dict[BackendId, Runner],
        events: Events,
        *,
        on_record: Callable[[TurnRecord], None],
        on_refusal: Callable[[BackendId], None],
        tells_cached: bool,
        reconnect_s: float,
        random: Random,
    ) -> None:
        self.gate = gate
        self.runners = runners
        self._events = events
        self._on_record = on_record
        self._on_refusal = on_refusal
        self._random = random
        self._tells_cached = tells_cached
        self._reconnect_s = reconnect_s
        self._calls: dict[int, Call] = {}
        self._members: dict[PoolId, frozenset[BackendId]] = {}
        self._timer_at = math.inf

    # turns

    def ask(self, call: Call) -> None:
        """Bring a call to the gate."""
        answer = self.gate.arrive(call.facts, now=self._events.now)
        self._calls[answer.ticket] = call
        call.ticket = answer.ticket
        self._deliver([] if isinstance(answer, Held) else [answer])

    def cancel(self, call: Call) -> None:
        """The client has gone."""
        if call.lease is not None:
            assert call.runner is not None
            assert call.request is not None
            call.runner.abort(call.request)
            self._finish(call, Outcome.CANCELLED, None)
        elif call.ticket is not None and self._calls.pop(call.ticket, None) is not None:
            self._deliver(self.gate.abandon(call.ticket, now=self._events.now))

    def _ended(self, call: Call, end: End) -> None:
        """The engine has answered, or died."""
        request = call.request
        if call.lease is None or request is None:
            return  # the client has gone meanwhile
        if end is End.LOST:
            self._lost(call)
            return
        if end is End.REFUSED:
            self._refused_there(call)
            return
        cached = request.cached_tokens if self._tells_cached else None
        self._finish(call, Outcome.COMPLETED, Usage(request.prompt_tokens, request.output_tokens, cached))
        call.on_answer(call)

    def _lost(self, call: Call) -> None:
        lease, runner = call.lease, call.runner
        assert lease is not None
        assert runner is not None
        call.lost |= {runner.backend}
        peers = self._members[call.facts.pool] - call.lost
        if len(call.lost) == 1 and any(self.runners[peer].up for peer in peers):
            assert call.ticket is not None
            call.lease = call.runner = call.request = None
            self._calls[call.ticket] = call
            self._deliver(self.gate.requeue(lease, not_before=0.0, avoid=call.lost, now=self._events.now))
            return
        self._finish(call, Outcome.BACKEND_LOST, None)
        call.on_failure(call, "backend_lost", self._reconnect_s)

    def _refused_there(self, call: Call) -> None:
        """The engine is full: the turn goes back among the held."""
        lease, runner = call.lease, call.runner
        assert lease is not None
        assert runner is not None
        self._on_refusal(runner.backend)
        call.tries += 1
        if call.tries >= MAX_TRIES:
            self._finish(call, Outcome.OVERLOADED, None)
            call.on_failure(call, "overloaded", self._reconnect_s)
            return
        assert call.ticket is not None
        call.lease = call.runner = call.request = None
        self._calls[call.ticket] = call
        pause = min(0.25 * 2.0 ** min(call.tries, 10), LONGEST_PAUSE_S) * self._random.uniform(0.5, 1.0)
        now = self._events.now
        self._deliver(self.gate.requeue(lease, not_before=now + pause, avoid=call.lost, now=now))

    def _finish(self, call: Call, outcome: Outcome, usage: Usage | None) -> None:
        lease, request = call.lease, call.request
        assert lease is not None
        call.lease = None
        finished = self.gate.finish(
            lease,
            outcome,
            usage,
            finish_reason=call.finish_reason if outcome is Outcome.COMPLETED else None,
            first_token_at=request.first_token_at if request is not None else None,
            now=self._events.now,
        )
        self._on_record(finished.record)
        self._deliver(finished.decisions)

    def _deliver(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            call = self._calls.pop(decision.ticket)
            if isinstance(decision, Admitted):
                self._send(call, decision.lease)
            else:
                self._refused(call, decision)
        self._arm()

    def _send(self, call: Call, lease: Lease) -> None:
        runner = self.runners[lease.backend]
        call.lease, call.runner = lease, runner
        call.request = call.make_request(self._events.now)
        if runner.up:
            runner.submit(call.request, partial(self._ended, call))
        else:
            self._events.after(0.0, partial(self._ended, call, End.LOST))

    def _refused(self, call: Call, refused: Refused) -> None:
        call.ticket = None
        self._events.after(0.0, partial(call.on_failure, call, refused.reason.value, refused.retry_after_s))

    def _arm(self) -> None:
        """Keep one alarm that rings no later than the gate's next deadline."""
        deadline = self.gate.next_deadline()
        if deadline is not None and deadline < self._timer_at:
            self._timer_at = deadline
            self._events.at(deadline, partial(self._ring, deadline))

    def _ring(self, alarm: float) -> None:
        if alarm != self._timer_at:
            return
        self._timer_at = math.inf
        self._deliver(self.gate.tick(now=self._events.now))

    # what regulators and health say

    def add_backend(self, backend: BackendId, pool: PoolId) -> None:
        now = self._events.now
        self._members[pool] = self._members.get(pool, frozenset()) | {backend}
        self._deliver(self.gate.add_backend(backend, pool, unit=Unit.SESSIONS, window=1.0, now=now))

    def view(self, backend: BackendId) -> WindowView:
        return self.gate.view(backend, now=self._events.now)

    def resize(self, backend: BackendId, window: float, *, hard: bool = False) -> None:
        self._deliver(self.gate.resize(backend, window, hard=hard, now=self._events.now))

    def set_unit(self, backend: BackendId, unit: Unit, window: float) -> None:
        self._deliver(self.gate.set_unit(backend, unit, window, now=self._events.now))

    def set_bounds(self, backend: BackendId, minimum: float, maximum: float) -> None:
        self._deliver(self.gate.set_bounds(backend, minimum=minimum, maximum=maximum, now=self._events.now))

    def set_capacity(self, backend: BackendId, tokens: float) -> None:
        self.gate.set_capacity(backend, tokens, now=self._events.now)
        self._arm()

    def backend_event(self, backend: BackendId, event: BackendEvent) -> None:
        self._deliver(self.gate.backend(backend, event, now=self._events.now))
