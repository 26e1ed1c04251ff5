"""A gate with its backends and a clock, for tests that read as scripts."""

from concur_proxy.core.gate import Gate, GatePolicy
from concur_proxy.model import (
    Admitted,
    BackendEvent,
    BackendId,
    FinishReason,
    Held,
    Outcome,
    PoolId,
    SessionKey,
    TurnFacts,
    Usage,
)
from concur_proxy.windows.base import Unit

POOL = PoolId("pool")
A, B = BackendId("a"), BackendId("b")
TOKENS, SESSIONS = Unit.TOKENS, Unit.SESSIONS


def key(name):
    return None if name is None else SessionKey("tenant", name)


def turn(session=None, *, parent=None, pool=POOL, tokens=None, **facts):
    """Facts of a turn; ``tokens``: what it is estimated to need, before anything is learned."""
    if tokens is not None:
        facts |= {"body_bytes": 4 * tokens, "max_output_tokens": 0}
    return TurnFacts(pool=pool, session=key(session), parent=key(parent), **facts)


class Stand:
    """``windows``: one per backend (a, b, ...), all in one pool. Results of turns are kept by session name."""

    def __init__(self, *windows, unit=SESSIONS, capacity=None, **policy):
        self.now = 0.0
        self.gate = Gate(GatePolicy(**policy))
        self.leases, self.tickets, self.granted, self.refused = {}, {}, {}, {}
        for name, window in zip("abcdef", windows, strict=False):
            self.add(BackendId(name), window, unit=unit, capacity=capacity)

    def add(self, backend, window, *, unit=SESSIONS, capacity=None, pool=POOL):
        self.gate.add_backend(backend, pool, unit=unit, window=window, capacity_tokens=capacity, now=self.now)
        return self.event(backend, BackendEvent.UP)

    def wait(self, seconds):
        """Let time pass, and everything happen that becomes due in it, at its own time."""
        end, decisions = self.now + seconds, []
        while (at := self.gate.next_deadline()) is not None and at <= end:
            self.now = max(self.now, at)
            decisions += self.note(self.gate.tick(now=self.now))
        self.now = end
        return decisions

    def arrive(self, session=None, *, avoid=frozenset(), **facts):
        result = self.gate.arrive(turn(session, **facts), now=self.now, avoid=avoid)
        name = session or result.ticket
        if isinstance(result, Held):
            self.tickets[name] = result.ticket
        else:
            self._note(result, name)
        return result

    def run(self, session=None, *, prompt=100, completion=0, cached=None, **facts):
        """A turn from arrival to end, at once."""
        result = self.arrive(session, **facts)
        assert isinstance(result, Admitted), result
        self.finish(session or result.ticket, prompt=prompt, completion=completion, cached=cached)
        return result

    def finish(
        self,
        session,
        *,
        prompt=100,
        completion=0,
        cached=None,
        outcome=Outcome.COMPLETED,
        reason=FinishReason.TOOL_CALLS,
        usage=True,
    ):
        counted = Usage(prompt, completion, cached) if usage and outcome is Outcome.COMPLETED else None
        self.finished = self.gate.finish(self.leases.pop(session), outcome, counted, finish_reason=reason, now=self.now)
        return self.note(self.finished.decisions)

    def requeue(self, session, *, after=0.0, avoid=frozenset()):
        lease = self.leases.pop(session)
        self.tickets[session] = self.granted[session]
        return self.note(self.gate.requeue(lease, not_before=self.now + after, avoid=avoid, now=self.now))

    def abandon(self, session):
        return self.note(self.gate.abandon(self.tickets.pop(session), now=self.now))

    def resize(self, window, *, backend=A, hard=False):
        return self.note(self.gate.resize(backend, window, hard=hard, now=self.now))

    def event(self, backend, event):
        return self.note(self.gate.backend(backend, event, now=self.now))

    def note(self, decisions):
        """Keep leases and refusals; return who was let in or refused, by name."""
        names = {ticket: name for name, ticket in self.tickets.items()}
        for decision in decisions:
            self._note(decision, names[decision.ticket])
        return [names[decision.ticket] for decision in decisions]

    def _note(self, decision, name):
        self.tickets.pop(name, None)
        if isinstance(decision, Admitted):
            self.granted[name] = decision.ticket
            self.leases[name] = decision.lease
        else:
            self.refused[name] = decision.reason

    def backend(self, backend=A):
        return self.gate.snapshot(now=self.now).backends[backend]

    @property
    def books(self):
        return self.gate.snapshot(now=self.now)

    @property
    def running(self):
        return set(self.leases)

    @property
    def held(self):
        return set(self.tickets)

    def state(self, session):
        views = {view.key: view for view in self.gate.sessions(now=self.now)}
        return views[key(session)].state if key(session) in views else None
