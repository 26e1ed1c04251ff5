#!/usr/bin/env python3
"""The regression guard: small simulated scenarios, fixed seeds, and ratios between laws that must stay as they were.

    python bench/guard.py            # measured against recorded; status 1 where a ratio has left its band
    python bench/guard.py --record   # after a change that is meant to be: what is measured now is what counts

Half a minute on one core where the simulator is compiled, a minute where it is not. Everything is virtual time: a
slow machine measures the same. A change of the laws that is of no consequence moves these ratios by a percent or two,
because whole runs come to differ; the bands allow for that.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from concur_proxy.simulate.api import run_scenario

FOLDER = Path(__file__).parent / "guard"
RECORD = FOLDER / "recorded.json"
SEEDS = range(201, 209)

Played = Mapping[tuple[str, str, int], Mapping[str, float]]
"""Figures by scenario, arm and seed; of all of them, less is better."""


@dataclass(frozen=True, slots=True)
class Check:
    """One arm against the best of others, seed by seed: their geometric mean is below 1 where the arm is better."""

    scenario: str
    """A file of ``bench/guard``."""
    arm: str
    others: tuple[str, ...]
    figure: str = "score"
    """``score`` (seconds until all is done) or ``job`` (mean seconds of a job)."""
    loss: float = 0.04
    """How much worse than recorded it may be."""
    gain: float = 0.10
    """How much better: beyond, either it is worth recording, or what it is compared with has become worse."""

    @property
    def name(self) -> str:
        others = self.others[0] if len(self.others) == 1 else "best fixed"
        return f"{self.scenario}: {self.figure} of {self.arm} / {others}"

    def ratio(self, played: Played) -> float:
        return statistics.geometric_mean(
            played[self.scenario, self.arm, seed][self.figure]
            / min(played[self.scenario, other, seed][self.figure] for other in self.others)
            for seed in SEEDS
        )

    def band(self, recorded: float) -> tuple[float, float]:
        return recorded * (1 - self.gain), recorded * (1 + self.loss)


CHECKS = (
    Check("agents", "meanfield", ("fixed:10", "fixed:12")),
    Check("agents", "meanfield", ("aimd",)),
    Check("agents", "meanfield", ("unlimited",)),
    Check("sub-agents", "meanfield", ("fixed:12", "fixed:15")),
    Check("sub-agents", "meanfield", ("aimd",)),
    Check("sub-agents", "meanfield", ("unlimited",)),
    Check("questions", "meanfield", ("unlimited",), loss=0.01),
    Check("lengths", "fixed:12/cache_aware", ("fixed:12/fifo",), figure="job"),
    Check("agents", "meanfield", ("meanfield/fifo",), figure="job"),
)


def tasks() -> list[tuple[str, str, int]]:
    arms = {(check.scenario, arm): None for check in CHECKS for arm in (check.arm, *check.others)}
    return [(scenario, arm, seed) for scenario, arm in arms for seed in SEEDS]


def play(task: tuple[str, str, int]) -> dict[str, float]:
    scenario, arm, seed = task
    result = run_scenario(FOLDER / f"{scenario}.yaml", law=arm, seed=seed)
    return {"score": result.score, "job": result.figures.job_mean_s}


def measure(jobs: int) -> dict[str, float]:
    """Play everything and return the ratio of each check."""
    with ProcessPoolExecutor(jobs) as pool:
        played = dict(zip(tasks(), pool.map(play, tasks()), strict=True))
    return {check.name: check.ratio(played) for check in CHECKS}


def left(measured: Mapping[str, float], recorded: Mapping[str, float]) -> Iterator[str]:
    """Yield what has left its band, and what was never recorded, in words."""
    for check in CHECKS:
        if check.name not in recorded:
            yield f"{check.name}: nothing is recorded; python bench/guard.py --record"
            continue
        low, high = check.band(recorded[check.name])
        if measured[check.name] > high:
            yield f"{check.name} is {measured[check.name]:.3f}, worse than {high:.3f}: something was lost"
        elif measured[check.name] < low:
            yield f"{check.name} is {measured[check.name]:.3f}, better than {low:.3f}: record it, if it is meant to be"


def table(measured: Mapping[str, float], recorded: Mapping[str, float]) -> Table:
    shown = Table("ratio, less is better", "recorded", "band", "measured")
    for check in CHECKS:
        before = recorded.get(check.name)
        band = "" if before is None else "{:.3f} to {:.3f}".format(*check.band(before))
        shown.add_row(check.name, "" if before is None else f"{before:.3f}", band, f"{measured[check.name]:.3f}")
    return shown


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write what is measured into bench/guard/recorded.json")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at once")
    options = parser.parse_args(arguments)
    recorded = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    measured = measure(options.jobs)
    Console().print(table(measured, recorded))
    if options.record:
        RECORD.write_text(json.dumps({name: round(ratio, 4) for name, ratio in measured.items()}, indent=2) + "\n")
        return 0
    problems = list(left(measured, recorded))
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
