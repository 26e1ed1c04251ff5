#!/usr/bin/env python3
"""Plays what an experiment has played on real vLLM in the simulator, too, and tells how far they agree.

    python bench/agreement.py --measure 3                                              # host milliseconds of a step
    python bench/agreement.py bench/experiments/react.yaml --host-ms 1 --write docs/simulator.md

Same agents, same step costs, same time: the simulator gets the experiment's speed. A step of the simulated device takes
what it is told to; vLLM's own work beside it comes on top, for this machine to be measured. Ways that a proxy or the
clients steer are played; other programs have no simulation. Agents of the bench do not say goodbye, and their answers
end at a length. ``--write`` puts the table between the lines
``<!-- measured: bench/agreement.py -->`` and ``<!-- end -->`` of a page.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import mean

sys.path.append(str(Path(__file__).resolve().parents[1]))  # behind what is installed, which may be compiled

from bench.experiment import CACHE
from bench.overhead import document
from bench.trials.kept import Kept
from bench.trials.spec import Experiment, Way
from concur_proxy.bench.player import PlayOptions, play
from concur_proxy.sim.arms import arm
from concur_proxy.sim.scenario import AgentsPart, BackendPart, CostPart, EnginePart, Scenario
from concur_proxy.sim.workload import SessionScript, TurnScript
from concur_proxy.sim.world import play as simulated
from tests.rig.engine import RigEngine
from tests.rig.vllmsim.concur_vllmsim.settings import StepCosts

SEEDS = 8
"""Near the collapse the order in which agents come moves the result by a tenth and more."""
TOKEN_BUDGET = 2048
"""Of a step of the rig's engines."""

Task = tuple[Experiment, int, str, str, float]


def arm_of(way: Way) -> str | None:
    """Return what the simulator calls a way; None where it has none."""
    if way.requests_at_once is not None:
        return f"requests:{way.requests_at_once}"
    if way.router is not None or way.keeps_state or way.settings:
        return None
    flags = dict(zip(way.proxy[::2], way.proxy[1::2], strict=True)) if way.proxy else {"--law": "unlimited"}
    law, window = flags.get("--law", "meanfield"), flags.get("--window")
    return law if window is None else f"{law}:{window}"


def host_s(speed: float, requests: int = 8, tokens: int = 400) -> float:
    """Measure what a step takes beyond the device's time, where nothing but decoding goes on."""
    costs = StepCosts()
    script = (TurnScript(32, tokens, 0.0),)
    scripts = tuple(SessionScript(str(number), 0, script) for number in range(requests))
    with RigEngine("vllm", kv_tokens=65_536, speed=speed) as engine:
        play_now = lambda: asyncio.run(play(engine.url, scripts, PlayOptions(words=engine.words)))  # noqa: E731
        play_now()
        report = play_now()
    context = requests * (32 + tokens / 2)
    device = costs.step + (costs.token + costs.decode) * requests + costs.context * context
    return report.wall_s / tokens - device / speed


def scenario(experiment: Experiment, load: int, host: float) -> Scenario:
    """Return the experiment in wall-clock time, as its clients and its proxy see it."""
    costs, engine = StepCosts(), experiment.engine
    named = {"a": costs.step, "b": costs.token, "c": costs.decode, "d": costs.context}
    extra = {"a": host, "b": 0.0, "c": 0.0, "d": 0.0}
    return Scenario(
        about=experiment.title,
        name=f"{load} agents",
        backends=(
            BackendPart(
                engine=EnginePart(
                    kv_tokens=engine.kv_tokens,
                    token_budget=TOKEN_BUDGET,
                    cost=CostPart(**{name: seconds / engine.speed + extra[name] for name, seconds in named.items()}),
                )
            ),
        ),
        agents=(AgentsPart(sessions=load, recorded="coding-agents", goodbye=False, cut=True),),
    )


def simulate(task: Task) -> tuple[Sequence[float], float]:
    """Return output tokens per second for each of some orders in which agents come, and the mean hit rate."""
    experiment, load, _, name, host = task
    scripts, world = experiment.agents.scripts(load), scenario(experiment, load, host)
    found = [simulated(world, arm(name, None), gate={}, recorded=scripts, seed=seed).figures for seed in range(SEEDS)]
    return [each.output_tokens_per_s for each in found], mean(each.hit_rate for each in found)


def tasks(experiment: Experiment, kept: Kept, host: float) -> Iterator[Task]:
    """Yield what has been played on the engine and can be simulated."""
    for load in experiment.loads:
        for name, way in experiment.ways.items():
            if (found := arm_of(way)) is not None and kept.of(experiment.key(load, name)):
                yield experiment, load, name, found, host


def rows(kept: Kept, asked: Sequence[Task], results: Sequence[tuple[Sequence[float], float]]) -> Iterator[str]:
    for (experiment, load, name, *_), (simulated_rates, found) in zip(asked, results, strict=True):
        runs = [run.report for run in kept.of(experiment.key(load, name))]
        rates, hits = [run["output_tokens_per_s"] for run in runs], mean(run["hit_rate"] for run in runs)
        yield (
            f"| {experiment.title} | {load} | {name} | {len(runs)} | {spread(rates)} | {spread(simulated_rates)} | "
            f"{mean(simulated_rates) / mean(rates):.2f} | {hits:.3f} | {found:.3f} | {found - hits:+.3f} |"
        )


def spread(rates: Sequence[float]) -> str:
    return f"{mean(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument(
        "--measure", type=float, metavar="SPEED", help="tell the host's share of a step on this machine"
    )
    parser.add_argument("--host-ms", type=float, default=0.0, help="of a step, as measured (0)")
    parser.add_argument("--jobs", type=int, default=2, help="runs at once (2)")
    parser.add_argument("--write", type=Path, metavar="PAGE")
    given = parser.parse_args()
    if given.measure:
        print(f"{1000 * host_s(given.measure):.2f} ms")
        return
    head = (
        "| workload | agents | way | runs | vLLM tok/s | simulator | ratio | vLLM hit rate | simulator | difference |"
    )
    lines = [head, "|---" * 10 + "|"]
    with ProcessPoolExecutor(given.jobs) as pool:
        for path in given.files:
            experiment, kept = Experiment.read(path), Kept(CACHE / f"{path.stem}.jsonl")
            asked = list(tasks(experiment, kept, given.host_ms / 1000))
            lines += rows(kept, asked, list(pool.map(simulate, asked)))
    text = "\n".join(lines) + "\n"
    print(text)
    if given.write:
        document.write(given.write, "measured: bench/agreement.py", text)


if __name__ == "__main__":
    main()
