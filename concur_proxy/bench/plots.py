"""A picture of compared runs: useful tokens as they come, the hit rate, and how long the agents' jobs took."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from concur_proxy import pictures
from concur_proxy.bench.report import Progress, Report

WIDTH, HEIGHT = 9.0, 9.0
SMOOTH_S = 10.0
"""Rates are drawn as they were over this."""


class History:
    """Moments of every run, by way and round."""

    def __init__(self) -> None:
        self.runs: defaultdict[tuple[str, int], list[Progress]] = defaultdict(list)

    def add(self, label: str, index: int, progress: Progress) -> None:
        self.runs[label, index].append(progress)


def draw(path: Path, history: History, reports: Mapping[str, Sequence[Report]]) -> None:
    """Write the picture. ConfigError where that does not work."""
    figure = pictures.figure(WIDTH, HEIGHT)
    tokens, hits, jobs = figure.subplots(3, 1)
    for color, (label, runs) in enumerate(reports.items()):
        for index, report in enumerate(runs):
            look = {"color": f"C{color}", "alpha": 0.8, "label": label if index == 0 else None}
            moments = history.runs[label, index]
            times = [moment.elapsed_s for moment in moments]
            tokens.plot(times, [(moment.new_tokens + moment.output_tokens) / 1000 for moment in moments], **look)
            hits.plot(*recent_hit_rates(moments), **look)
            durations = sorted(report.session_s.values())
            jobs.plot(durations, [(place + 1) / len(durations) for place in range(len(durations))], **look)
    tokens.set(xlabel="seconds", ylabel="useful tokens so far, thousands", title="Work done: the steeper the better")
    hits.set(xlabel="seconds", ylabel=f"hit rate of the last {SMOOTH_S:g} s", ylim=(-0.02, 1.02))
    jobs.set(xlabel="seconds that an agent's job took", ylabel="share of agents done by then", ylim=(0, 1.02))
    for axis in (tokens, hits, jobs):
        axis.grid(alpha=0.3)
        axis.set_xlim(left=0)
    tokens.legend()
    pictures.save(figure, path, option="--plot")


def recent_hit_rates(moments: Sequence[Progress]) -> tuple[list[float], list[float]]:
    """Return times and the share of prompt tokens that were cached in the ``SMOOTH_S`` before; where it is told."""
    times: list[float] = []
    rates: list[float] = []
    start = 0
    for now in moments:
        while moments[start].elapsed_s < now.elapsed_s - SMOOTH_S:
            start += 1
        before = moments[start]
        prompts = now.prompt_tokens - before.prompt_tokens
        if prompts > 0 and now.cached_tokens is not None:
            times.append(now.elapsed_s)
            rates.append((now.cached_tokens - (before.cached_tokens or 0)) / prompts)
    return times, rates
