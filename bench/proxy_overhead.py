#!/usr/bin/env python3
"""What a proxy costs: this one, others, and none, side by side in one run. Prints one table.

    python bench/peers.py install            # once: the other proxies, each into an environment of its own
    python bench/proxy_overhead.py           # five rounds, about a quarter of an hour
    python bench/proxy_overhead.py --quick   # within a minute; fails where this proxy costs far too much

A proxy that is not installed is left out, and so is LiteLLM, which is slow to start, from a quick run. Every round
starts each proxy afresh, one at a time, on a core of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # behind what is installed, which may be compiled

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from bench.overhead import document, kernel, rounds
from bench.overhead.children import Engine, Load
from bench.overhead.machine import Facts
from bench.overhead.page import page
from bench.overhead.rounds import QUICK, STEPS, Bench, Plan
from bench.overhead.summary import Results
from bench.overhead.ways import CACHE, LITELLM, NO_PROXY, OURS, RELAY, Way, all_ways

GUARD = 12.0
"""Times the CPU per request of the bare relay, at 1 KB and 64 connections. Compiled it was found at 4 to 6; more than
this is a mistake somewhere, or a proxy that was not compiled on a busy machine."""
MARKER = "proxy_overhead"


def measure(ways: Sequence[Way], plan: Plan, count: int, *, realtime: bool) -> Results:
    """Play the rounds: A B C, A B C."""
    results = Results()
    cores = kernel.Cores.split(os.sched_getaffinity(0))
    columns = (TextColumn("{task.description:32}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as progress,
        kernel.on_cores(cores.rest),
        Engine() as engine,
        Load() as load,
    ):
        task = progress.add_task("", total=count * len(ways) * STEPS)

        def tell(what: str) -> None:
            progress.update(task, description=what, advance=1)

        bench = Bench(engine, load, cores, plan, tell, realtime=realtime)
        for _ in range(count):
            for way in ways:
                results.add(way.name, bench.measure(way))
    return results


def guard(results: Results) -> str | None:
    """Return what is wrong with this proxy's cost, compared with what the relay used in the same run."""
    for way in (OURS, RELAY):
        for figures in results.by_way.get(way, []):
            if figures.problems:
                return f"{way}: {figures.problems}"
    ratio = results.ratio(OURS, RELAY, rounds.cpu_key("1 KB", rounds.MANY))
    if ratio is None:
        return None
    print(f"CPU per request: {ratio:.2f} times the bare relay's; {GUARD:g} are allowed", file=sys.stderr)
    return f"a request costs {ratio:.1f} times what it costs in the bare relay" if ratio > GUARD else None


def chosen(ways: Sequence[Way], only: str | None, *, quick: bool) -> list[Way]:
    """Return the ways that were asked for; no proxy is always among them, as the others are compared with it."""
    names = {way.name for way in ways}
    wanted = {NO_PROXY, *only.split(",")} if only else names - ({LITELLM} if quick else set())
    if unknown := wanted - names:
        sys.exit(f"--only: {', '.join(sorted(unknown))}: there is no such way; these are: {', '.join(sorted(names))}")
    return [way for way in ways if way.name in wanted]


def command(given: argparse.Namespace, count: int) -> str:
    """Return the command that measures the same again."""
    only = f" --only {given.only}" if given.only else ""
    flags = " --quick" * given.quick + " --realtime" * given.realtime
    return f"python bench/proxy_overhead.py{flags} --rounds {count} --law {given.law}{only}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--law", default="aimd", help="the law of this proxy (default: %(default)s)")
    parser.add_argument("--rounds", type=int, help="default: 5, with --quick 1")
    parser.add_argument("--only", help="names of ways, with commas between them")
    parser.add_argument(
        "--quick", action="store_true", help="short cases; exit status 1 where this proxy costs too much"
    )
    parser.add_argument(
        "--realtime",
        action="store_true",
        help="measure latency with everybody ahead of whatever else the machine does (needs root)",
    )
    parser.add_argument("--cache", type=Path, default=CACHE, help="where the peers are (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="file for every figure of every round")
    parser.add_argument("--write", type=Path, help=f"page whose block {MARKER} is replaced by the table")
    return parser.parse_args()


def main() -> int:
    given = arguments()
    count = given.rounds or (1 if given.quick else 5)
    ways = chosen(all_ways(law=given.law, cache=given.cache), given.only, quick=given.quick)
    facts = Facts.gather(command(given, count), count)
    plan = QUICK if given.quick else Plan()
    results = measure([way for way in ways if way.version is not None], plan, count, realtime=given.realtime)
    block = page(results, ways, facts)
    print(block)
    if given.json:
        given.json.write_text(json.dumps({"facts": asdict(facts), "rounds": results.as_json()}, indent=1) + "\n")
    if given.write:
        document.write(given.write, MARKER, block)
    wrong = guard(results) if given.quick else None
    if wrong:
        print(f"proxy_overhead: {wrong}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
