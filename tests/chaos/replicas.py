"""Three replicas behind a TCP balancer, agents with the official client, and what may go wrong with them."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from openai import APIError, AsyncOpenAI

from concur_proxy.sim.server import EngineOptions, EngineServer
from tests.chaos.relay import Relay, Streams
from tests.chaos.wire import Wire
from tests.clients.stack import ProxyProcess
from tests.ports import free_port
from tests.state.redis import RedisServer

WINDOW = 8
AGENTS = 16
TURNS = 5
THINK_S = 0.05
PATIENCE_S = 60.0


class Balancer(Relay):
    """Takes turns among replicas, a connection at a time; one that does not accept is passed over."""

    def __init__(self) -> None:
        super().__init__()
        self.ports: list[int] = []
        self._next = 0

    async def start(self) -> None:
        self.url = f"http://127.0.0.1:{await self.listen()}"

    async def connect(self) -> Streams | None:
        for _ in range(len(self.ports)):
            self._next += 1
            with suppress(OSError):
                return await asyncio.open_connection("127.0.0.1", self.ports[self._next % len(self.ports)])
        return None


@dataclass
class Seen:
    """What became of the agents' turns."""

    turns: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    longest_s: float = 0.0
    most_running: float = 0.0
    """At once at the engine, as it says."""
    recovery_s: float = 0.0
    moved: float = 0.0
    sum_of_shares: float = 0.0
    """At the end."""
    books: Counter[str] = field(default_factory=Counter)


class Stage:
    def __init__(self, redis: RedisServer, engine: EngineServer, wire: Wire, flags: tuple[str, ...]) -> None:
        self.redis, self.engine, self.wire, self._flags = redis, engine, wire, flags
        self.replicas: list[ProxyProcess] = []
        self.dead: list[ProxyProcess] = []
        self.balancer = Balancer()
        self.seen = Seen()
        self.over = asyncio.Event()
        self.client = httpx.AsyncClient()

    async def add(self, *, state: str | None = None, env: Mapping[str, str] | None = None) -> ProxyProcess:
        """``state``: another way to Redis than the straight one."""
        replica = await asyncio.to_thread(self._start, state or self.redis.url, env)
        self.replicas.append(replica)
        self.balancer.ports.append(replica.port)
        return replica

    def _start(self, state: str, env: Mapping[str, str] | None) -> ProxyProcess:
        port = ("--port", str(free_port()))
        flags = ("--state", state, "--log-level", "warning", *port, *self._flags)
        return ProxyProcess([self.engine.url], flags=flags, env=env)

    async def take_out(self, replica: ProxyProcess) -> None:
        """End one in an orderly way, as an update does."""
        self.replicas.remove(replica)
        status = await asyncio.to_thread(replica.close)
        self.balancer.ports.remove(replica.port)
        assert status == 0, f"it ended with status {status}"

    def kill(self, replica: ProxyProcess) -> None:
        self.replicas.remove(replica)
        self.dead.append(replica)
        os.kill(replica.pid, signal.SIGKILL)

    # agents

    async def agent(self, number: int) -> None:
        """Session after session until the scene is over; a connection for each turn, so that each may go elsewhere."""
        session = 0
        while not self.over.is_set():
            session += 1
            for turn in range(1, TURNS + 1):
                await self._turn(f"agent-{number}-{session}", turn)
                await asyncio.sleep(THINK_S)

    async def _turn(self, name: str, turn: int) -> None:
        started = time.monotonic()
        last = {"x-session-final": "true"} if turn == TURNS else {}
        try:
            async with AsyncOpenAI(base_url=f"{self.balancer.url}/v1", api_key="k", timeout=PATIENCE_S) as client:
                await client.chat.completions.create(
                    model="alpha",
                    max_tokens=8,
                    messages=[{"role": "user", "content": name * 20 + " go on" * turn}],
                    extra_headers={"x-session-id": name, **last},
                    extra_body={"ignore_eos": True},
                )
        except APIError as error:
            self.seen.failed[type(error).__name__] += 1
        self.seen.turns += 1
        self.seen.longest_s = max(self.seen.longest_s, time.monotonic() - started)

    async def watch(self) -> None:
        """See how much runs at the engine at once, again and again."""
        async with httpx.AsyncClient() as client:
            while True:
                page = (await client.get(f"{self.engine.url}/metrics")).text
                running = sum(
                    float(line.rsplit(" ", 1)[1])
                    for line in page.splitlines()
                    if line.startswith(("vllm:num_requests_running{", "vllm:num_requests_waiting{"))
                )
                self.seen.most_running = max(self.seen.most_running, running)
                await asyncio.sleep(0.02)

    # what replicas say

    async def whole(self) -> bool:
        """Everybody knows of everybody, one leads, and the window is shared out: all of it but what is on the move."""
        states = await asyncio.gather(*(self.state(replica) for replica in self.replicas))
        self.seen.sum_of_shares = sum(state["concur_window"] for state in states)
        return (
            all(state["concur_state_up"] == 1 for state in states)
            and all(state["concur_state_replicas"] == len(self.replicas) for state in states)
            and sum(state["concur_state_leader"] for state in states) == 1
            and abs(self.seen.sum_of_shares - WINDOW) <= len(self.replicas)
        )

    async def exactly_whole(self) -> bool:
        return await self.whole() and self.seen.sum_of_shares == WINDOW

    async def state(self, replica: ProxyProcess) -> dict[str, float]:
        """Sums of a replica's metrics by name."""
        found: dict[str, float] = defaultdict(float)
        for line in (await self.client.get(f"{replica.url}/metrics", timeout=PATIENCE_S)).text.splitlines():
            if line.startswith("concur_"):
                found[line.partition(" ")[0].partition("{")[0]] += float(line.rsplit(" ", 1)[1])
        return found

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> float:
        """Wait until something is true; return how long that took."""
        started = time.monotonic()
        while not await condition():
            assert time.monotonic() - started < PATIENCE_S, "it did not come to that"
            await asyncio.sleep(0.05)
        return time.monotonic() - started

    async def turns(self, count: int) -> None:
        """Wait for so many more turns."""
        wanted = self.seen.turns + count
        async with asyncio.timeout(PATIENCE_S):
            while self.seen.turns < wanted:
                await asyncio.sleep(0.02)


