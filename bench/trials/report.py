"""Kept runs as Markdown: one row for each way, the means of its rounds with their spread, and ratios of pairs."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import Any

from bench.trials.kept import Kept, Run
from bench.trials.spec import Experiment
from concur_proxy.bench.pairs import ratio

BEST = "best fixed"
RATES = "way, runs, useful tok/s, output tok/s, hit rate, recomputed tokens"
TIMES = "turn p50 / p95, job p95, longest wait, failed agents"
HEAD = f"| {f'{RATES}, {TIMES}'.replace(', ', ' | ')} |"


def section(experiment: Experiment, kept: Kept) -> str:
    """Return all loads that were played."""
    parts = [f"### {experiment.title}", "", experiment.about.strip()]
    for load in experiment.loads:
        runs = {way: kept.of(experiment.key(load, way)) for way in experiment.ways}
        if any(runs.values()):
            parts += ["", *_load(experiment, load, {way: found for way, found in runs.items() if found})]
    return "\n".join(parts) + "\n"


def _load(experiment: Experiment, load: int, runs: dict[str, list[Run]]) -> list[str]:
    whens = sorted({run.when for found in runs.values() for run in found})
    lines = [f"**{load} agents** ({'; '.join(whens)})", "", HEAD, "|---" * 10 + "|"]
    lines += [f"| {way} | {_row(found)} |" for way, found in runs.items()]
    told = [_ratio(runs, way, other) for way, other in experiment.compare]
    return [*lines, "", *filter(None, told)]


def _row(runs: Sequence[Run]) -> str:
    def all_of(name: str) -> list[float]:
        return [run.report[name] for run in runs if run.report[name] is not None]

    jobs = [run.report["jobs"]["p95_s"] for run in runs if run.report["jobs"]]
    cells = [
        f"{len(runs)}",
        _spread(all_of("useful_tokens_per_s")),
        _number(all_of("output_tokens_per_s")),
        f"{mean(all_of('hit_rate')):.1%}" if all_of("hit_rate") else "-",
        _number(all_of("recomputed_tokens")),
        f"{_seconds(all_of('turn_p50_s'))} / {_seconds(all_of('turn_p95_s'))}",
        _seconds(jobs),
        _seconds(all_of("longest_wait_s")),
        f"{sum(all_of('failed_sessions')):.0f}",
    ]
    return " | ".join(cells)


def _ratio(runs: dict[str, list[Run]], way: str, other: str) -> str | None:
    first, second = _found(runs, way), _found(runs, other)
    if first is None or second is None:
        return None
    pairs = min(len(first[1]), len(second[1]))
    found = ratio(_rates(first[1][:pairs]), _rates(second[1][:pairs]))
    if found is None:
        return None
    if found.lower_95 is None:
        return f"- {first[0]} over {second[0]}: **{found.mean:.2f}** (one pair)"
    sure = f"least {found.least:.2f}, lower bound of the 95 % interval {found.lower_95:.2f}"
    return f"- {first[0]} over {second[0]}: **{found.mean:.2f}** ({sure})"


def _found(runs: dict[str, list[Run]], name: str) -> tuple[str, list[Run]] | None:
    if name == BEST:
        fixed = {way: found for way, found in runs.items() if way.startswith("fixed")}
        if not fixed:
            return None
        best = max(fixed, key=lambda way: mean(_rates(fixed[way])))
        return f"{BEST} ({best})", fixed[best]
    return (name, runs[name]) if name in runs else None


def _rates(runs: Sequence[Run]) -> list[float]:
    return [float(run.report["useful_tokens_per_s"]) for run in runs]


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "-"
    spread = f" ({min(values):,.0f} to {max(values):,.0f})" if len(values) > 1 else ""
    return f"{mean(values):,.0f}{spread}"


def _number(values: Sequence[Any]) -> str:
    return f"{mean(values):,.0f}" if values else "-"


def _seconds(values: Sequence[float]) -> str:
    return f"{mean(values):.1f} s" if values else "-"
