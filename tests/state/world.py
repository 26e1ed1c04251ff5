"""Several replicas in virtual time: real gates, laws, replicas and the real script in a real Redis.

Engines, agents and what lies between are the simulator's; a word to Redis takes as long as the test says. So what
replicas do to hit rates can be measured on a machine that is busy, seed by seed.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import cycle
from random import Random
from typing import Any

import redis

from concur_proxy.core.gate import Decision, Gate, GatePolicy
from concur_proxy.core.regulator import Bounds, Regulator
from concur_proxy.model import AdmitWhy, BackendEvent, BackendId, RefusalReason, TurnFacts, TurnRecord
from concur_proxy.sim.arms import Arm
from concur_proxy.sim.events import Events
from concur_proxy.sim.front import Call, Front
from concur_proxy.sim.result import Figures, Result
from concur_proxy.sim.scenario import Scenario
from concur_proxy.sim.series import Series
from concur_proxy.sim.watch import Watch
from concur_proxy.sim.world import World
from concur_proxy.state import leader
from concur_proxy.state import replica as replicas
from concur_proxy.state.link import FIRST_PAUSE_S, SCRIPT, TIMEOUT_S
from concur_proxy.state.replica import Replica
from concur_proxy.state.steering import SharedGate

PREFIX = "{world}:"
EPOCH_S = 1_000_000
"""Of Redis' clock when the virtual time begins."""
MEMBER_S = replicas.MEMBER_MS / 1000
LEASE_S = leader.LEASE_MS / 1000
DELAY_S = 0.0005
"""From a replica to Redis, and back again."""

_VIRTUAL = SCRIPT.replace("call('TIME')", "{ARGV[4], '0'}")
_MILLISECONDS = "tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)"
assert "ARGV[4]" in _VIRTUAL
assert _MILLISECONDS in _VIRTUAL
_VIRTUAL = _VIRTUAL.replace(_MILLISECONDS, "tonumber(time[1])")


class Loop:
    """The part of an event loop that decisions use, in virtual time."""

    def __init__(self, events: Events) -> None:
        self._events = events

    def call_soon(self, act: Callable[..., object], *args: Any) -> Timer:
        return self.call_later(0.0, act, *args)

    def call_later(self, delay_s: float, act: Callable[..., object], *args: Any) -> Timer:
        timer = Timer(partial(act, *args))
        self._events.after(delay_s, timer.ring)
        return timer


class Timer:
    def __init__(self, act: Callable[[], object]) -> None:
        self._act: Callable[[], object] | None = act

    def cancel(self) -> None:
        self._act = None

    def ring(self) -> None:
        if self._act is not None:
            self._act()


class Server:
    """Redis, with a clock that is the world's; whoever listens to its streams hears of news after a while."""

    def __init__(self, client: redis.Redis, events: Events, delay_s: Callable[[], float]) -> None:
        client.flushall()
        self._client = client
        self._script = client.register_script(_VIRTUAL)
        self._events = events
        self.delay_s = delay_s
        self._last = {f"{PREFIX}wake": "0-0", f"{PREFIX}turns": "0-0"}
        self.replicas: list[Replica] = []
        self._heard: dict[str, float] = {}
        self._led_at = 0.0
        for key in ("heard", "since"):  # everybody has had the time to say what they use
            client.set(PREFIX + key, EPOCH_S * 1000 - 3_600_000 * (key == "since"))

    def evaluate(self, name: str, operations: list[Any]) -> list[Any]:
        self._expire()
        now_ms = math.floor((EPOCH_S + self._events.now) * 1000)
        args = [PREFIX, name, json.dumps(operations), now_ms]
        with self._client.pipeline(transaction=False) as both:
            self._script(keys=[f"{PREFIX}replicas"], args=args, client=both)
            both.xread(self._last)
            said, news = both.execute()
        for stream, entries in news.items() if isinstance(news, dict) else news:
            for number, words in entries:
                self._last[stream] = number
                self._events.after(self.delay_s(), partial(self._tell, stream, words))
        answers: list[Any] = json.loads(said)
        self._note(name, operations, answers)
        return answers

    def _note(self, name: str, operations: list[Any], answers: list[Any]) -> None:
        for operation, answer in zip(operations, answers, strict=True):
            if operation[0] == "sync" and not answer.get("late"):
                self._heard[name] = self._events.now
            elif operation[0] == "lead" and answer["leads"]:
                self._led_at = self._events.now

    def moves_of(self, name: str) -> list[str]:
        """Return the sessions that others have taken from a replica, as the script keeps them."""
        return list(self._client.lrange(f"{PREFIX}moved:{name}", 0, -1))

    def _expire(self) -> None:
        """Forget what Redis would have forgotten by now, were its clock the world's."""
        now = self._events.now
        for name in [name for name, at in self._heard.items() if at < now - MEMBER_S]:
            del self._heard[name]
            self._client.delete(f"{PREFIX}r:{name}")
        if self._led_at < now - LEASE_S:
            self._client.delete(f"{PREFIX}leader")

    def _tell(self, stream: str, said: Mapping[str, str]) -> None:
        for each in self.replicas:
            if stream.endswith("wake"):
                each.woken(said["why"], said["whom"])
            elif each.leads:
                each.heard(said)


