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
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from concur_proxy.bench.compare import CompareOptions, Comparison, Target, compare
from concur_proxy.bench.conversation import History
from concur_proxy.bench.player import PlayOptions
from concur_proxy.bench.report import Progress, Report
from concur_proxy.bench.tables import count, percent, seconds
from concur_proxy.bench.workloads import SyntheticAgents
from tests.rig.engine import RigEngine, StepCosts

QWEN3_32B = StepCosts(step=0.022, token=1.25e-4, decode=3e-5, context=8.7e-8)
"""Seconds; an assumption about Qwen3-32B on one 80 GB card, nothing was measured on a card."""


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


def play(engine: RigEngine, case: Case, agents: SyntheticAgents, law: str, rounds: int) -> Comparison:
    """Play the same agents both ways, one after the other; which goes first changes from round to round."""
    targets = (
        Target("direct", engine.url, engine.url),
        Target.own_proxy(law, engine.url, "--law", law),
    )
    options = CompareOptions(targets, rounds=rounds, play=PlayOptions(words=engine.words, history=case.history))

    def show(target: Target, index: int, progress: Progress) -> None:
        if sys.stderr.isatty() or progress.turns_done == progress.turns:
            print(
                f"  round {index + 1}, {target.label}: {progress.turns_done}/{progress.turns} turns",
                end="\r" if sys.stderr.isatty() else "\n",
                file=sys.stderr,
                flush=True,
            )

    return asyncio.run(compare(agents.scripts(), options, on_progress=show))


def table(case: Case, comparison: Comparison, law: str) -> str:
    """Return a Markdown table with one row a run and the ratio below."""
    lines = [f"**{case.name[0].upper()}{case.name[1:]}**", ""]
    lines += ["| round | way | batch | tok/s | hit rate | recomputed tokens | turn p50 / p95 | errors |"]
    lines += ["|---|---|---|---|---|---|---|---|"]
    for index in range(len(comparison.reports[law])):
        for way, reports in comparison.reports.items():
            lines.append(f"| {index + 1} | {way} | {row(reports[index])} |")
    found = comparison.ratios[law]
    assert found is not None
    lower = "" if found.lower_95 is None else f", lower bound of the 95 % interval {found.lower_95:.2f}"
    lines += [
        "",
        f"Throughput through the proxy over straight to vLLM: {found.mean:.2f} (least {found.least:.2f}{lower}).",
    ]
    return "\n".join(lines)


def row(report: Report) -> str:
    turns = f"{seconds(report.turn_p50_s)} / {seconds(report.turn_p95_s)}"
    cells = (seconds(report.wall_s), count(report.output_tokens_per_s), percent(report.hit_rate))
    return " | ".join((*cells, count(report.recomputed_tokens), turns, count(report.errors)))


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
            agents = SyntheticAgents(
                sessions=given.agents, turns=given.turns, first_tokens=given.new_tokens, new_tokens=given.new_tokens
            )
            comparison = play(engine, case, agents, given.law, given.pairs)
        print(table(case, comparison, given.law) + "\n", flush=True)
        reports[name] = comparison.as_json()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {time.strftime('%F')}")
    if given.json:
        given.json.write_text(json.dumps(reports, indent=1))


if __name__ == "__main__":
    main()
