"""The load: connections that send chat requests, driven by callbacks; what a client costs must not be what is measured.

``closed``: each connection sends its next request when the answer to the last one is complete. ``streams``: the same
with streams. ``paced``: requests leave at fixed times whatever has been answered, each on the connection that was
free for longest, so that all sessions take part.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import httptools

from bench.overhead import bodies, kernel
from bench.overhead.upstream import CHUNKS

STREAM_BYTES = 1024
"""Body of a request for a stream, and of a paced one."""


@dataclass(frozen=True, slots=True)
class Job:
    """``kind`` is closed, streams or paced. ``pids`` are the processes whose CPU time is wanted."""

    kind: str
    host: str
    port: int
    connections: int
    seconds: float
    body_bytes: int = STREAM_BYTES
    rate: float = 0.0
    """Requests per second, where paced."""
    pids: tuple[int, ...] = ()
    patience_s: float = 120.0
    """How long answers may still take when the time is over."""


@dataclass(slots=True)
class Result:
    """``cpu_s`` is the CPU time of the job's processes; ``problems`` are requests that went wrong."""

    requests: int = 0
    events: int = 0
    """Complete events of streams."""
    reads: int = 0
    """Times that a stream's bytes came: fewer than events where some came together."""
    wall_s: float = 0.0
    cpu_s: float = 0.0
    latencies_s: list[float] = field(default_factory=list)
    """Of paced requests, in the order in which they ended."""
    late_s: float = 0.0
    """The most by which a paced request left later than it was due."""
    problems: dict[str, int] = field(default_factory=dict)

    def fail(self, what: str) -> None:
        self.problems[what] = self.problems.get(what, 0) + 1

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Connection(asyncio.Protocol):
    """One connection, one request at a time. ``done`` is called with the connection when an answer is complete."""

    def __init__(self, result: Result, done: Callable[[Connection], None]) -> None:
        self._result, self._done = result, done
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport
        self.sent_at = 0.0
        self.turns = 0
        self.waiting = False
        self.lost = False
        self.request: bodies.Request

    def send(self, due_at: float | None = None) -> None:
        """Send the next request; it counts from when it was due, where that is told."""
        self.waiting = True
        self.turns += 1
        self.sent_at = due_at or time.perf_counter()
        request, turn = self.request, self.request.turn(self.turns)
        if len(request.start) < 1 << 16:
            self._transport.write(request.start + turn)
        else:
            self._transport.write(request.start)
            self._transport.write(turn)

    def close(self) -> None:
        self.lost = True
        self._transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        transport.set_write_buffer_limits(1 << 24)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, _: Exception | None) -> None:
        lost, self.lost = self.lost, True
        if not lost and self.waiting:
            self._end("the connection was lost")

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        self._end(None if status == 200 else f"status {status}")

    def _end(self, problem: str | None) -> None:
        self.waiting = False
        if problem is None:
            self._result.requests += 1
        else:
            self._result.fail(problem)
        self._done(self)


class StreamConnection(Connection):
    """Counts events, and notices a stream that has too few."""

    def __init__(self, result: Result, done: Callable[[Connection], None]) -> None:
        super().__init__(result, done)
        self._events = 0
        self._line_ended = False

    def data_received(self, data: bytes) -> None:
        self._result.reads += 1
        super().data_received(data)

    def on_body(self, data: bytes) -> None:
        self._events += data.count(b"\n\n") + (self._line_ended and data.startswith(b"\n"))
        self._line_ended = data.endswith(b"\n") and not data.endswith(b"\n\n")

    def on_message_complete(self) -> None:
        events, self._events = self._events, 0
        self._result.events += events
        if self._parser.get_status_code() == 200 and events < CHUNKS:
            self._end(f"a stream of {events} events")
        else:
            super().on_message_complete()


class Run:
    """Plays one job."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.result = Result()
        self._until = 0.0
        self._connections: list[Connection] = []
        self._free: deque[Connection] = deque()
        self._under_way = 0
        self._answered_one = asyncio.Event()

    async def play(self) -> Result:
        try:
            await self._connect()
            return await self._measure()
        finally:
            for connection in self._connections:
                connection.close()
            await asyncio.sleep(0)

    async def _measure(self) -> Result:
        job, result = self.job, self.result
        cpu_s, started = kernel.cpu_s(job.pids), time.perf_counter()
        self._until = started + job.seconds
        try:
            async with asyncio.timeout(job.seconds + job.patience_s):
                await (self._paced(started) if job.kind == "paced" else self._closed())
        except TimeoutError:
            result.fail("no answer in time")
        result.wall_s = time.perf_counter() - started
        result.cpu_s = kernel.cpu_s(job.pids) - cpu_s
        return result

    async def _connect(self) -> None:
        loop, job = asyncio.get_running_loop(), self.job
        streams = job.kind == "streams"
        kind = StreamConnection if streams else Connection
        for number in range(job.connections):
            _, connection = await loop.create_connection(lambda: kind(self.result, self._answered), job.host, job.port)
            authority = f"{job.host}:{job.port}"
            connection.request = bodies.request(authority, f"agent-{number}", job.body_bytes, stream=streams)
            self._connections.append(connection)

    async def _closed(self) -> None:
        for connection in self._connections:
            self._send(connection)
        await self._all_answered()

    async def _paced(self, started: float) -> None:
        """Send at fixed times; where no connection is free, as soon as there is one."""
        self._free.extend(self._connections)
        for number in range(round(self.job.seconds * self.job.rate)):
            due_at = started + number / self.job.rate
            while (wait_s := due_at - time.perf_counter()) > 0:
                await asyncio.sleep(wait_s)
            self.result.late_s = max(self.result.late_s, time.perf_counter() - due_at)
            if self._free:
                self._send(self._free.popleft())
            else:
                while not self._free:
                    await self._next_answer()
                self._send(self._free.popleft(), due_at)
        await self._all_answered()

    def _send(self, connection: Connection, due_at: float | None = None) -> None:
        self._under_way += 1
        connection.send(due_at)

    async def _all_answered(self) -> None:
        while self._under_way:
            await self._next_answer()

    async def _next_answer(self) -> None:
        self._answered_one.clear()
        await self._answered_one.wait()

    def _answered(self, connection: Connection) -> None:
        self._under_way -= 1
        if connection.lost:
            pass
        elif self.job.kind == "paced":
            self.result.latencies_s.append(time.perf_counter() - connection.sent_at)
            self._free.append(connection)
        elif time.perf_counter() < self._until:
            self._send(connection)
            return
        self._answered_one.set()


async def play(job: Job) -> Result:
    """Play a job; OSError where no connection can be made. Meant for a process that does nothing else."""
    return await Run(job).play()