class Wire:
    """A replica's link: one call at a time is on its way."""

    def __init__(self, server: Server, events: Events, name: str) -> None:
        self._server, self._events, self._name = server, events, name
        self._waiting: list[tuple[Any, Callable[[Any], None]]] = []
        self._news = self._away = False
        self.up = True
        self.cut = False
        """Nothing arrives, and nothing comes back."""
        self.first: Callable[[], Any] = lambda: None
        self.on_change: Callable[[bool], None] = lambda _: None

    def send(self, operation: Any, then: Callable[[Any], None]) -> None:
        self._waiting.append((operation, then))
        self.hurry()

    def hurry(self) -> None:
        self._news = True
        if not self._away:
            self._away = True
            self._events.after(0.0, self._go)

    def _go(self) -> None:
        self._news = False
        first = self.first()
        batch = ([first] if first is not None else []) + self._waiting
        self._waiting = []
        if batch:
            self._events.after(self._server.delay_s(), partial(self._arrive, batch))
        else:
            self._away = False

    def _arrive(self, batch: list[tuple[Any, Callable[[Any], None]]]) -> None:
        if self.cut:
            self._events.after(TIMEOUT_S, partial(self._end, batch, None))
            return
        answers = self._server.evaluate(self._name, [operation for operation, _ in batch])
        self._events.after(self._server.delay_s(), partial(self._back, batch, answers))

    def _back(self, batch: list[tuple[Any, Callable[[Any], None]]], answers: list[Any]) -> None:
        if self.cut:  # it was on its way
            self._events.after(TIMEOUT_S, partial(self._end, batch, None))
        else:
            self._end(batch, answers)

    def _end(self, batch: list[tuple[Any, Callable[[Any], None]]], answers: list[Any] | None) -> None:
        up = answers is not None
        if up is not self.up:
            self.up = up
            self.on_change(up)
        for (_, then), answer in zip(batch, answers or [None] * len(batch), strict=True):
            then(answer)
        self._away = False
        if not up:
            self._events.after(FIRST_PAUSE_S, self.hurry)
        elif self._news or self._waiting:
            self.hurry()


class DoorFront(Front):
    """One replica's gate among engines."""

    @property
    def held(self) -> int:
        return len(self._calls)

    skew: tuple[float, float] = (0.0, 1.0)
    """How far its clock is ahead, and how much faster it goes."""

    def clock(self) -> float:
        ahead_s, rate = self.skew
        return ahead_s + rate * self._events.now

    def refuse_all(self, reason: RefusalReason) -> None:
        self._deliver(self.gate.refuse_all(reason, now=self._events.now))

    def reopen(self) -> None:
        self.gate.reopen()

    def carry_out(self, act: Callable[[float], list[Decision]]) -> None:
        self._deliver(act(self._events.now))

    def set_capacity(self, backend: BackendId, tokens: float | None) -> None:
        self.gate.set_capacity(backend, tokens, now=self._events.now)
        self._arm()


class LedWatch(Watch):
    """Reads an engine always; moves its window only where its replica leads."""

    replica: Replica

    def _update(self) -> None:
        if self.replica.leads:
            super()._update()


