#!/usr/bin/env python3
"""Plays an experiment of bench/experiments on real vLLM (tests/rig), all ways in turns, and tells what came out.

    python bench/experiment.py bench/experiments/react.yaml                 # what is missing of all loads
    python bench/experiment.py bench/experiments/react.yaml --load 36      # of one
    python bench/experiment.py bench/experiments/react.yaml --write docs/results.md

Every run starts with an empty prefix cache, every proxied run with a fresh proxy. Runs are kept as they are done, so
that an experiment that was cut off goes on where it was; other settings are other runs. ``--write`` puts the tables
between the lines ``<!-- experiment: NAME -->`` and ``<!-- end -->`` of a page and plays nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # behind what is installed, which may be compiled

from bench.overhead import document
from bench.trials.kept import Kept, Run
from bench.trials.plot import draw
from bench.trials.report import section
from bench.trials.spec import Experiment
from bench.trials.ways import opened
from concur_proxy.bench.compare import CompareOptions, Target, run_once
from concur_proxy.bench.report import Progress
from concur_proxy.bench.tables import progress_text
from tests.rig.engine import RigEngine

CACHE = Path.home() / ".cache" / "concur-bench"
WARM_UP = -1
"""Number of the round that only teaches a proxy which keeps its state."""


def play_all(experiment: Experiment, kept: Kept, loads: list[int], names: list[str]) -> None:
    """Play what is missing, round by round; the order of the ways changes from round to round."""
    given = experiment.engine.model_dump()
    with (
        RigEngine(given.pop("kind"), environment={"VLLM_SERVER_DEV_MODE": "1"}, **given) as engine,
        tempfile.TemporaryDirectory() as folder,
    ):
        for load in loads:
            for number in range(WARM_UP, experiment.rounds):
                for name in names if number % 2 == 0 else reversed(names):
                    if wanted(experiment, kept, load, name, number):
                        kept.add(play_one(experiment, engine, load, name, number, Path(folder)))


def wanted(experiment: Experiment, kept: Kept, load: int, name: str, number: int) -> bool:
    if number == WARM_UP and not experiment.ways[name].keeps_state:
        return False
    return not kept.has(experiment.key(load, name), number)


def play_one(experiment: Experiment, engine: RigEngine, load: int, name: str, number: int, folder: Path) -> Run:
    way = experiment.ways[name]
    label = f"{load} agents, round {number + 1} of {experiment.rounds}, {name}"

    def show(progress: Progress) -> None:
        if sys.stderr.isatty():
            print(f"\033[2K{label}: {progress_text(progress)}", end="\r", file=sys.stderr, flush=True)

    agents = experiment.agents.families(load)
    with opened(way, engine.url, folder / f"{load}-{name}.json") as url:
        options = CompareOptions((), play=experiment.play.options(way, load, list(engine.words)))
        report = asyncio.run(run_once(agents, Target(name, url, engine.url), options, show))
    print(f"{label}: {report.wall_s:.1f} s, hit rate {report.hit_rate or 0:.3f}, {report.errors} errors", flush=True)
    when = f"{time.strftime('%F')}, concur-proxy {version('concur-proxy')}"
    return Run(experiment.key(load, name), load, name, number, report.as_json(), when)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--load", type=int, action="append", help="agents; default: all that the file names")
    parser.add_argument("--way", action="append", help="default: all that the file names")
    parser.add_argument("--rounds", type=int, help="other than the file says")
    parser.add_argument("--kept", type=Path, help="file of the runs (default: in ~/.cache/concur-bench)")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the tables into a page instead of playing")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw the ways (--way) over the loads instead of playing"
    )
    given = parser.parse_args()
    experiment, name = Experiment.read(given.file), given.file.stem
    if given.rounds:
        experiment = experiment.model_copy(update={"rounds": given.rounds})
    if unknown := set(given.way or ()) - set(experiment.ways):
        parser.error(f"{given.file} has no way {', '.join(sorted(unknown))}")
    kept = Kept(given.kept or CACHE / f"{name}.jsonl")
    if given.plot:
        draw(given.plot, experiment, kept, given.way or list(experiment.ways))
        return
    if given.write:
        document.write(given.write, f"experiment: {name}", section(experiment, kept))
        return
    play_all(experiment, kept, given.load or list(experiment.loads), given.way or list(experiment.ways))
    print("\n" + section(experiment, kept))


if __name__ == "__main__":
    main()
