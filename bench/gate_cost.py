#!/usr/bin/env python3
"""What the gate costs: microseconds per decision, and memory per held turn. No network, no event loop.

    python bench/gate_cost.py
    python bench/gate_cost.py --orders      # each order beside fifo, with many turns held
    python bench/gate_cost.py --profile     # where the time of arrive + finish goes

Times are the median CPU time of several rounds on one core; each turn carries a session, a prefix key and a usage.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import math
import pstats
import statistics
import time
import tracemalloc
from collections import deque
from collections.abc import Callable
from functools import partial

from concur_proxy.core.gate import Gate, GatePolicy
from concur_proxy.core.order.registry import ORDERS
from concur_proxy.model import (
    Admitted,
    BackendEvent,
    BackendId,
    Held,
    Lease,
    Outcome,
    PoolId,
    SessionKey,
    TurnFacts,
    Usage,
)
from concur_proxy.windows.base import Unit

POOL = PoolId("pool")
CAPACITY_TOKENS = 1_000_000.0
TURNS_PER_SESSION = 10
USAGE = Usage(prompt_tokens=4000, completion_tokens=200, cached_tokens=3600)


def facts(session: int, turn: int = 0, *, final: bool = False, various: bool = False) -> TurnFacts:
    """Return the facts of a turn; ``various``: of a hundred tenants, of every size, a third of them batch work."""
    return TurnFacts(
        pool=POOL,
        session=SessionKey("key", f"session-{session}"),
        rule="header",
        final=final,
        body_bytes=16_000 + 800 * turn + (various and 997 * session % 50_000),
        body_digest=session * 1000 + turn,
        prefix_key=7,
        tenant=f"tenant-{session % 100}" if various else "",
        urgency=-(session % 3 == 0) if various else 0,
    )


class Bench:
    """A gate with some backends, and a clock that moves a millisecond a call."""

    def __init__(self, *, backends: int, window: float, max_held: int = 20_000, **policy: str) -> None:
        self.gate = Gate(GatePolicy(max_held=max_held, **policy))
        self.various = bool(policy)
        self.now = 0.0
        for index in range(backends):
            name = BackendId(f"backend-{index}")
            self.gate.add_backend(
                name, POOL, unit=Unit.SESSIONS, window=window, capacity_tokens=CAPACITY_TOKENS, now=0.0
            )
            self.gate.backend(name, BackendEvent.UP, now=0.0)

    def arrive(self, turn: TurnFacts) -> Admitted | Held:
        self.now += 0.001
        answer = self.gate.arrive(turn, now=self.now)
        assert isinstance(answer, Admitted | Held)
        return answer

    def finish(self, lease: Lease) -> list[Lease]:
        self.now += 0.001
        done = self.gate.finish(lease, Outcome.COMPLETED, USAGE, first_token_at=self.now, now=self.now)
        return [each.lease for each in done.decisions if isinstance(each, Admitted)]

    def fill(self, turns: int) -> list[Lease]:
        """Bring in turns of as many sessions; return the leases of those that run.

        Each is the last of its session: its place is free when it ends.
        """
        answers = [self.arrive(facts(session, final=True, various=self.various)) for session in range(turns)]
        return [answer.lease for answer in answers if isinstance(answer, Admitted)]


def uncontended(turns: int, *, backends: int = 1) -> Callable[[], None]:
    """Every turn is let in at once: sessions of ten turns, one after the other."""
    bench = Bench(backends=backends, window=math.inf)
    every = [facts(index // TURNS_PER_SESSION, index % TURNS_PER_SESSION) for index in range(turns)]

    def play() -> None:
        for turn in every:
            answer = bench.arrive(turn)
            assert isinstance(answer, Admitted)
            bench.finish(answer.lease)

    return play


def contended(turns: int, *, held: int, backends: int = 1, window: int = 16, **policy: str) -> Callable[[], None]:
    """Each finish frees a place and lets in the next of those that wait; another turn joins the line."""
    bench = Bench(backends=backends, window=window, max_held=held + turns + 1, **policy)
    running = deque(bench.fill(backends * window + held))
    first = backends * window + held
    more = [facts(first + index, final=True, various=bench.various) for index in range(turns)]

    def play() -> None:
        for turn in more:
            granted = bench.finish(running.popleft())
            assert granted
            running.extend(granted)
            bench.arrive(turn)

    return play


def microseconds(make: Callable[[int], Callable[[], None]], *, turns: int, rounds: int) -> float:
    """Return the median over rounds of the time per turn."""
    times = []
    for _ in range(rounds):
        play = make(turns)
        gc.collect()
        start = time.process_time()
        play()
        times.append((time.process_time() - start) / turns * 1e6)
        del play
    return statistics.median(times)


def bytes_per_held_turn(turns: int) -> float:
    """Return the memory that the gate keeps for a held turn of a new session, its facts included."""
    bench = Bench(backends=1, window=1, max_held=turns + 1)
    bench.arrive(facts(0))
    gc.collect()
    tracemalloc.start()
    for session in range(1, turns + 1):
        bench.arrive(facts(session))
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size / turns


def profile(turns: int) -> None:
    play = uncontended(turns)
    profiler = cProfile.Profile()
    profiler.runcall(play)
    pstats.Stats(profiler).sort_stats("tottime").print_stats(20)


def compare_orders(turns: int, rounds: int, held: int) -> None:
    """Print what each order costs beside ``fifo``; rounds take turns, so that a busy machine is busy for all."""
    times: dict[str, list[float]] = {order: [] for order in ("fifo", *sorted(set(ORDERS) - {"fifo"}))}
    for _ in range(rounds):
        for order, each in times.items():
            each.append(microseconds(partial(contended, held=held, order=order), turns=turns, rounds=1))
    fifo = statistics.median(times["fifo"])
    for order, each in times.items():
        ratio = statistics.median(one / other for one, other in zip(each, times["fifo"], strict=True))
        print(f"{order:12s} {fifo * ratio:9.1f} us {ratio:7.2f}x", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=2000, help="turns per round (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds, of which the median counts (%(default)s)")
    parser.add_argument("--held", type=int, default=10_000, help="turns that wait (default: %(default)s)")
    parser.add_argument("--backends", type=int, default=64, help="backends of the larger fleet (%(default)s)")
    parser.add_argument("--orders", action="store_true", help="compare the orders, and nothing else")
    parser.add_argument("--profile", action="store_true", help="print where the time goes, and nothing else")
    options = parser.parse_args()
    if options.profile:
        profile(options.turns)
        return
    if options.orders:
        compare_orders(options.turns, options.rounds, options.held)
        return
    held, backends = options.held, options.backends
    cases: list[tuple[str, Callable[[int], Callable[[], None]]]] = [
        ("arrive + finish, nothing held, 1 backend", uncontended),
        (f"arrive + finish, nothing held, {backends} backends", lambda turns: uncontended(turns, backends=backends)),
        (f"finish + grant + arrive, {held} held, 1 backend", lambda turns: contended(turns, held=held)),
        (
            f"finish + grant + arrive, {held} held, {backends} backends",
            lambda turns: contended(turns, held=held, backends=backends),
        ),
    ]
    for label, make in cases:
        cost = microseconds(make, turns=options.turns, rounds=options.rounds)
        print(f"{label:58s} {cost:9.1f} us", flush=True)
    print(f"{f'memory per held turn, {held} held':58s} {bytes_per_held_turn(held):9.0f} bytes")


if __name__ == "__main__":
    main()
