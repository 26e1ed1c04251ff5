#!/usr/bin/env python3
"""Plays what an experiment has played on real vLLM in the simulator, too, and tells how far they agree.

    python bench/agreement.py bench/experiments/react.yaml --write docs/simulator.md

Same agents, same step costs, same time: the simulator gets the experiment's speed. Ways that a proxy or the clients
steer are played; other programs have no simulation. ``--write`` puts the table between the lines
``<!-- measured: bench/agreement.py -->`` and ``<!-- end -->`` of a page.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import mean

sys.path.append(str(Path(__file__).resolve().parents[1]))  # behind what is installed, which may be compiled

from bench.experiment import CACHE
from bench.trials.kept import Kept
from bench.trials.page import between
from bench.trials.spec import Experiment, Way
from concur_proxy.sim.arms import arm
from concur_proxy.sim.result import Result
from concur_proxy.sim.scenario import AgentsPart, BackendPart, CostPart, EnginePart, Scenario
from concur_proxy.sim.world import play
from tests.rig.vllmsim.concur_vllmsim.settings import StepCosts

GOODBYE = False
TOKEN_BUDGET = 2048
"""Of a step of the rig's engines."""

Task = tuple[Experiment, int, str, str]


def arm_of(way: Way) -> str | None:
    """Return what the simulator calls a way; None where it has none."""
    if way.requests_at_once is not None:
        return f"requests:{way.requests_at_once}"
    if way.router is not None or way.keeps_state or way.settings:
        return None
    flags = dict(zip(way.proxy[::2], way.proxy[1::2], strict=True)) if way.proxy else {"--law": "unlimited"}
    law, window = flags.get("--law", "meanfield"), flags.get("--window")
    return law if window is None else f"{law}:{window}"


def scenario(experiment: Experiment, load: int) -> Scenario:
    """Return the experiment in wall-clock time, as its clients and its proxy see it."""
    costs, engine = StepCosts(), experiment.engine
    named = {"a": costs.step, "b": costs.token, "c": costs.decode, "d": costs.context}
    return Scenario(
        about=experiment.title,
        name=f"{load} agents",
        backends=(
            BackendPart(
                engine=EnginePart(
                    kv_tokens=engine.kv_tokens,
                    token_budget=TOKEN_BUDGET,
                    cost=CostPart(**{name: seconds / engine.speed for name, seconds in named.items()}),
                )
            ),
        ),
        agents=(AgentsPart(sessions=load, recorded="coding-agents", goodbye=GOODBYE),),
    )


def simulate(task: Task) -> Result:
    experiment, load, _, name = task
    scripts = experiment.agents.scripts(load)
    return play(scenario(experiment, load), arm(name, None), gate={}, recorded=scripts, seed=0)


def tasks(experiment: Experiment, kept: Kept) -> Iterator[Task]:
    """Yield what has been played on the engine and can be simulated."""
    for load in experiment.loads:
        for name, way in experiment.ways.items():
            if (found := arm_of(way)) is not None and kept.of(experiment.key(load, name)):
                yield experiment, load, name, found


def rows(kept: Kept, asked: Sequence[Task], results: Sequence[Result]) -> Iterator[str]:
    for (experiment, load, name, _), result in zip(asked, results, strict=True):
        runs = [run.report for run in kept.of(experiment.key(load, name))]
        rate, hits = mean(run["output_tokens_per_s"] for run in runs), mean(run["hit_rate"] for run in runs)
        figures = result.figures
        yield (
            f"| {experiment.title} | {load} | {name} | {rate:,.0f} | {figures.output_tokens_per_s:,.0f} | "
            f"{figures.output_tokens_per_s / rate:.2f} | {hits:.3f} | {figures.hit_rate:.3f} | "
            f"{figures.hit_rate - hits:+.3f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--jobs", type=int, default=2, help="runs at once (2)")
    parser.add_argument("--write", type=Path, metavar="PAGE")
    given = parser.parse_args()
    head = "| workload | agents | way | vLLM tok/s | simulator | ratio | vLLM hit rate | simulator | difference |"
    lines = [head, "|---" * 9 + "|"]
    with ProcessPoolExecutor(given.jobs) as pool:
        for path in given.files:
            experiment, kept = Experiment.read(path), Kept(CACHE / f"{path.stem}.jsonl")
            asked = list(tasks(experiment, kept))
            lines += rows(kept, asked, list(pool.map(simulate, asked)))
    text = "\n".join(lines) + "\n"
    print(text)
    if given.write:
        between(given.write, "measured: bench/agreement.py", text)


if __name__ == "__main__":
    main()
