"""``concur-proxy simulate``: plan the runs, play them with a progress bar, and tell what came out."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from concur_proxy import pictures
from concur_proxy.errors import ConfigError
from concur_proxy.sim.arms import arm
from concur_proxy.sim.scenario import Scenario
from concur_proxy.simulate.api import check_gate
from concur_proxy.simulate.files import load_recordings, load_scenario, scenario_names
from concur_proxy.simulate.plots import draw
from concur_proxy.simulate.runs import Run, play_all
from concur_proxy.simulate.summary import Summary, best, geometric_mean
from concur_proxy.simulate.sweep import windows
from concur_proxy.simulate.tables import heading, results_tables, scenarios_table, sweep_line

INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class SimulateOptions:
    """What a person has asked for."""

    scenarios: Sequence[str]
    laws: Sequence[str]
    sweep: str | None = None
    seed: int = 0
    seeds: int = 1
    pause: str | None = None
    order: str | None = None
    replicas: Sequence[int] = ()
    """Play each scenario with so many engines of each kind; empty: with as many as it says."""
    traces: Path | None = None
    as_json: bool = False
    plot: Path | None = None
    jobs: int | None = None


def list_scenarios(console: Console) -> None:
    console.print(scenarios_table([load_scenario(name) for name in scenario_names()]))


def simulate(options: SimulateOptions, console: Console) -> int:
    """Play all of it and print; return the exit status: 1 where a run was given up."""
    scenarios = [each for name in options.scenarios for each in _replicated(load_scenario(name), options.replicas)]
    arms = {scenario.name: _arms(scenario, options) for scenario in scenarios}
    runs = [
        Run(scenario, name, seed, _gate(options), options.traces, keep_series=options.plot is not None)
        for scenario in scenarios
        for name in arms[scenario.name]
        for seed in range(options.seed, options.seed + options.seeds)
    ]
    for run in runs:
        check_gate({**run.scenario.gate, **run.gate, **arm(run.arm).gate})
    if options.plot is not None:
        pictures.check(options.plot, option="--plot")
    try:
        results = iter(_play(runs, options))
    except KeyboardInterrupt:
        console.print("interrupted")
        return INTERRUPTED
    found = {
        scenario.name: [Summary(name, [next(results) for _ in range(options.seeds)]) for name in arms[scenario.name]]
        for scenario in scenarios
    }
    if options.as_json:
        sys.stdout.write(orjson.dumps(_document(found), option=orjson.OPT_INDENT_2).decode() + "\n")
    else:
        for scenario in scenarios:
            _show(scenario, found[scenario.name], options, console)
        _show_overall(found, options, console)
    if options.plot is not None:
        _plot(scenarios, found, options, console)
    endless = [row for scenario in scenarios if scenario.stop_after_s is None for row in found[scenario.name]]
    return 1 if any(row.mean("unfinished") for row in endless) else 0


def _replicated(scenario: Scenario, replicas: Sequence[int]) -> list[Scenario]:
    if not replicas:
        return [scenario]
    found = []
    for count in replicas:
        data = scenario.model_dump()
        data["name"] = f"{scenario.name} x{count}"
        for part in data["backends"]:
            part["count"] = count
        try:
            found.append(Scenario.model_validate(data))
        except ValidationError as error:
            raise ConfigError(f"--replicas {count}: {scenario.name}: {error.errors()[0]['msg']}") from None
    return found


def _arms(scenario: Scenario, options: SimulateOptions) -> list[str]:
    """The laws that were named, then the windows of the sweep."""
    for name in options.laws:
        arm(name)
    if options.sweep is None:
        return list(options.laws)
    if options.sweep != "fixed":
        raise ConfigError(f"--sweep {options.sweep}: only fixed windows are swept: --sweep fixed")
    recorded = load_recordings(options.traces) if any(part.recorded for part in scenario.agents) else ()
    swept = [f"fixed:{window}" for window in windows(scenario, recorded)]
    return [*options.laws, *(name for name in swept if name not in options.laws)]


def _gate(options: SimulateOptions) -> dict[str, Any]:
    if options.pause not in (None, "eager", "lazy"):
        raise ConfigError(f"--pause {options.pause}: must be eager or lazy")
    return {name: value for name, value in (("pause", options.pause), ("order", options.order)) if value is not None}


def _play(runs: Sequence[Run], options: SimulateOptions) -> list[Any]:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    shares = [0.0] * len(runs)
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(runs))

        def on_share(index: int, share: float) -> None:
            shares[index] = share
            done = sum(share >= 1.0 for share in shares)
            progress.update(task, completed=sum(shares), description=f"{done}/{len(runs)} runs")

        return play_all(runs, on_share, jobs=options.jobs)


# --- what is told ---


def _swept(rows: Sequence[Summary], options: SimulateOptions) -> list[Summary]:
    if options.sweep is None:
        return []
    found = [row for row in rows if row.window is not None and row.arm.startswith("fixed:") and "/" not in row.arm]
    return sorted(found, key=lambda row: row.window or 0.0)


def _shown(rows: Sequence[Summary], options: SimulateOptions) -> tuple[list[Summary], Summary | None]:
    """The rows of a table, and what they are compared with: the best window of a sweep, else the first law."""
    swept = _swept(rows, options)
    if not swept:
        return list(rows), rows[0] if len(rows) > 1 else None
    winner = best(swept)
    named = [row for row in rows if row.arm in options.laws]
    return [*named, *([winner] if winner not in named else [])], winner


def _show(scenario: Scenario, rows: Sequence[Summary], options: SimulateOptions, console: Console) -> None:
    shown, reference = _shown(rows, options)
    console.print(heading(scenario, shown), style="bold", highlight=False)
    for table in results_tables(scenario, shown, reference, console.width):
        console.print(table)
    if swept := _swept(rows, options):
        console.print(sweep_line(swept), highlight=False)
    troubles = {trouble for row in shown for result in row.results for trouble in result.troubles}
    if troubles:
        console.print(f"errors were: {', '.join(sorted(troubles))}", highlight=False)


def _show_overall(found: dict[str, list[Summary]], options: SimulateOptions, console: Console) -> None:
    """Each law over all scenarios, where there are several."""
    if len(found) < 2:
        return
    for name in options.laws:
        ratios = []
        for rows in found.values():
            shown, reference = _shown(rows, options)
            row = next(row for row in shown if row.arm == name)
            if reference is not None and reference.arm != name:
                ratios.append(row.against(reference))
        if ratios:
            text = f"geometric mean {geometric_mean(ratios):.3f}, best {min(ratios):.3f}, worst {max(ratios):.3f}"
            console.print(f"{name}: {text} of {len(ratios)} scenarios", highlight=False)


def _document(found: dict[str, list[Summary]]) -> dict[str, Any]:
    return {name: [row.to_json() for row in rows] for name, rows in found.items()}


def _plot(
    scenarios: Sequence[Scenario], found: dict[str, list[Summary]], options: SimulateOptions, console: Console
) -> None:
    assert options.plot is not None
    for scenario in scenarios:
        path = options.plot
        if len(scenarios) > 1:
            path = path.with_stem(f"{path.stem}-{scenario.name.replace(' ', '-')}")
        rows = found[scenario.name]
        shown, _ = _shown(rows, options)
        draw(path, scenario, shown, _swept(rows, options))
        if not options.as_json:
            console.print(f"drawn: {path}", highlight=False)
