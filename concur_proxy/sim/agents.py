"""Agents that play their sessions: they ask, think, start sub-agents and wait for them, try again, lose patience."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from concur_proxy.model import FinishReason, SessionKey, TurnFacts
from concur_proxy.sim.context import Context, Mark
from concur_proxy.sim.events import Events
from concur_proxy.sim.front import Call
from concur_proxy.sim.plans import Plan
from concur_proxy.sim.scenario import ClientPart
from concur_proxy.sim.step import Request

PREFIX_KEYS = 1_000_003
"""More than a prefix has tokens: number and length of a prefix make its key."""


class Fate(enum.Enum):
    """What became of a session."""

    COMPLETE = "complete"
    FAILED = "failed"
    """A turn was tried as often as its client tries, and not answered."""


@dataclass(frozen=True, slots=True)
class TurnDone:
    """One answered turn, for the account of a run."""

    session: str
    index: int
    """From 0."""
    asked_at: float
    """For the first time, where it was tried again."""
    admitted_at: float
    first_token_at: float
    done_at: float
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    known_tokens: int
    """The part of the prompt that this session's earlier turns have computed: an endless cache would have it."""


class Line(Protocol):
    """Where agents send their calls."""

    def ask(self, call: Call) -> None: ...

    def cancel(self, call: Call) -> None: ...


@dataclass(frozen=True, slots=True)
class Stage:
    """What agents need of the world."""

    events: Events
    line: Line
    client: ClientPart
    block_size: int
    names_sessions: bool
    """Whether requests name their session."""
    on_turn: Callable[[TurnDone], None]
    on_trouble: Callable[[str], None]
    spawn: Callable[[Plan, Agent | None, Callable[[], None]], None]
    """Starts a sub-agent of an agent, and says when it has ended."""


class Agent:
    """One session. ``on_end`` is told what became of it."""

    def __init__(
        self, plan: Plan, number: int, stage: Stage, parent: Agent | None, on_end: Callable[[Fate], None]
    ) -> None:
        self.plan = plan
        self.key = SessionKey("", f"{plan.script.id}#{number}")
        self.started_at = stage.events.now
        self._stage = stage
        self._parent = parent
        self._on_end = on_end
        self._number = number
        self._context = Context(stage.block_size)
        # Texts that sessions share have numbers from 0 down, each session's own a number of its own.
        self._context.append(-plan.part.prefix, plan.script.prefix_tokens)
        self._prefix: Mark = self._context.mark()
        self._prompt: Mark = self._prefix
        self._source_at = 0
        self._index = 0
        self._known = 0
        self._asked_at = 0.0
        self._tries = 0
        self._waits_for = 0
        self._call: Call | None = None

    def start(self) -> None:
        self._think()

    def _think(self) -> None:
        self._stage.events.after(self.plan.script.turns[self._index].think_s, self._begin)

    def _begin(self) -> None:
        """Write the next prompt, and ask."""
        turn = self.plan.script.turns[self._index]
        if turn.rewrites:
            self._context.rewind(self._prefix)
            # What was handed to the engine before must not change under it.
            self._context.hashes = list(self._context.hashes)
            self._known = self._prefix[0]
        self._write(turn.new_prompt_tokens)
        self._prompt = self._context.mark()
        self._write(turn.output_tokens)
        self._tries = 0
        self._asked_at = self._stage.events.now
        self._ask()

    def _write(self, tokens: int) -> None:
        self._context.append(2 * self._number, tokens, self._source_at)
        self._source_at += tokens

    def _ask(self) -> None:
        call = Call(self._facts(), self._request, self._answered, self._failed, self._finish_reason())
        self._call = call
        timeout_s = self._stage.client.timeout_s
        if timeout_s is not None:
            self._stage.events.after(timeout_s, partial(self._lose_patience, call))
        self._stage.line.ask(call)

    def _facts(self) -> TurnFacts:
        named = self._stage.names_sessions
        prefix = self.plan.script.prefix_tokens
        return TurnFacts(
            pool=self.plan.pool,
            session=self.key if named else None,
            parent=self._parent.key if named and self._parent is not None else None,
            rule="simulated" if named else "anonymous",
            final=self.plan.part.goodbye and self._is_last,
            body_bytes=round(self._prompt[0] * self._stage.client.bytes_per_token),
            is_retry=self._tries > 0,
            body_digest=self._number * 100_003 + self._index,
            prefix_key=prefix + PREFIX_KEYS * self.plan.part.prefix if prefix else None,
            tenant=self.plan.part.tenant,
            urgency=self.plan.part.urgency,
            deadline_s=self.plan.part.deadline_s,
        )

    @property
    def _is_last(self) -> bool:
        return self._index + 1 == len(self.plan.script.turns)

    def _finish_reason(self) -> FinishReason:
        if self.plan.part.cut:
            return FinishReason.LENGTH
        return FinishReason.STOP if self._is_last else FinishReason.TOOL_CALLS

    def _request(self, now: float) -> Request:
        output = self.plan.script.turns[self._index].output_tokens
        return Request(self._prompt[0], output, self._context.hashes, now)

    # how it may end

    def _answered(self, call: Call) -> None:
        request, events = call.request, self._stage.events
        assert request is not None
        assert request.first_token_at is not None
        self._call = None
        self._stage.on_turn(
            TurnDone(
                session=self.key.id,
                index=self._index,
                asked_at=self._asked_at,
                admitted_at=request.arrived_at,
                first_token_at=request.first_token_at,
                done_at=events.now,
                prompt_tokens=request.prompt_tokens,
                cached_tokens=request.cached_tokens or 0,
                output_tokens=request.output_tokens,
                known_tokens=min(self._known, request.prompt_tokens),
            )
        )
        self._remember(request)
        self._next()

    def _remember(self, request: Request) -> None:
        """Keep in the history what this client keeps of the answer."""
        history = self.plan.part.history
        self._known = request.total
        if history == "kept":
            return
        self._known = request.prompt_tokens
        self._context.rewind(self._prompt)
        self._context.hashes = list(self._context.hashes)
        if history == "changed":
            self._context.append(2 * self._number + 1, request.output_tokens, self._source_at)

    def _next(self) -> None:
        children = self.plan.children.get(self._index, ())
        if self._is_last:
            self._on_end(Fate.COMPLETE)
            return
        self._index += 1
        spec = self.plan.part.children
        waits = spec is not None and spec.waits
        if waits:
            self._waits_for = len(children)
        for child in children:
            self._stage.spawn(child, self, self._child_ended if waits else _nothing)
        if not self._waits_for:
            self._think()

    def _child_ended(self) -> None:
        self._waits_for -= 1
        if not self._waits_for:
            self._think()

    def _failed(self, call: Call, why: str, wait_s: float) -> None:
        if call is not self._call:
            return
        self._call = None
        self._stage.on_trouble(why)
        self._tries += 1
        if self._tries > self._stage.client.retries:
            self._on_end(Fate.FAILED)
        else:
            self._stage.events.after(max(wait_s, self._stage.client.retry_delay_s), self._ask)

    def _lose_patience(self, call: Call) -> None:
        if call is self._call:
            self._stage.line.cancel(call)
            self._failed(call, "client_timeout", 0.0)


def _nothing() -> None:
    pass
