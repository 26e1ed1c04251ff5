#!/usr/bin/env python3
"""Agents in front of real vLLM (tests/rig): straight to it, and through `concur-proxy serve --law aimd`, in turns.

    python bench/rig.py --pairs 3

Three cases: an engine that tells cached tokens, one that does not, and clients that drop the generated text from their
history. Each run starts with an empty cache, each proxied run with a fresh proxy. Prints one Markdown table a case.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from concur_proxy.bench.conversation import History
from concur_proxy.bench.engine_stats import EngineStats
from concur_proxy.bench.pairs import ratio
from concur_proxy.bench.player import PlayOptions, play
from concur_proxy.bench.report import Progress, Report
from concur_proxy.bench.workloads import SyntheticAgents
from tests.rig.engine import RigEngine, StepCosts, free_port

QWEN3_32B = StepCosts(step=0.022, token=1.25e-4, decode=3e-5, context=8.7e-8)
"""Seconds; an assumption about Qwen3-32B on one 80 GB card, nothing was measured on a card."""

READY_S = 30.0


@dataclass(frozen=True)
class Case:
    name: str
    details: bool = True
    history: History = History.FULL


CASES = {
    "told": Case("the engine tells cached tokens"),
    "untold": Case("the engine tells no cached tokens", details=False),
    "dropped": Case("clients drop the generated text", history=History.WITHOUT_GENERATED),
}


@contextmanager
def proxy(engine_url: str, law: str) -> Iterator[str]:
    """Run the proxy as a process of its own and yield its URL."""
    port = free_port()
    command = [sys.executable, "-m", "concur_proxy", "serve", "--backend", engine_url, "--port", str(port)]
    process = subprocess.Popen([*command, "--law", law], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until_ready(url)
        yield url
    finally:
        process.terminate()
        process.wait(timeout=30)


def wait_until_ready(url: str) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        try:
            if httpx.get(f"{url}/readyz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise SystemExit(f"{url} did not get ready within {READY_S:.0f} s")


async def run(url: str, engine: RigEngine, case: Case, agents: SyntheticAgents, label: str) -> Report:
    stats = EngineStats(engine.url)
    options = PlayOptions(words=engine.words, history=case.history, seed=agents.seed)

    def show(progress: Progress) -> None:
        if sys.stderr.isatty():
            print(f"\r{label}: {progress.turns_done}/{progress.turns} turns", end="", file=sys.stderr, flush=True)

    try:
        await stats.reset_cache()
        await stats.begin()
        report = await play(url, agents.scripts(), options, on_progress=show)
        seen = await stats.end()
        return report.with_engine(
            cached_tokens=seen.prefix_hits, looked_up_tokens=seen.prefix_queries, preemptions=seen.preemptions
        )
    finally:
        await stats.aclose()


def pair(engine: RigEngine, case: Case, agents: SyntheticAgents, law: str, *, direct_first: bool) -> dict[str, Report]:
    """Play the same agents both ways, one after the other."""
    reports: dict[str, Report] = {}
    for way in ("direct", law) if direct_first else (law, "direct"):
        if way == "direct":
            reports[way] = asyncio.run(run(engine.url, engine, case, agents, way))
        else:
            with proxy(engine.url, law) as url:
                reports[way] = asyncio.run(run(url, engine, case, agents, way))
        print(f"    {way}: {reports[way].wall_s:.1f} s, {reports[way].errors} errors", file=sys.stderr, flush=True)
    return reports


def table(case: Case, pairs: list[dict[str, Report]], law: str) -> str:
    """Return a Markdown table with one row a run and the ratio below."""
    lines = [f"**{case.name}**", "", "| pair | way | batch, s | tok/s | hit rate | recomputed tokens | errors |"]
    lines.append("|---|---|---|---|---|---|---|")
    for number, reports in enumerate(pairs, 1):
        for way, report in sorted(reports.items(), key=lambda item: item[0] != "direct"):
            hit = "?" if report.hit_rate is None else f"{report.hit_rate:.2f}"
            again = "?" if report.recomputed_tokens is None else f"{report.recomputed_tokens:,}"
            lines.append(
                f"| {number} | {way} | {report.wall_s:.1f} | {report.output_tokens_per_s:.0f} "
                f"| {hit} | {again} | {report.errors} |"
            )
    times = ratio([p["direct"].wall_s for p in pairs], [p[law].wall_s for p in pairs])
    assert times is not None
    lower = "" if times.lower_95 is None else f", 95 % lower bound {times.lower_95:.2f}"
    lines += [
        "",
        f"Time straight to vLLM over time through the proxy: {times.mean:.2f} (least {times.least:.2f}{lower}).",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--case", choices=sorted(CASES), action="append", help="default: all")
    parser.add_argument("--law", default="aimd")
    parser.add_argument("--agents", type=int, default=48)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--new-tokens", type=int, default=1200)
    parser.add_argument("--kv-tokens", type=int, default=98_304)
    parser.add_argument("--speed", type=float, default=3.0, help="times real time")
    parser.add_argument("--json", type=Path, help="file for all reports")
    given = parser.parse_args()
    reports = {}
    for name in given.case or CASES:
        case = CASES[name]
        print(f"{case.name}:", file=sys.stderr, flush=True)
        with RigEngine(
            kv_tokens=given.kv_tokens,
            max_len=16_384,
            speed=given.speed,
            costs=QWEN3_32B,
            prompt_tokens_details=case.details,
            environment={"VLLM_SERVER_DEV_MODE": "1"},
        ) as engine:
            pairs = []
            for number in range(given.pairs):
                agents = SyntheticAgents(
                    sessions=given.agents,
                    turns=given.turns,
                    first_tokens=given.new_tokens,
                    new_tokens=given.new_tokens,
                    seed=number,
                )
                pairs.append(pair(engine, case, agents, given.law, direct_first=number % 2 == 0))
        print(table(case, pairs, given.law) + "\n", flush=True)
        reports[name] = [{way: report.as_json() for way, report in one.items()} for one in pairs]
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {time.strftime('%F')}")
    if given.json:
        given.json.write_text(json.dumps(reports, indent=1))


if __name__ == "__main__":
    main()
