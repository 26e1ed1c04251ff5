#!/usr/bin/env python3
"""What held turns cost this proxy: memory for each, and the latency of the turns that run beside them.

    python bench/held_turns.py                  # ten thousand turns of 4 KB
    python bench/held_turns.py --turns 2000 --rounds 1

64 sessions have a place; 48 of them run streams without end, 16 send 400 turns/s together, first alone and then beside
the crowd. Each round has a fresh proxy.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # behind what is installed, which may be compiled

import uvloop

from bench.overhead import crowd, document, kernel
from bench.overhead.children import BenchError, Engine, Load, Server
from bench.overhead.crowd import Held, Shape
from bench.overhead.machine import Facts
from bench.overhead.page import megabytes, microseconds, milliseconds, spread_text
from bench.overhead.summary import Spread
from concur_proxy.bench.proxy_process import ProxyProcess

MARKER = "held_turns"
ENVIRONMENT = {"CONCUR_GATE__LEASE_MIN_S": "600", "CONCUR_GATE__LEASE_MAX_S": "600"}
"""No place gets free by itself during the measurement."""


def once(shape: Shape) -> Held:
    """Play one round."""
    cores = kernel.Cores.split(os.sched_getaffinity(0))
    with ExitStack() as stack:
        stack.enter_context(kernel.on_cores(cores.rest))
        engine, load = stack.enter_context(Engine()), stack.enter_context(Load())
        flags = ("--window", str(crowd.PLACES))
        with kernel.on_cores(cores.proxy):
            proxy = ProxyProcess([f"http://127.0.0.1:{engine.port}"], flags=flags, env=ENVIRONMENT)
        stack.enter_context(proxy)
        return uvloop.run(crowd.hold(Server(proxy.port, proxy.pid), load, shape))


def page(rounds: Sequence[Held], shape: Shape, facts: Facts) -> str:
    def cell(name: str, text: Callable[[float], str]) -> str:
        return spread_text(Spread.of([getattr(held, name) for held in rounds]), text)

    def kilobytes(size: float) -> str:
        return f"{size / 1000:.1f}"

    lines = ["```console", facts.command, "```", "", facts.sentence(), ""]
    lines += [f"| {shape.turns:,} turns of {shape.body_bytes} bytes | |", "|---|---|"]
    lines += [f"| RSS a held turn, KB | {cell('turn_bytes', kilobytes)} |"]
    lines += [f"| RSS of its connection, KB | {cell('connection_bytes', kilobytes)} |"]
    lines += [f"| RSS with all of them held, MB | {cell('rss_bytes', megabytes)} |", ""]
    lines += ["| active turns | with none held | beside the held ones |", "|---|---|---|"]
    for name, label, text in (
        ("p50_s", "latency p50, ms", milliseconds),
        ("p99_s", "latency p99, ms", milliseconds),
        ("cpu_s", "CPU µs per turn", microseconds),
    ):
        lines.append(f"| {label} | {cell(f'quiet_{name}', text)} | {cell(f'crowded_{name}', text)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=10_000, help="turns that are held (default: %(default)s)")
    parser.add_argument("--body-bytes", type=int, default=4096, help="size of each (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="of which the median counts (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of active turns, alone and beside (%(default)s)")
    parser.add_argument("--json", type=Path, help="file for every figure of every round")
    parser.add_argument("--write", type=Path, help=f"page whose block {MARKER} is replaced by the tables")
    given = parser.parse_args()
    shape = Shape(given.turns, given.body_bytes, given.seconds)
    command = (
        f"python bench/held_turns.py --turns {given.turns} --body-bytes {given.body_bytes} --rounds {given.rounds}"
    )
    facts = Facts.gather(command, given.rounds)
    try:
        crowd.allow_files(given.turns + crowd.SPARE_FILES)
        rounds = [once(shape) for _ in range(given.rounds)]
    except BenchError as error:
        print(f"held_turns: {error}", file=sys.stderr)
        return 1
    block = page(rounds, shape, facts)
    print(block)
    if given.json:
        given.json.write_text(json.dumps({"facts": asdict(facts), "rounds": [*map(asdict, rounds)]}, indent=1) + "\n")
    if given.write:
        document.write(given.write, MARKER, block)
    return 0


if __name__ == "__main__":
    sys.exit(main())