@asynccontextmanager
async def stage(
    *, replicas: int = 3, far: int = 0, flags: tuple[str, ...] = ("--window", str(WINDOW))
) -> AsyncIterator[Stage]:
    """Replicas in front of one engine, agents at work; at the end all of them have their answers.

    ``far``: how many of them have a wire between them and Redis.
    """
    options = EngineOptions(port=0, model="alpha", speed=4.0, kv_tokens=400_000, max_num_seqs=256)
    with RedisServer() as redis, EngineServer(options) as engine, Wire(redis.port) as wire:
        scene = Stage(redis, engine, wire, flags)
        ways = [f"redis://127.0.0.1:{wire.port}"] * far + [redis.url] * (replicas - far)
        await scene.balancer.start()
        try:
            for starting in [asyncio.create_task(scene.add(state=way)) for way in ways]:
                await starting
            await scene.until(scene.whole)
            watching = asyncio.create_task(scene.watch())
            agents = [asyncio.create_task(scene.agent(number)) for number in range(AGENTS)]
            await scene.turns(AGENTS)
            try:
                yield scene
            finally:
                scene.over.set()
                async with asyncio.timeout(PATIENCE_S + 10):
                    await asyncio.gather(*agents)
                watching.cancel()
            await scene.until(scene.exactly_whole)
            for replica in scene.replicas:
                state = await scene.state(replica)
                scene.seen.books.update(
                    {name: int(state[name]) for name in ("concur_turns_held", "concur_turns_running")}
                )
                scene.seen.moved += state["concur_sessions_moved_total"]
        finally:
            await scene.balancer.end()
            await scene.client.aclose()
            await asyncio.gather(*(asyncio.to_thread(replica.close) for replica in [*scene.replicas, *scene.dead]))


