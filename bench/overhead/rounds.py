"""One proxy in one round: started afresh, warmed, watched while idle, then loaded in every way that counts."""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.overhead import kernel
from bench.overhead.children import BenchError, Engine, Load, Server
from bench.overhead.load import Job, Result
from bench.overhead.ways import Way
from concur_proxy.errors import ConcurError

CONNECTIONS = (1, 64)
SIZES = {"1 KB": 1 << 10, "64 KB": 1 << 16, "1 MB": 1 << 20}
MANY = 64
PACE_PER_S = 500.0
COMFORT = 1.2
"""A proxy that does not reach this much more than the pace with all connections is not asked for its latency."""

P50, P99, RATE, BUSY, CHUNK = "p50", "p99", "rate", "busy", "chunk"
READS, LATE = "reads per event", "late"
RSS_REST, RSS_LOAD = "rss at rest", "rss under load"


def cpu_key(size: str, connections: int) -> str:
    return f"cpu {size} {connections}"


@dataclass(frozen=True, slots=True)
class Plan:
    """How long each part takes, in seconds."""

    warm_s: float = 1.0
    idle_s: float = 2.0
    closed_s: float = 1.5
    streams_s: float = 2.0
    paced_s: float = 4.0


QUICK = Plan(warm_s=0.3, idle_s=0.5, closed_s=0.3, streams_s=0.2, paced_s=0.6)

STEPS = 3 + len(SIZES) * len(CONNECTIONS)
"""Parts of a round with one way, of which a listener is told: start, cases, streams, pace."""


@dataclass(slots=True)
class Figures:
    """What one way cost in one round: seconds, bytes, requests per second, by the names above.

    ``problems`` says for a name why there is no figure.
    """

    values: dict[str, float] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bench:
    """Where a round takes place. ``tell`` hears of each step; ``realtime``: latency is measured ahead of all others."""

    engine: Engine
    load: Load
    cores: kernel.Cores
    plan: Plan
    tell: Callable[[str], None]
    realtime: bool = False

    def ahead(self, server: Server) -> contextlib.AbstractContextManager[None]:
        """Whoever a request goes through runs before all others, where that is wanted."""
        pids = (*kernel.tree(self.engine.pid), *kernel.tree(self.load.pid), *server.pids)
        return kernel.before_all_others(pids) if self.realtime else contextlib.nullcontext()

    def measure(self, way: Way) -> Figures:
        """Run every part with one way; a part that goes wrong leaves a problem and the others go on."""
        figures = Figures()
        with tempfile.TemporaryDirectory(prefix="overhead-") as folder, contextlib.ExitStack() as stack:
            self.tell(f"{way.name}: start")
            try:
                with kernel.on_cores(self.cores.proxy):
                    server = stack.enter_context(way.start(self.engine, Path(folder)))
                _Round(self, server, figures).play(way.name)
            except PermissionError:
                figures.problems[P50] = figures.problems[P99] = "--realtime: this user may not have that priority"
            except (BenchError, ConcurError) as error:
                problem, _, printed = str(error).partition("\n")
                figures.problems["start"] = problem
                print(printed, file=sys.stderr)
        return figures


class _Round:
    def __init__(self, bench: Bench, server: Server, figures: Figures) -> None:
        self._bench, self._server, self._figures = bench, server, figures
        self._idle_share = 0.0

    def play(self, name: str) -> None:
        plan, tell = self._bench.plan, self._bench.tell
        self._rest(plan.idle_s)
        for size in SIZES:
            for connections in CONNECTIONS:
                tell(f"{name}: {size}, {connections} connections")
                self._closed(size, connections)
        tell(f"{name}: streams")
        self._streams()
        tell(f"{name}: {PACE_PER_S:.0f} requests/s")
        self._paced()
        if self._server.pid is not None:
            self._figures.values[RSS_LOAD] = kernel.memory(self._server.pids).peak

    def _rest(self, idle_s: float) -> None:
        """Look at the memory, warm up, and see what it uses with nothing to do."""
        if self._server.pid is not None:
            self._figures.values[RSS_REST] = kernel.memory(self._server.pids).now
        warm = self._play("closed", MANY, self._bench.plan.warm_s)
        if problem := _problem(warm):
            raise BenchError(problem)
        before, started = kernel.cpu_s(self._server.pids), time.perf_counter()
        time.sleep(idle_s)
        self._idle_share = (kernel.cpu_s(self._server.pids) - before) / (time.perf_counter() - started)

    def _closed(self, size: str, connections: int) -> None:
        key = cpu_key(size, connections)
        result = self._case(key, "closed", connections, self._bench.plan.closed_s, SIZES[size])
        if result is not None and (size, connections) == ("1 KB", MANY):
            self._rate(result)

    def _rate(self, result: Result) -> None:
        """Note the most that one core can do: what it did where it was busy all the time, else what it would have."""
        busy = result.cpu_s / result.wall_s
        measured = self._server.pid is None or busy > 0.9
        self._figures.values[RATE] = result.requests / (result.wall_s if measured else result.cpu_s)
        self._figures.values[BUSY] = busy

    def _streams(self) -> None:
        result = self._case(CHUNK, "streams", MANY, self._bench.plan.streams_s)
        if result is not None:
            self._figures.values[READS] = result.reads / result.events

    def _paced(self) -> None:
        if self._figures.values.get(RATE, 0.0) < COMFORT * PACE_PER_S:
            self._figures.problems[P50] = self._figures.problems[P99] = f"does not reach {PACE_PER_S:.0f} requests/s"
            return
        with self._bench.ahead(self._server):
            result = self._case("paced", "paced", MANY, self._bench.plan.paced_s)
        if result is not None:
            latencies = sorted(result.latencies_s)
            self._figures.values[LATE] = result.late_s
            self._figures.values[P50] = latencies[len(latencies) // 2]
            self._figures.values[P99] = latencies[len(latencies) * 99 // 100]

    def _case(self, key: str, kind: str, connections: int, seconds: float, size: int = 1024) -> Result | None:
        """Play a case and note its CPU time under ``key``; None where something went wrong, which is noted instead."""
        result = self._play(kind, connections, seconds, size)
        if problem := _problem(result):
            self._figures.problems[key] = problem
            return None
        if self._server.pid is not None:
            used_s = max(0.0, result.cpu_s - self._idle_share * result.wall_s)
            self._figures.values[key] = used_s / (result.events or result.requests)
        return result

    def _play(self, kind: str, connections: int, seconds: float, size: int = 1024) -> Result:
        server = self._server
        return self._bench.load.play(
            Job(kind, "127.0.0.1", server.port, connections, seconds, size, PACE_PER_S, server.pids)
        )


def _problem(result: Result) -> str:
    problems = dict(result.problems)
    if not result.requests:
        problems["no answer"] = 1
    return ", ".join(f"{count} times {what}" for what, count in problems.items())
