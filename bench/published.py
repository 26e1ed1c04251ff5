#!/usr/bin/env python3
"""Published figures beside what the simulator gives for such machines: writes a table of docs/laws.md.

    python bench/published.py --write docs/laws.md  # minutes

The CONCUR paper (arXiv 2601.22705) and an account of it for practitioners tell machines, numbers of agents and results,
but not what agents say: the scenarios say what is assumed in their stead. Each law is played once per seed, first come,
first served.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from laws import FIRST_COME, fixed_of, sweep

sys.path.append(str(Path(__file__).resolve().parents[1]))  # behind what is installed, which may be compiled

from bench.overhead import document
from concur_proxy import __version__
from concur_proxy.sim.agents import TurnDone
from concur_proxy.sim.result import Result
from concur_proxy.simulate.api import run_scenario

PUBLISHED = {
    "paper-qwen3-32b": "1,480 → 362 s (4.09 x); two cards: fixed 1,605, adaptive 846 s",
    "paper-deepseek-v3": "3,877 → 2,043 s (1.90 x)",
    "practice-8b": "1150, 680, 290, 180 → 1200, 1180, 1160, 1150 tok/s",
    "practice-llama-70b": "210 → 756 tok/s (3.6 x)",
    "practice-deepseek-v3": "480 → 912 tok/s (1.90 x)",
}
CAPS = ("requests:8", "requests:16", "requests:32", "requests:64")
LAWS = ("unlimited", *CAPS, "aimd", "meanfield")
PART = 5
"""Turns that are told together."""
BLOCK = "measured: bench/published.py"
"""Of the page."""

Shown = dict[str, tuple[float, float, list[float]]]
"""Arm to seconds, output tokens per second, and the same by turns 1 to 5, 6 to 10 and so on."""


def by_turns(turns: Sequence[TurnDone]) -> list[float]:
    """Return output tokens per second of the engine, by which turn of its session they belong to.

    The engine's time is divided equally among the turns that it works on at each moment.
    """
    ends = sorted({moment for turn in turns for moment in (turn.admitted_at, turn.done_at)})
    changes = dict.fromkeys(ends, 0)
    for turn in turns:
        changes[turn.admitted_at] += 1
        changes[turn.done_at] -= 1
    share, running, shares = 0.0, 0, {ends[0]: 0.0}
    for since, until in itertools.pairwise(ends):
        running += changes[since]
        share += (until - since) / running if running else 0.0
        shares[until] = share
    parts: dict[int, list[float]] = {}
    for turn in turns:
        part = parts.setdefault(turn.index // PART, [0.0, 0.0])
        part[0] += turn.output_tokens
        part[1] += shares[turn.done_at] - shares[turn.admitted_at]
    return [tokens / seconds for _, (tokens, seconds) in sorted(parts.items())]


def play(task: tuple[str, str, int]) -> tuple[float, float, list[float]]:
    scenario, arm, seed = task
    if arm == "fixed":
        played = sweep(scenario, None, seed)
        arm = min(fixed_of(scenario, seed, played), key=lambda each: played[f"{scenario} {each} {seed}"]["score"])
    result: Result = run_scenario(scenario, law=arm, seed=seed, gate=FIRST_COME)
    return result.score, result.figures.output_tokens_per_s, by_turns(result.turns)


def mean(shown: Sequence[tuple[float, float, list[float]]]) -> tuple[float, float, list[float]]:
    seconds, rates, parts = zip(*shown, strict=True)
    return (
        statistics.mean(seconds),
        statistics.mean(rates),
        [statistics.mean(each) for each in zip(*parts, strict=True)],
    )


def rows(shown: dict[str, Shown]) -> Iterator[str]:
    for scenario, arms in shown.items():
        cap = min(CAPS, key=lambda arm: arms[arm][0])
        cells = [f"{arms['unlimited'][0]:,.0f}", f"{arms[cap][0]:,.0f} ({cap.removeprefix('requests:')})"]
        cells += [f"{arms[arm][0]:,.0f}" for arm in ("fixed", "aimd", "meanfield")]
        gain = arms["unlimited"][0] / arms["meanfield"][0]
        yield f"| `{scenario}` | {PUBLISHED[scenario]} | {' | '.join(cells)} | {gain:.2f} |"


def rates(shown: dict[str, Shown]) -> Iterator[str]:
    for scenario, arms in shown.items():
        if scenario.startswith("practice"):
            for arm in ("unlimited", "aimd", "meanfield"):
                _, rate, parts = arms[arm]
                yield f"| `{scenario}` | {arm} | {rate:,.0f} | {' | '.join(f'{part:,.0f}' for part in parts)} |"


def table(shown: dict[str, Shown], command: str) -> str:
    head = (
        "| scenario | published | nothing held | best request cap | best fixed window | `aimd` | `meanfield` | "
        "nothing held over `meanfield` |"
    )
    lines = [f"`{command}`, concur-proxy {__version__}. Seconds until the last agent is done:\n", head]
    lines += ["|---" * 8 + "|", *rows(shown), "\nOutput tokens per second, in all and while such turns run:\n"]
    lines.append("| scenario | law | in all | turns 1 to 5 | 6 to 10 | 11 to 15 | 16 to 20 |")
    return "\n".join([*lines, "|---" * 7 + "|", *rates(shown)]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenarios", nargs="+", default=list(PUBLISHED), help="default: all")
    parser.add_argument("--seeds", type=int, default=1, help="seeds from 1 on (1)")
    parser.add_argument("--jobs", type=int, default=2, help="runs at once (2)")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the table into this page")
    options = parser.parse_args()
    arms, seeds = (*LAWS, "fixed"), range(1, options.seeds + 1)
    tasks = [(scenario, arm, seed) for scenario in options.scenarios for arm in arms for seed in seeds]
    with ProcessPoolExecutor(options.jobs) as pool:
        found = dict(zip(tasks, pool.map(play, tasks), strict=True))
    shown = {
        scenario: {arm: mean([found[scenario, arm, seed] for seed in seeds]) for arm in arms}
        for scenario in options.scenarios
    }
    text = table(shown, f"python bench/published.py --seeds {options.seeds}")
    print(text)
    if options.write:
        document.write(options.write, BLOCK, text)


if __name__ == "__main__":
    main()
