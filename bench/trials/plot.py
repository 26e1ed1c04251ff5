"""What the ways bring at each load, as a picture."""

from __future__ import annotations

from pathlib import Path
from statistics import mean

from bench.trials.kept import Kept
from bench.trials.spec import Experiment
from concur_proxy import pictures

SIZE_INCHES = (8.0, 4.5)


def draw(path: Path, experiment: Experiment, kept: Kept, ways: list[str]) -> None:
    """Draw useful tokens per second over agents, a line for each way, with the rounds' spread."""
    pictures.check(path)

    figure = pictures.figure(*SIZE_INCHES)
    axes = figure.subplots()
    for way in ways:
        found = {load: rates(experiment, kept, load, way) for load in experiment.loads}
        known = {load: each for load, each in found.items() if each}
        means = [mean(each) for each in known.values()]
        below = [middle - min(each) for middle, each in zip(means, known.values(), strict=True)]
        above = [max(each) - middle for middle, each in zip(means, known.values(), strict=True)]
        width = 3.0 if way == "meanfield" else 1.5
        axes.errorbar(list(known), means, (below, above), label=way, linewidth=width, marker="o", capsize=3)
    axes.set_title(experiment.title)
    axes.set_xlabel("agents")
    axes.set_ylabel("useful tokens per second")
    axes.set_ylim(bottom=0)
    axes.set_xticks(experiment.loads)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    pictures.save(figure, path)


def rates(experiment: Experiment, kept: Kept, load: int, way: str) -> list[float]:
    return [float(run.report["useful_tokens_per_s"]) for run in kept.of(experiment.key(load, way))]
