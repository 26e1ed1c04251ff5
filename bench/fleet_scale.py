#!/usr/bin/env python3
"""What the gate of a large fleet costs: time per decision and memory per idle session. No network, no event loop.

    python bench/fleet_scale.py

All sessions have run and are between two turns. Then turns arrive and end at random: most of sessions that are idle,
some of new ones; windows are moved meanwhile, once a second for each backend. Times are CPU time of the thread, since
on a shared machine the rest is the others'. What neighbours do to caches and clock is in them: a yardstick, the same
short computation again and again, tells how far that alone draws the tail out.
"""

from __future__ import annotations

import argparse
import gc
import random
import time
import tracemalloc
from array import array
from collections import defaultdict, deque
from collections.abc import Callable
from typing import TypeVar

from concur_proxy.core.gate import Gate, GatePolicy
from concur_proxy.model import (
    Admitted,
    BackendEvent,
    BackendId,
    Lease,
    Outcome,
    PoolId,
    SessionKey,
    TurnFacts,
    Usage,
)
from concur_proxy.windows.base import Unit

POOL = PoolId("pool")
PREFIXES = 20
STEP_S = 0.0005
YARDSTICK = range(600)
CAPACITY_TOKENS = 20_000_000.0
T = TypeVar("T")


class Fleet:
    """A gate with its backends, a clock, and the times that calls have taken."""

    def __init__(self, backends: int, sessions: int, window: float) -> None:
        self.gate = Gate(GatePolicy(max_sessions=2 * sessions, lease_min_s=3600, lease_max_s=7200))
        self.now = 0.0
        self.names = [BackendId(f"backend-{number}") for number in range(backends)]
        for name in self.names:
            self.gate.add_backend(
                name, POOL, unit=Unit.SESSIONS, window=window, capacity_tokens=CAPACITY_TOKENS, now=0.0
            )
            self.gate.backend(name, BackendEvent.UP, now=0.0)
        self.times: defaultdict[str, array[int]] = defaultdict(lambda: array("q"))

    def timed(self, what: str, call: Callable[[], T]) -> T:
        start = time.thread_time_ns()
        result = call()
        self.times[what].append(time.thread_time_ns() - start)
        return result

    def arrive(self, session: int, turn: int, what: str) -> Lease | None:
        self.now += STEP_S
        key = SessionKey("key", f"session-{session}")
        facts = TurnFacts(POOL, key, body_bytes=16_000, body_digest=turn, prefix_key=session % PREFIXES)
        answer = self.timed(what, lambda: self.gate.arrive(facts, now=self.now))
        return answer.lease if isinstance(answer, Admitted) else None

    def finish(self, lease: Lease) -> list[Lease]:
        self.now += STEP_S
        usage = Usage(prompt_tokens=4000, completion_tokens=200, cached_tokens=3600)
        done = self.timed(
            "finish", lambda: self.gate.finish(lease, Outcome.COMPLETED, usage, first_token_at=self.now, now=self.now)
        )
        return [each.lease for each in done.decisions if isinstance(each, Admitted)]


def settle(fleet: Fleet, sessions: int) -> None:
    """Let all sessions run once."""
    for session in range(sessions):
        lease = fleet.arrive(session, 0, "warm up")
        if lease is not None:
            fleet.finish(lease)
    fleet.times.clear()


def bytes_per_session(backends: int, sessions: int, window: float) -> float:
    """Return the memory that the gate keeps for an idle session, its id included."""
    fleet = Fleet(backends, sessions, window)
    gc.collect()
    tracemalloc.start()
    settle(fleet, sessions)
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size / sessions


def play(fleet: Fleet, sessions: int, turns: int, running: int, seed: int) -> None:
    """Let turns come and go."""
    chance, leases, newest = random.Random(seed), deque[Lease](), sessions
    moved_at = fleet.now
    for turn in range(1, turns + 1):
        is_new = chance.random() < 0.05
        newest += is_new
        lease = fleet.arrive(
            newest if is_new else chance.randrange(sessions), turn, "arrive, new" if is_new else "arrive, idle"
        )
        leases.extend([lease] if lease is not None else [])
        fleet.timed("yardstick", lambda: sum(YARDSTICK))
        if len(leases) > running:
            leases.extend(fleet.finish(leases.popleft()))
        if fleet.now - moved_at >= 1.0:
            moved_at = fleet.now
            for name in fleet.names:
                window = fleet.gate.view(name, now=fleet.now).window
                fleet.timed("resize", lambda name=name, window=window: fleet.gate.resize(name, window, now=fleet.now))
            fleet.timed("tick", lambda: fleet.gate.tick(now=fleet.now))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", type=int, default=64)
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--turns", type=int, default=100_000)
    parser.add_argument("--running", type=int, default=2000, help="turns in flight (default: %(default)s)")
    parser.add_argument("--window", type=float, default=4000, help="sessions per backend (default: %(default)s)")
    options = parser.parse_args()
    size = bytes_per_session(options.backends, options.sessions, options.window)
    fleet = Fleet(options.backends, options.sessions, options.window)
    settle(fleet, options.sessions)
    play(fleet, options.sessions, options.turns, options.running, seed=1)
    print(f"{options.sessions} idle sessions on {options.backends} backends: {size:.0f} bytes each")
    every = [each for what, times in fleet.times.items() if what != "yardstick" for each in times]
    for what, taken in [*sorted(fleet.times.items()), ("all decisions", every)]:
        times = sorted(taken)
        p50, p90, p99 = (times[int(len(times) * share)] / 1000 for share in (0.5, 0.9, 0.99))
        print(f"{what:16s} {len(times):8d} calls   p50 {p50:7.1f} us   p90 {p90:7.1f} us   p99 {p99:7.1f} us")


if __name__ == "__main__":
    main()
