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
    authority = f"127.0.0.1:{server.port}"
    streams = await _connect(server, STREAMS)
    for number, client in enumerate(streams):
        client.send(bodies.request(authority, f"stream-{number}", 1024, stream=True, user=ENDLESS))
    await _await_status(server, "running", STREAMS)
    _active(server, load, shape.active_s)  # warms up and takes the places
    quiet = _active(server, load, shape.active_s)
    at_first = kernel.memory(server.pids).now
    clients = await _connect(server, shape.turns)
    connected = kernel.memory(server.pids).now
    for number, client in enumerate(clients):
        client.send(bodies.request(authority, f"held-{number}", shape.body_bytes))
        if number % BATCH == 0:
            await asyncio.sleep(0)
    await _await_status(server, "held", shape.turns)
    held = kernel.memory(server.pids).now
    crowded = _active(server, load, shape.active_s)
    if any(client.answered for client in clients):
        raise BenchError("a turn was answered that should have been held")
    for client in (*streams, *clients):
        client.transport.abort()
    return Held(
        (connected - at_first) / shape.turns,
        (held - connected) / shape.turns,
        held,
        *_latency(quiet),
        *_latency(crowded),
    )


async def _connect(server: Server, count: int) -> list[Client]:
    loop = asyncio.get_running_loop()
    found: list[Client] = []
    while len(found) < count:
        batch = min(BATCH, count - len(found))
        made = await asyncio.gather(*(loop.create_connection(Client, "127.0.0.1", server.port) for _ in range(batch)))
        found += [client for _, client in made]
    return found


async def _await_status(server: Server, name: str, count: int) -> None:
    """Wait until the proxy has so many sessions in a state."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := _sessions(server)[name]) != count:
        if time.monotonic() > deadline:
            raise BenchError(f"the proxy has {found} {name} sessions, not {count}")
        await asyncio.sleep(POLL_S)


def _sessions(server: Server) -> dict[str, int]:
    with urlopen(f"http://127.0.0.1:{server.port}/concur/status", timeout=30) as answer:
        return dict(json.load(answer)["sessions"])


def _active(server: Server, load: Load, seconds: float) -> Result:
    job = Job("paced", "127.0.0.1", server.port, ACTIVE, seconds, rate=PACE_PER_S, pids=server.pids)
    result = load.play(job)
    if result.problems:
        raise BenchError(f"turns of active sessions: {result.problems}")
    return result


def _latency(result: Result) -> tuple[float, float, float]:
    ordered = sorted(result.latencies_s)
    p50, p99 = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
    return p50, p99, result.cpu_s / result.requests
