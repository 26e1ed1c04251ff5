#!/usr/bin/env python3
"""Experiments in simulated time: engines and clients that tell less, nothing to gain, and the curve of a fleet.

    python bench/simulated.py --only told,nothing
    python bench/simulated.py --write docs/simulator.md     # all of it; four minutes on one core where it is compiled

Scenarios are those of ``concur-proxy simulate``, with the changes that stand here. All ratios are of the same seeds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))  # behind what is installed, which may be compiled

from bench.overhead import document
from concur_proxy import __version__
from concur_proxy.sim.result import Figures
from concur_proxy.sim.scenario import Scenario
from concur_proxy.simulate.api import run_scenario
from concur_proxy.simulate.files import load_scenario

SEEDS = (101, 102, 103)

ENGINES = 2
SPAN_S = 1200
KNEE_PER_S = 0.06
"""Sessions per second that one engine of the scenarios ``knee-...`` sustains."""
LOADS = (0.5, 1.0, 1.5, 2.0, 3.0)
"""Of the knee."""
CURVE_LAWS = ("unlimited", "aimd", "meanfield")

Task = tuple[str, float, str, int]
"""Variant, its load, law, seed."""


def plain(name: str) -> Callable[[float], Scenario]:
    return lambda _: load_scenario(name)


def told(_: float) -> Scenario:
    """Return ``no-cached-tokens`` with an engine that does tell them."""
    scenario = load_scenario("no-cached-tokens")
    return scenario.model_copy(update={"signals": scenario.signals.model_copy(update={"cached_tokens": True})})


def fleet(load: float) -> Scenario:
    """Return ``knee-one`` with several engines and as many sessions as come at this load."""
    data: dict[str, Any] = load_scenario("knee-one").model_dump()
    rate = load * KNEE_PER_S * ENGINES
    data["backends"][0]["count"] = ENGINES
    data["agents"][0].update(sessions=round(rate * SPAN_S * 1.3) + 20, arrivals={"rate_per_s": rate})
    return Scenario.model_validate({**data, "stop_after_s": SPAN_S})


VARIANTS: Mapping[str, Callable[[float], Scenario]] = {
    "told": told,
    "untold": plain("no-cached-tokens"),
    "forgetful": plain("forgetful-clients"),
    "single": plain("single-turn"),
    "ample": plain("ample"),
    "fleet": fleet,
}
PARTS: Mapping[str, Sequence[tuple[str, float, str]]] = {
    "told": [("told", 1, "meanfield"), ("untold", 1, "meanfield"), ("untold", 1, "unlimited")],
    "forgetful": [("forgetful", 1, "meanfield"), ("forgetful", 1, "unlimited")],
    "nothing": [(name, 1, law) for name in ("single", "ample") for law in ("meanfield", "unlimited")],
    "curve": [("fleet", load, law) for load in LOADS for law in CURVE_LAWS],
}


def play(task: Task) -> tuple[float, Figures]:
    variant, load, law, seed = task
    result = run_scenario(VARIANTS[variant](load), law=law, seed=seed)
    return result.score, result.figures


class Played:
    """What came of all runs of some parts."""

    def __init__(self, parts: Sequence[str], jobs: int) -> None:
        runs = [
            (run, seed) for part in parts for run in PARTS[part] for seed in (SEEDS[:1] if part == "curve" else SEEDS)
        ]
        with ProcessPoolExecutor(jobs) as pool:
            came = list(pool.map(play, [(*run, seed) for run, seed in runs]))
        self._of = {(*run, seed): result for (run, seed), result in zip(runs, came, strict=True)}

    def ratio(self, one: tuple[str, float, str], other: tuple[str, float, str]) -> str:
        """Return the geometric mean of the ratios of the scores over all seeds, with their range."""
        ratios = [self._of[*one, seed][0] / self._of[*other, seed][0] for seed in SEEDS]
        return f"{statistics.geometric_mean(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"

    def figures(self, run: tuple[str, float, str]) -> Figures:
        return self._of[*run, SEEDS[0]][1]


def ratios(played: Played, part: str, rows: Mapping[str, tuple[int, int]]) -> list[str]:
    """Return rows of a table: each compares two runs of the part."""
    runs = PARTS[part]
    return [f"| {words} | {played.ratio(runs[one], runs[other])} |" for words, (one, other) in rows.items()]


WORDS: Mapping[str, Mapping[str, tuple[int, int]]] = {
    "told": {
        "`meanfield` without `cached_tokens` over `meanfield` with them": (1, 0),
        "`meanfield` without `cached_tokens` over nothing held": (1, 2),
    },
    "forgetful": {"clients that drop generated text: `meanfield` over nothing held": (0, 1)},
    "nothing": {
        "single questions (`single-turn`): `meanfield` over nothing held": (0, 1),
        "all contexts fit (`ample`): `meanfield` over nothing held": (2, 3),
    },
}


def curve(played: Played) -> list[str]:
    lines = ["", f"{ENGINES} engines, {SPAN_S} s, seed {SEEDS[0]}; load 1 is what a fleet can sustain.", ""]
    lines += ["| load | law | useful tokens/s | turn mean | turn p95 | hit rate |", "|---" * 6 + "|"]
    for run in PARTS["curve"]:
        told = played.figures(run)
        times = f"{told.turn_mean_s:.1f} s | {told.turn_p95_s:.1f} s"
        lines.append(f"| {run[1]:g} | `{run[2]}` | {told.useful_tokens_per_s:,.0f} | {times} | {told.hit_rate:.3f} |")
    return lines


def text(parts: Sequence[str], jobs: int) -> str:
    played = Played(parts, jobs)
    lines = [f"`python bench/simulated.py`, concur-proxy {__version__}, seeds {SEEDS[0]} to {SEEDS[-1]}.", ""]
    if compared := [row for part in parts if part in WORDS for row in ratios(played, part, WORDS[part])]:
        lines += ["| makespan of | ratio: geometric mean, and range over seeds |", "|---|---|", *compared]
    return "\n".join([*lines, *(curve(played) if "curve" in parts else [])]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), help="parts to play, by commas")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at once")
    parser.add_argument("--write", type=Path, help="page that gets what came of it, between its marks")
    options = parser.parse_args()
    if unknown := set(options.only.split(",")) - set(PARTS):
        sys.exit(f"--only: there is no {', '.join(unknown)}; there are {', '.join(PARTS)}")
    found = text(options.only.split(","), options.jobs)
    print(found)
    if options.write is not None:
        document.write(options.write, "measured: bench/simulated.py", found)


if __name__ == "__main__":
    main()
