"""Results as tables for people."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.table import Table

from concur_proxy.sim.scenario import Scenario
from concur_proxy.simulate.summary import Summary


def seconds(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 1 or value == 0 else f"{value:.2f}"


def count(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            return f"{value / (1e3 if letter == 'k' else size):.3g}{letter}"
    return f"{value:,.0f}"


ROWS: Sequence[tuple[str, Callable[[Summary], str]]] = (
    ("useful tokens/s", lambda row: count(row.mean("useful_tokens_per_s"))),
    ("output tokens/s", lambda row: count(row.mean("output_tokens_per_s"))),
    ("hit rate", lambda row: f"{row.mean('hit_rate'):.3f}"),
    ("tokens recomputed", lambda row: count(row.mean("recomputed_tokens"))),
    ("job mean, s", lambda row: seconds(row.mean("job_mean_s"))),
    ("job p95, s", lambda row: seconds(row.mean("job_p95_s"))),
    ("job p99, s", lambda row: seconds(row.mean("job_p99_s"))),
    ("turn mean, s", lambda row: seconds(row.mean("turn_mean_s"))),
    ("turn p95, s", lambda row: seconds(row.mean("turn_p95_s"))),
    ("longest wait, s", lambda row: seconds(row.mean("wait_max_s"))),
    ("errors", lambda row: count(row.mean("errors"))),
)
PER_ENGINE = ("useful tokens/s", "... per engine")
NAME_WIDTH, ARM_WIDTH = 22, 13
"""Characters of a table's columns, to guess how many arms fit beside each other."""


def heading(scenario: Scenario, arms: Sequence[Summary]) -> str:
    seeds = len(arms[0].results)
    return f"{scenario.name}: {scenario.about}" + (f" (means of {seeds} seeds)" if seeds > 1 else "")


def results_tables(scenario: Scenario, arms: Sequence[Summary], reference: Summary | None, width: int) -> list[Table]:
    """A column per arm, as many tables as ``width`` asks for. ``reference``: what the row of ratios compares with."""
    each = max(1, (width - NAME_WIDTH) // ARM_WIDTH)
    return [_table(scenario, arms[start : start + each], reference) for start in range(0, len(arms), each)]


def _table(scenario: Scenario, arms: Sequence[Summary], reference: Summary | None) -> Table:
    table = Table()
    table.add_column("", no_wrap=True)
    for arm in arms:
        table.add_column(arm.arm, justify="right")
    table.add_row(
        "makespan, s" if scenario.stop_after_s is None else "s per 1k output",
        *(_score(scenario, arm) for arm in arms),
        style="bold",
    )
    if reference is not None:
        table.add_row(f"against {reference.arm}", *(f"{arm.against(reference):.3f}" for arm in arms))
    for name, text in ROWS:
        table.add_row(name, *(text(arm) for arm in arms))
        if name == PER_ENGINE[0] and len(scenario.engines) > 1:
            engines = len(scenario.engines)
            table.add_row(PER_ENGINE[1], *(count(arm.mean("useful_tokens_per_s") / engines) for arm in arms))
    return table


def _score(scenario: Scenario, row: Summary) -> str:
    factor = 1.0 if scenario.stop_after_s is None else 1000.0
    spread = row.spread(lambda result: result.score) * factor
    unfinished = row.mean("unfinished") if scenario.stop_after_s is None else 0
    text = seconds(row.score * factor) + (f" ±{seconds(spread)}" if spread else "")
    return f"{text} ({unfinished:.0f} unfinished)" if unfinished else text


def sweep_line(rows: Sequence[Summary]) -> str:
    """Each fixed window with its score."""
    return "fixed windows: " + ", ".join(f"{row.window:g}: {seconds_or_small(row.score)}" for row in rows)


def seconds_or_small(value: float) -> str:
    return seconds(value) if value >= 1 else f"{value:.3g}"


def scenarios_table(scenarios: Sequence[Scenario]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("scenario", no_wrap=True)
    table.add_column("what it is")
    for scenario in scenarios:
        table.add_row(scenario.name, scenario.about)
    return table
