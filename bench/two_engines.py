#!/usr/bin/env python3
"""Several engines behind one proxy, beside one engine behind one proxy, at the same load per engine; in turns.

    python bench/two_engines.py                                          # embedded engines: 1, 2 and 4
    python bench/two_engines.py --kind vllm --engines 1,2 --rounds 3     # real vLLM on a simulated device (tests/rig)
    python bench/two_engines.py --kind vllm --engines 1,2 --rounds 3 --write docs/fleets.md

Each run has a proxy of its own and engines with empty caches. Steps of the simulated device take as long as on the
hardware that it stands for, so that the machine's few cores are not what limits: the last column tells how busy they
were. Engines' spread is how much more than the mean the busiest of them has been asked to read.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

sys.path.append(str(Path(__file__).resolve().parents[1]))  # behind what is installed, which may be compiled

from bench.overhead import document
from concur_proxy.bench.engine_stats import EngineStats
from concur_proxy.bench.player import PlayOptions, play
from concur_proxy.bench.proxy_process import QUIET, ProxyProcess
from concur_proxy.bench.report import Report
from concur_proxy.bench.workloads import SyntheticAgents
from concur_proxy.sim.server import EngineOptions, EngineServer
from tests.rig.engine import RigEngine

SPEEDS = {"vllm": 1.0, "embedded": 4.0}
COLUMNS = "engines, agents, runs, hit rate, difference, useful tokens/s per engine, over one, spread, machine busy"
NAMES = {"vllm": "vLLM 0.33 on a simulated device", "embedded": "embedded engines (`laptop`, four times its speed)"}


@dataclass(frozen=True, slots=True)
class Run:
    report: Report
    spread: float
    """By how much the engine that was asked to read most exceeds the mean of all, as a share."""
    busy: float
    """Share of the machine's cores that was in use, by anybody."""


def started(stack: ExitStack, options: argparse.Namespace) -> tuple[list[str], list[str] | None]:
    """Start all engines that any run needs; return their URLs, and the words that agents should use."""
    count = max(options.engines)
    if options.kind == "embedded":
        given = EngineOptions(port=0, kv_tokens=options.kv_tokens, speed=options.speed)
        return [stack.enter_context(EngineServer(given)).url for _ in range(count)], None
    environment = {"VLLM_SERVER_DEV_MODE": "1"}
    engines = [
        stack.enter_context(
            RigEngine("vllm", kv_tokens=options.kv_tokens, speed=options.speed, environment=environment, deadline_s=600)
        )
        for _ in range(count)
    ]
    return [engine.url for engine in engines], list(engines[0].words)


def run(urls: Sequence[str], words: list[str] | None, options: argparse.Namespace) -> Run:
    agents = SyntheticAgents(
        sessions=options.agents * len(urls),
        turns=options.turns,
        first_tokens=options.new_tokens,
        new_tokens=options.new_tokens,
        think_s=options.think,
    )
    with ProxyProcess(list(urls), flags=(*QUIET, *options.flags), patience_s=120.0) as proxy:
        return asyncio.run(_play(proxy.url, urls, agents, PlayOptions(words=words) if words else PlayOptions()))


async def _play(url: str, engines: Sequence[str], agents: SyntheticAgents, options: PlayOptions) -> Run:
    stats = [EngineStats(engine) for engine in engines]
    for each in stats:
        await each.reset_cache()
        await each.begin()
    before = _ticks()
    report = await play(url, agents.scripts(), options)
    after = _ticks()
    read = [(await each.end()).prompt_tokens or 0.0 for each in stats]
    for each in stats:
        await each.aclose()
    return Run(report, max(read) / mean(read) - 1.0, (after[0] - before[0]) / max(1, after[1] - before[1]))


def _ticks() -> tuple[int, int]:
    """Ticks in which cores were in use, and all ticks, since the machine runs."""
    ticks = [int(number) for number in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    return sum(ticks) - idle, sum(ticks)


def table(runs: dict[int, list[Run]], options: argparse.Namespace) -> str:
    one = runs[min(runs)]
    base_hits = mean(each.report.hit_rate or 0.0 for each in one)
    base_rate = mean(each.report.useful_tokens_per_s for each in one) / min(runs)
    lines = [f"| {' | '.join(COLUMNS.split(', '))} |", "|" + "---|" * len(COLUMNS.split(", "))]
    for count, done in runs.items():
        if not done:
            continue
        hits = [each.report.hit_rate or 0.0 for each in done]
        rate = mean(each.report.useful_tokens_per_s for each in done) / count
        cells = [
            f"{count}",
            f"{count * options.agents}",
            f"{len(done)}",
            f"{mean(hits):.3f} ({min(hits):.3f} to {max(hits):.3f})",
            f"{mean(hits) - base_hits:+.3f}",
            f"{rate:,.0f}",
            f"{rate / base_rate:.2f}",
            "-" if count == 1 else f"{max(each.spread for each in done):.1%}",
            f"{mean(each.busy for each in done):.0%}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    errors = sum(each.report.errors for done in runs.values() for each in done)
    about = (
        f"{NAMES[options.kind]}, {options.kv_tokens:,} tokens of cache each, {options.agents} agents per engine with "
        f"{options.turns} turns of {options.new_tokens} new tokens, tool pauses of {options.think:g} s; "
        f"{os.cpu_count()} cores; runs in turns, {errors} errors."
    )
    return "\n".join([about, "", *lines])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=sorted(SPEEDS), default="embedded")
    parser.add_argument("--engines", type=_counts, default=[1, 2, 4], help="how many, such as 1,2,4")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--agents", type=int, default=24, help="per engine")
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--new-tokens", type=int, default=400)
    parser.add_argument("--think", type=float, default=0.5)
    parser.add_argument("--kv-tokens", type=int, default=65_536)
    parser.add_argument("--speed", type=float, help="times faster than the hardware; default: 1 for vllm, 4 else")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the table between the page's marks, too")
    parser.add_argument("flags", nargs="*", help="flags of `concur-proxy serve`, after --")
    options = parser.parse_args()
    options.speed = options.speed or SPEEDS[options.kind]
    runs: dict[int, list[Run]] = {count: [] for count in options.engines}
    with ExitStack() as stack:
        urls, words = started(stack, options)
        for number in range(options.rounds):
            for count in options.engines if number % 2 == 0 else reversed(options.engines):
                done = run(urls[:count], words, options)
                runs[count].append(done)
                report = done.report
                print(
                    f"round {number + 1}, {count} engines: hit rate {report.hit_rate or 0:.3f}, "
                    f"{report.useful_tokens_per_s / count:.0f} useful tokens/s per engine, {report.wall_s:.0f} s, "
                    f"spread {done.spread:.1%}, machine {done.busy:.0%} busy, {report.errors} errors",
                    flush=True,
                )
    text = table(runs, options)
    print("\n" + text)
    if options.write:
        document.write(options.write, f"engines: {options.kind}", text)


def _counts(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


if __name__ == "__main__":
    main()