# scenes


async def kill_a_replica() -> Seen:
    async with stage() as scene:
        victim = scene.replicas[0]
        scene.kill(victim)
        scene.seen.recovery_s = await scene.until(scene.whole)
        await scene.turns(AGENTS)
    return scene.seen


async def kill_redis(gone_s: float = 2.0) -> Seen:
    async with stage() as scene:
        scene.redis.kill()
        await scene.turns(AGENTS)
        await asyncio.sleep(gone_s)
        scene.redis.start()
        scene.seen.recovery_s = await scene.until(scene.whole)
        await scene.turns(AGENTS)
    return scene.seen


async def freeze_redis(frozen_s: float = 7.0) -> Seen:
    """Longer than a replica's time to live: all of them are taken for dead when it wakes."""
    async with stage() as scene:
        scene.redis.pause()
        await scene.turns(AGENTS)
        await asyncio.sleep(frozen_s)
        scene.redis.resume()
        scene.seen.recovery_s = await scene.until(scene.whole)
        await scene.turns(AGENTS)
    return scene.seen


async def slow_redis(pauses: int = 5) -> Seen:
    async with stage() as scene:
        for _ in range(pauses):
            scene.redis.command("CLIENT", "PAUSE", "200", "ALL")
            await scene.turns(AGENTS)
        scene.seen.recovery_s = await scene.until(scene.whole)
    return scene.seen


async def cut_off_a_replica() -> Seen:
    """From Redis, while the others hear of each other: they take it for dead."""
    return await _cut(far=1)


async def cut_redis_off() -> Seen:
    """From all replicas at once."""
    return await _cut(far=3)


async def _cut(far: int, cut_s: float = 8.0) -> Seen:
    """Cut the network between some replicas and Redis, for longer than a replica's time to live."""
    async with stage(far=far) as scene:
        scene.wire.cut()
        await scene.turns(AGENTS)
        await asyncio.sleep(cut_s)
        scene.wire.heal()
        scene.seen.recovery_s = await scene.until(scene.whole)
        await scene.turns(AGENTS)
    return scene.seen


CLOCK = '''\
"""The wall clock of this process: as wrong, in seconds, as a file says."""
import os, time

def shifted(name, per_s):
    right = getattr(time, name)
    def wrong():
        with open(os.environ["WRONG_BY"]) as file:
            return right() + type(right())(float(file.read()) * per_s)
    setattr(time, name, wrong)

shifted("time", 1)
shifted("time_ns", 1_000_000_000)
'''


async def clocks_jump(jump_s: float = 3600.0) -> Seen:
    """One replica's wall clock is put an hour forward, another's an hour back."""
    with tempfile.TemporaryDirectory(prefix="concur-clock-") as name:
        folder = Path(name)
        (folder / "sitecustomize.py").write_text(CLOCK)
        async with stage(replicas=1) as scene:
            for clock in ("one", "other"):
                (folder / clock).write_text("0")
                path = os.pathsep.join(filter(None, (name, os.environ.get("PYTHONPATH"))))
                await scene.add(env={"PYTHONPATH": path, "WRONG_BY": str(folder / clock)})
            await scene.until(scene.whole)
            await scene.turns(AGENTS)
            for clock, by_s in (("one", jump_s), ("other", -jump_s)):
                (folder / "next").write_text(str(by_s))
                (folder / "next").replace(folder / clock)
            await scene.turns(3 * AGENTS)
            scene.seen.recovery_s = await scene.until(scene.whole)
    return scene.seen


async def rolling_restart() -> Seen:
    async with stage() as scene:
        for replica in list(scene.replicas):
            await scene.add()
            await scene.take_out(replica)
            await scene.turns(AGENTS)
        scene.seen.recovery_s = await scene.until(scene.whole)
    return scene.seen