class Node:
    """One replica, as ``runtime.node`` puts it together. It is also its control loop (``state.ports.Laws``)."""

    def __init__(self, world: ReplicatedWorld, number: int, policy: GatePolicy) -> None:
        self._world = world
        name = f"r{number}"
        self.door = DoorFront(
            Gate(policy),
            world.runners,
            world.events,
            on_record=self._on_record,
            on_refusal=self._on_refusal,
            tells_cached=world.scenario.signals.cached_tokens,
            reconnect_s=policy.retry_after_s,
            random=Random(f"{world.seed}/pauses/{number}"),
        )
        self.wire = Wire(world.server, world.events, name)
        self.replica = Replica(self.wire, self.door, name=name, max_sessions=policy.max_sessions)  # type: ignore[arg-type]
        self.replica.leader.dump = self.dump
        self.replica.address = f"{name} 0"
        self.replica.ask_neighbours = self._ask_neighbours
        self.replica._laws = self
        self._gate = SharedGate(self.replica)
        self.watches: dict[BackendId, LedWatch] = {}
        self._look()

    def _look(self) -> None:
        self.replica.look()
        self._world.events.after(replicas.TICK_S, self._look)

    def _ask_neighbours(self, others: list[tuple[str, str]], then: Callable[[], None]) -> None:
        names = {name for name, _ in others}
        peers = [node.replica for node in self._world.nodes if node.replica.name in names]
        if any(peer.reaches_redis for peer in peers):
            self._world.events.after(DELAY_S, then)

    def ask(self, call: Call) -> None:
        owners = self.replica.owners
        if owners.is_ours(call.facts):
            self.door.ask(call)
            return

        def go_on(facts: TurnFacts) -> None:
            call.facts = facts
            self.door.ask(call)

        owners.claim(call.facts, go_on)

    def add_backend(self, name: BackendId) -> None:
        world, signals = self._world, self._world.scenario.signals
        self.door.add_backend(name, world.pools[name])
        regulator = Regulator(
            name, self._gate, world.arm.make_law, Bounds(), capacity_hint=None, on_problem=_on_problem
        )
        watch = LedWatch(
            world.runners[name], regulator, signals, world.events, Series(name), Random(f"{world.seed}/noise/{name}")
        )
        watch.replica = self.replica
        self.watches[name] = watch
        watch.start()
        self.door.backend_event(name, BackendEvent.UP)

    def _on_record(self, record: TurnRecord) -> None:
        self.finished(record)
        self.replica.record(record)
        self.replica.owners.turn_ended(record.backend, record.session)

    def _on_refusal(self, backend: BackendId) -> None:
        self.refused(backend)
        self.replica.refused(backend)

    # the laws

    def finished(self, record: TurnRecord) -> None:
        self.watches[record.backend].regulator.record(record, now=self._world.events.now)

    def refused(self, backend: BackendId) -> None:
        self.watches[backend].refused()

    def dump(self) -> dict[BackendId, Mapping[str, object]]:
        states = {name: watch.regulator.dump() for name, watch in self.watches.items()}
        return {name: state for name, state in states.items() if state is not None}

    def take_over(self, learned: Mapping[str, Any]) -> None:
        for name, watch in self.watches.items():
            watch.regulator.tracker.take(now=self._world.events.now)
            if name in learned:
                watch.regulator.load(learned[name])


def _on_problem(_words: str, error: Exception | None) -> None:
    if error is not None:
        raise error


class ReplicatedWorld(World):
    """A world whose agents' turns go to the next replica each; ``sticky``: to that of their session."""

    def __init__(
        self,
        scenario: Scenario,
        arm: Arm,
        policy: GatePolicy,
        *,
        client: redis.Redis,
        count: int,
        seed: int,
        delay_s: Callable[[], float] = lambda: DELAY_S,
        sticky: bool = False,
    ) -> None:
        super().__init__(scenario, arm, policy, recorded=(), seed=seed)
        self.server = Server(client, self.events, delay_s)
        self.nodes = [Node(self, number, policy) for number in range(count)]
        self.server.replicas = [node.replica for node in self.nodes]
        self.front: Any = self
        self._next = cycle(self.nodes)
        self._sticky = sticky
        self._where: dict[Call, Node] = {}

    # the line that agents stand in (``sim.agents.Line``)

    def ask(self, call: Call) -> None:
        node = self.nodes[hash(call.facts.session) % len(self.nodes)] if self._sticky else next(self._next)
        self._where[call] = node
        node.ask(call)

    def cancel(self, call: Call) -> None:
        self._where[call].door.cancel(call)

    @property
    def gate(self) -> Gate:
        """Of the first replica: ``Result`` takes its books."""
        return self.nodes[0].door.gate

    def _add_backend(self, name: BackendId) -> None:
        for node in self.nodes:
            node.add_backend(name)
        self.watches[name] = self.nodes[0].watches[name]

    def counts(self) -> dict[str, float]:
        """Return what all gates have counted."""
        books = [node.door.gate.snapshot(now=self.events.now) for node in self.nodes]
        owners = [node.replica.owners for node in self.nodes]
        return {
            "paused": sum(book.paused for book in books),
            "reclaimed": sum(book.reclaimed for book in books),
            "expired": sum(book.leases_expired for book in books),
            **{f"by_{why.value}": sum(book.admitted_by.get(why, 0) for book in books) for why in AdmitWhy},
            "claims": sum(each.claims for each in owners),
            "late": sum(each.late for each in owners),
            "moved": sum(each.moved for each in owners),
        }


@contextmanager
def virtual_time(events: Events) -> Iterator[None]:
    """Let whoever asks for the running event loop get one of virtual time; Redis forgets nobody by itself."""
    before = replicas.MEMBER_MS, leader.LEASE_MS
    replicas.MEMBER_MS = leader.LEASE_MS = 3_600_000
    asyncio._set_running_loop(Loop(events))  # type: ignore[arg-type]
    try:
        yield
    finally:
        asyncio._set_running_loop(None)
        replicas.MEMBER_MS, leader.LEASE_MS = before


def play(world: ReplicatedWorld) -> Result:
    with virtual_time(world.events):
        return world.run()


def figures(world: ReplicatedWorld) -> Figures:
    return play(world).figures
