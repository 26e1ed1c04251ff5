#!/usr/bin/env python3
"""The laws against the best fixed window of each scenario, in simulated time: writes the table of docs/laws.md.

    python bench/laws.py --write docs/laws.md            # hours on two cores; what is there already is not played again
    python bench/laws.py --scenarios think-5s --seeds 1  # one row
    python bench/laws.py --traces FILE                   # recorded rows with sessions of your own

The scenarios were named before the default law was tuned; the seeds are not those that it was tuned on. Each run
starts without anything learned. Fixed windows are swept in steps of at most 1.2; they and ``aimd`` pause lazily and
eagerly, and the better of the two counts. Results are kept in a file as they come, so an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from rich.progress import Progress

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
START, END = "<!-- measured: bench/laws.py -->\n", "<!-- end -->\n"

Key = tuple[str, str, int]
"""Scenario, arm, seed."""
Kept = dict[str, dict[str, float]]


def arms(scenario: str, traces: Path | None) -> list[str]:
    """Return everything that is played of a scenario."""
    loaded = load_scenario(scenario)
    recorded = load_recordings(traces) if any(part.recorded for part in loaded.agents) else ()
    fixed = [f"fixed:{window}" for window in windows(loaded, recorded)]
    lazy = ["meanfield", "meanfield/smallest", "unlimited", "aimd", *fixed]
    return [*lazy, *(f"{arm}/eager" for arm in ("aimd", *fixed))]


def play(key: Key, traces: Path | None) -> dict[str, float]:
    """Play one run and return its figures."""
    scenario, arm, seed = key
    law, *rest = arm.split("/")
    gate = {"pause": "eager"} if "eager" in rest else {"order": rest[0]} if rest else {}
    result = run_scenario(scenario, law=law, seed=seed, gate=gate, traces=traces)
    figures = result.figures
    return {"score": result.score, "job": figures.job_mean_s, "wait": figures.wait_max_s, "hits": figures.hit_rate}


def play_all(keys: Sequence[Key], traces: Path | None, kept: Kept, file: Path, jobs: int) -> None:
    """Play what is not kept yet, and keep it as it comes."""
    wanted = [key for key in keys if name(key) not in kept]
    with Progress() as progress, ProcessPoolExecutor(jobs) as pool:
        bar = progress.add_task("runs", total=len(keys), completed=len(keys) - len(wanted))
        running = {pool.submit(play, key, traces): key for key in wanted}
        for future in as_completed(running):
            kept[name(running[future])] = future.result()
            file.write_text(json.dumps(kept))
            progress.advance(bar)


def name(key: Key) -> str:
    return " ".join(map(str, key))


class Row:
    """One scenario: each law against the best fixed window of the same seed."""

    def __init__(self, scenario: str, seeds: Sequence[int], all_arms: Sequence[str], kept: Kept) -> None:
        self.scenario = scenario
        self._kept = kept
        self._seeds = seeds
        fixed = [arm for arm in all_arms if arm.startswith("fixed:")]
        self.best = {seed: min(fixed, key=lambda arm: self._of(arm, seed)["score"]) for seed in seeds}

    def _of(self, arm: str, seed: int) -> dict[str, float]:
        return self._kept[name((self.scenario, arm, seed))]

    def against_fixed(self, *candidates: str, figure: str = "score") -> list[float]:
        """Return the better of the candidates over the best fixed window, per seed."""
        return [
            min(self._of(arm, seed)[figure] for arm in candidates)
            / (self._of(self.best[seed], seed)[figure] or math.nan)
            for seed in self._seeds
        ]

    def cells(self) -> Iterator[str]:
        yield f"`{self.scenario}`"
        yield ", ".join(arm.removeprefix("fixed:").replace("/eager", " (eager)") for arm in self.best.values())
        for column in COLUMNS.values():
            values = self.against_fixed(*column)
            yield f"{statistics.mean(values):.3f} ({min(values):.3f} to {max(values):.3f})"
        yield f"{statistics.mean(self.against_fixed('meanfield', figure='job')):.2f}"
        yield f"{max(self.against_fixed('meanfield', figure='wait')):.2f}"


COLUMNS = {
    "`meanfield`": ("meanfield",),
    "`meanfield`, smallest first": ("meanfield/smallest",),
    "`aimd`": ("aimd", "aimd/eager"),
    "nothing held": ("unlimited",),
}


def table(rows: Sequence[Row], command: str) -> str:
    """Return the table, with geometric means and the worst of all runs below."""
    head = ["scenario", "best fixed windows", *COLUMNS, "mean job", "longest wait"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    lines += [f"| {' | '.join(row.cells())} |" for row in rows]
    means = [[value for row in rows for value in row.against_fixed(*column)] for column in COLUMNS.values()]
    last = [f"**{statistics.geometric_mean(values):.3f}** (worst {max(values):.3f})" for values in means]
    lines.append(f"| geometric mean | | {' | '.join(last)} | | |")
    note = f"`{command}`, concur-proxy {__version__}. Makespan over that of the best fixed window of the same seed"
    note += ", mean and range over seeds; mean job time and longest wait likewise. Below 1 is better.\n"
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
    kept: Kept = json.loads(options.kept.read_text()) if options.kept.exists() else {}
    seeds = range(FIRST_SEED, FIRST_SEED + options.seeds)
    played = {scenario: arms(scenario, options.traces) for scenario in options.scenarios}
    keys = [(scenario, arm, seed) for scenario in played for seed in seeds for arm in played[scenario]]
    play_all(keys, options.traces, kept, options.kept, options.jobs)
    told = [f"--seeds {options.seeds}", *(["--traces FILE"] if options.traces else [])]
    text = table([Row(each, seeds, played[each], kept) for each in played], f"python bench/laws.py {' '.join(told)}")
    print(text)
    if options.write:
        page = options.write.read_text()
        start, end = page.index(START) + len(START), page.index(END, page.index(START))
        options.write.write_text(page[:start] + text + page[end:])


if __name__ == "__main__":
    main()
