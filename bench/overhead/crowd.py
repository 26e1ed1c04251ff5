"""A crowd of clients whose turns a proxy holds: what they cost it, and what they do to those that run beside them."""

from __future__ import annotations

import asyncio
import json
import resource
import time
from dataclasses import dataclass
from urllib.request import urlopen

from bench.overhead import bodies, kernel
from bench.overhead.children import BenchError, Load, Server
from bench.overhead.load import Job, Result
from bench.overhead.upstream import ENDLESS

ACTIVE = 16
"""Sessions that have a place and send turns all the time."""
STREAMS = 3 * ACTIVE
"""Sessions whose streams never end: beside an engine that runs far fewer turns than it could, idle places are lost."""
PLACES = ACTIVE + STREAMS
PACE_PER_S = 400.0
SPARE_FILES = 200
BATCH = 200
PATIENCE_S = 120.0
POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Shape:
    turns: int
    body_bytes: int
    active_s: float


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes a turn, seconds. ``quiet`` is without held turns, ``crowded`` beside them."""

    connection_bytes: float
    turn_bytes: float
    """Beyond that of its connection."""
    rss_bytes: float
    """Of the proxy with all turns held."""
    quiet_p50_s: float
    quiet_p99_s: float
    quiet_cpu_s: float
    crowded_p50_s: float
    crowded_p99_s: float
    crowded_cpu_s: float


def allow_files(wanted: int) -> None:
    """Let us and our children have so many files open. BenchError where the machine does not."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise BenchError(f"{wanted} open files are needed and {hard} allowed: raise the hard limit (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else hard, hard))


class Client(asyncio.Protocol):
    """Sends one request and notes whether an answer comes."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.answered = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport

    def data_received(self, _: bytes) -> None:
        self.answered = True

    def send(self, request: bodies.Request) -> None:
        self.transport.write(request.start + request.turn(0))


async def hold(server: Server, load: Load, shape: Shape) -> Held:
    """Measure with a proxy of ``PLACES`` places that has seen no session yet. BenchError where turns go other ways."""
    crowd = _Crowd(server, load, shape)
    try:
        return await crowd.measure()
    finally:
        for client in crowd.clients:
            client.transport.abort()
        await asyncio.sleep(0)


class _Crowd:
    def __init__(self, server: Server, load: Load, shape: Shape) -> None:
        self._server, self._load, self._shape = server, load, shape
        self._authority = f"127.0.0.1:{server.port}"
        self.clients: list[Client] = []

    async def measure(self) -> Held:
        await self._start_streams()
        self._active()  # warms up and takes the places
        quiet, at_first = self._active(), self._rss()
        clients = await self._connect(self._shape.turns)
        connected = self._rss()
        await self._send_turns(clients)
        held, crowded = self._rss(), self._active()
        if any(client.answered for client in clients):
            raise BenchError("a turn was answered that should have been held")
        turns = self._shape.turns
        sizes = ((connected - at_first) / turns, (held - connected) / turns, held)
        return Held(*sizes, *_latency(quiet), *_latency(crowded))

    async def _start_streams(self) -> None:
        for number, client in enumerate(await self._connect(STREAMS)):
            client.send(bodies.request(self._authority, f"stream-{number}", 1024, stream=True, user=ENDLESS))
        await self._await("running", STREAMS)

    async def _send_turns(self, clients: list[Client]) -> None:
        for number, client in enumerate(clients):
            client.send(bodies.request(self._authority, f"held-{number}", self._shape.body_bytes))
            if number % BATCH == 0:
                await asyncio.sleep(0)
        await self._await("held", self._shape.turns)

    async def _connect(self, count: int) -> list[Client]:
        loop, before = asyncio.get_running_loop(), len(self.clients)
        while (left := before + count - len(self.clients)) > 0:
            opening = (loop.create_connection(Client, "127.0.0.1", self._server.port) for _ in range(min(BATCH, left)))
            self.clients += [client for _, client in await asyncio.gather(*opening)]
        return self.clients[before:]

    async def _await(self, state: str, count: int) -> None:
        """Wait until the proxy has so many sessions in a state."""
        deadline = time.monotonic() + PATIENCE_S
        while (found := self._sessions()[state]) != count:
            if time.monotonic() > deadline:
                raise BenchError(f"the proxy has {found} {state} sessions, not {count}")
            await asyncio.sleep(POLL_S)

    def _sessions(self) -> dict[str, int]:
        with urlopen(f"http://{self._authority}/concur/status", timeout=30) as answer:
            return dict(json.load(answer)["sessions"])

    def _active(self) -> Result:
        """Play the turns of the active sessions; meanwhile this process has nothing to do."""
        pids = self._server.pids
        job = Job("paced", "127.0.0.1", self._server.port, ACTIVE, self._shape.active_s, rate=PACE_PER_S, pids=pids)
        result = self._load.play(job)
        if result.problems:
            raise BenchError(f"turns of active sessions: {result.problems}")
        return result

    def _rss(self) -> int:
        return kernel.memory(self._server.pids).now


def _latency(result: Result) -> tuple[float, float, float]:
    """Return p50, p99 and the CPU time of a turn, in seconds."""
    ordered = sorted(result.latencies_s)
    p50, p99 = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
    return p50, p99, result.cpu_s / result.requests
