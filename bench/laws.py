#!/usr/bin/env python3
"""The laws against the best fixed window of each scenario, in simulated time: writes the table of docs/laws.md.

    python bench/laws.py --write docs/laws.md            # hours on two cores; what is there already is not played again
    python bench/laws.py --scenarios think-5s --seeds 1  # one row
    python bench/laws.py --traces FILE                   # recorded rows with sessions of your own

The scenarios were named before the default law was tuned; the seeds are not those that it was tuned on. Each run
starts without anything learned. All go first come, first served, unless the arm names another order. Fixed windows are
swept in steps of at most 1.2; they and ``aimd`` pause lazily and eagerly, and the better of the two counts. A fixed
window is given up as soon as it has taken longer than the best so far. Results are kept in a file as they come, so an
interrupted run goes on.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from rich.progress import Progress

sys.path.append(str(Path(__file__).resolve().parents[1]))  # behind what is installed, which may be compiled

from bench.overhead import document
from concur_proxy import __version__
from concur_proxy.simulate.api import run_scenario
from concur_proxy.simulate.files import load_recordings, load_scenario
from concur_proxy.simulate.sweep import windows

CONGESTED = (
    "think-5s",
    "think-30s",
    "think-1s",
    "think-120s",
    "recorded-2m",
    "recorded-4m",
    "heavy-tail",
    "mixed-sizes",
    "shared-prefix",
    "sub-agents",
)
FIRST_SEED = 101
"""Tuning used seeds below ten."""
BLOCK = "measured: bench/laws.py"
"""Of the page."""

FIRST_COME = {"order": "fifo"}
"""How all go whose arm names no other order."""
AIMD = ["aimd", "aimd/eager"]
LAWS = ("meanfield", "meanfield/furthest", "meanfield/smallest", "unlimited", *AIMD)

Key = tuple[str, str, int]
"""Scenario, arm, seed."""
Played = dict[str, dict[str, float]]
"""By ``name(key)``."""


def play(key: Key, traces: Path | None, *, longest_s: float = math.inf) -> dict[str, float]:
    """Play one run and return its figures; of one that takes longer than this, only that it does."""
    scenario, arm, seed = key
    loaded = load_scenario(scenario)
    loaded = loaded.model_copy(update={"give_up_after_s": min(longest_s, loaded.give_up_after_s)})
    result = run_scenario(loaded, law=arm, seed=seed, gate=FIRST_COME, traces=traces)
    if result.figures.unfinished and not result.open:
        return {"score": math.inf}
    figures = result.figures
    return {"score": result.score, "job": figures.job_mean_s, "wait": figures.wait_max_s, "hits": figures.hit_rate}


def sweep(scenario: str, traces: Path | None, seed: int) -> Played:
    """Play the fixed windows, from the middle to where it gets better, and then all others no longer than the best."""
    loaded = load_scenario(scenario)
    recorded = load_recordings(traces) if any(part.recorded for part in loaded.agents) else ()
    tried = windows(loaded, recorded)
    played: Played = {}
    top, best = len(tried) // 2, math.inf
    for pause in ("", "/eager"):
        left = set(range(len(tried)))
        while left:
            index = min(left, key=lambda each: (abs(each - top), each))
            left.remove(index)
            key = (scenario, f"fixed:{tried[index]}{pause}", seed)
            played[name(key)] = figures = play(key, traces, longest_s=best)
            if figures["score"] < best:
                top, best = index, figures["score"]
    return played


def play_one(task: Key, traces: Path | None) -> Played:
    """Play a law, or the sweep of fixed windows."""
    scenario, arm, seed = task
    return sweep(scenario, traces, seed) if arm == "fixed" else {name(task): play(task, traces)}


def is_kept(task: Key, kept: Played) -> bool:
    scenario, arm, seed = task
    return name(task) in kept or (arm == "fixed" and bool(fixed_of(scenario, seed, kept)))


def fixed_of(scenario: str, seed: int, kept: Played) -> list[str]:
    """Return the arms of a sweep."""
    keys = (key.split() for key in kept)
    return [arm for where, arm, number in keys if (where, number) == (scenario, str(seed)) and arm.startswith("fixed:")]


def play_all(tasks: Sequence[Key], traces: Path | None, kept: Played, file: Path, jobs: int) -> None:
    """Play what is not kept yet, and keep it as it comes."""
    wanted = [task for task in tasks if not is_kept(task, kept)]
    with Progress() as progress, ProcessPoolExecutor(jobs) as pool:
        bar = progress.add_task("laws and sweeps", total=len(tasks), completed=len(tasks) - len(wanted))
        for future in as_completed([pool.submit(play_one, task, traces) for task in wanted]):
            kept.update(future.result())
            file.write_text(json.dumps(kept))
            progress.advance(bar)


def name(key: Key) -> str:
    return " ".join(map(str, key))


class Row:
    """One scenario: each law against the best fixed window of the same seed."""

    def __init__(self, scenario: str, seeds: Sequence[int], kept: Played) -> None:
        self.scenario = scenario
        self._kept = kept
        self._seeds = seeds
        self.best = {seed: self._best(seed) for seed in seeds}

    def _best(self, seed: int) -> str:
        return min(fixed_of(self.scenario, seed, self._kept), key=lambda arm: self._of(arm, seed)["score"])

    def _of(self, arm: str, seed: int) -> dict[str, float]:
        return self._kept[name((self.scenario, arm, seed))]

    def over_fixed(self, arms: Sequence[str], figure: str = "score") -> list[float]:
        """Return the better of the arms over the best fixed window, per seed."""
        return [
            min(self._of(arm, seed)[figure] for arm in arms) / (self._of(self.best[seed], seed)[figure] or math.nan)
            for seed in self._seeds
        ]

    def over(self, arm: str, others: Sequence[str], figure: str = "score") -> list[float]:
        """Return an arm over the better of others, per seed."""
        return [
            self._of(arm, seed)[figure] / (min(self._of(other, seed)[figure] for other in others) or math.nan)
            for seed in self._seeds
        ]

    def columns(self) -> Iterator[list[float]]:
        """Yield the ratios of each column of the table, per seed."""
        for arms in OVER_FIXED.values():
            yield self.over_fixed(arms)
        for arm in ("meanfield", "meanfield/furthest"):
            yield self.over(arm, AIMD)
        for arm in ("meanfield", "meanfield/furthest"):
            yield self.over_fixed([arm], "job")
        for arm in ("meanfield/furthest", "meanfield/smallest"):
            yield self.over(arm, ["meanfield"], "wait")


OVER_FIXED = {
    "`meanfield`, first come": ["meanfield"],
    "furthest first": ["meanfield/furthest"],
    "smallest first": ["meanfield/smallest"],
    "`aimd`": AIMD,
    "nothing held": ["unlimited"],
}
OTHERS = (
    "over `aimd`, first come",
    "furthest first",
    "mean job, first come",
    "furthest first",
    "longest wait over first come, furthest first",
    "smallest first",
)


def cells(row: Row) -> Iterator[str]:
    yield f"`{row.scenario}`"
    yield ", ".join(arm.removeprefix("fixed:").replace("/eager", " (eager)") for arm in row.best.values())
    for values in row.columns():
        spread = f" ({min(values):.3f} to {max(values):.3f})" if len(values) > 1 else ""
        yield f"{statistics.geometric_mean(values):.3f}{spread}"


def table(rows: Sequence[Row], command: str) -> str:
    """Return the table, with geometric means and the worst of all runs below."""
    head = ["scenario", "best fixed windows", *OVER_FIXED, *OTHERS]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    lines += [f"| {' | '.join(cells(row))} |" for row in rows]
    means = [[value for part in column for value in part] for column in zip(*map(Row.columns, rows), strict=True)]
    last = [f"**{statistics.geometric_mean(values):.3f}** (worst {max(values):.3f})" for values in means]
    lines.append(f"| geometric mean | | {' | '.join(last)} |")
    note = f"`{command}`, concur-proxy {__version__}. Makespan over that of the best fixed window of the same seed,\n"
    note += "where the head names no other: geometric mean, and range over seeds. Below 1 is better.\n"
    return note + "\n" + "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenarios", nargs="+", default=list(CONGESTED), help="default: the ten congested ones")
    parser.add_argument("--seeds", type=int, default=3, help=f"seeds from {FIRST_SEED} on (3)")
    parser.add_argument("--traces", type=Path, help="recorded sessions that the law was not tuned on")
    parser.add_argument("--jobs", type=int, default=2, help="runs at once (2)")
    parser.add_argument(
        "--kept", type=Path, default=Path("laws.json"), help="file of results, read and added to (laws.json)"
    )
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the table into this page")
    options = parser.parse_args()
    kept: Played = json.loads(options.kept.read_text()) if options.kept.exists() else {}
    seeds = range(FIRST_SEED, FIRST_SEED + options.seeds)
    arms = (*LAWS, "fixed")
    tasks = [(scenario, arm, seed) for seed in seeds for scenario in options.scenarios for arm in arms]
    play_all(tasks, options.traces, kept, options.kept, options.jobs)
    told = [f"--seeds {options.seeds}", *(["--traces FILE"] if options.traces else [])]
    rows = [Row(each, seeds, kept) for each in options.scenarios]
    text = table(rows, f"python bench/laws.py {' '.join(told)}")
    print(text)
    if options.write:
        document.write(options.write, BLOCK, text)


if __name__ == "__main__":
    main()
