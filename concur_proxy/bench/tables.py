"""What a person sees of a run: figures as text, and tables of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rich.table import Table

from concur_proxy.bench.figures import Spread
from concur_proxy.bench.pairs import Ratio
from concur_proxy.bench.report import Progress, Report


def percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def count(number: float | None) -> str:
    return "-" if number is None else f"{number:,.0f}"


def seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f} s" if value < 10 else f"{value:.1f} s"


def rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _job(run: Report, time: Callable[[Spread], float]) -> str:
    return seconds(None if run.jobs is None else time(run.jobs))


COLUMNS: Mapping[str, Callable[[Report], str]] = {
    "useful/s": lambda run: count(run.useful_tokens_per_s),
    "output/s": lambda run: count(run.output_tokens_per_s),
    "hit rate": lambda run: percent(run.hit_rate),
    "recomputed": lambda run: count(run.recomputed_tokens),
    "batch": lambda run: seconds(run.wall_s),
    "turn p50": lambda run: seconds(run.turn_p50_s),
    "turn p95": lambda run: seconds(run.turn_p95_s),
    "errors": lambda run: count(run.errors),
}
AGENT_COLUMNS: Mapping[str, Callable[[Report], str]] = {
    "job mean": lambda run: _job(run, lambda jobs: jobs.mean_s),
    "p50": lambda run: _job(run, lambda jobs: jobs.p50_s),
    "p95": lambda run: _job(run, lambda jobs: jobs.p95_s),
    "p99": lambda run: _job(run, lambda jobs: jobs.p99_s),
    "longest wait": lambda run: seconds(run.longest_wait_s),
    "fairness": lambda run: percent(run.fairness),
    "turns/s": lambda run: rate(run.turns_per_s),
    "good turns/s": lambda run: rate(run.goodput_per_s),
    "failed": lambda run: count(run.failed_sessions),
}


def report_table(title: str) -> Table:
    """An empty table whose rows are ``report_row``."""
    table = Table(title=title, title_justify="left")
    table.add_column("way")
    for name in COLUMNS:
        table.add_column(name, justify="right")
    return table


def report_row(report: Report) -> list[str]:
    return [text(report) for text in COLUMNS.values()]


def agents_table(reports: Mapping[str, Sequence[Report]]) -> Table:
    """How it went for the agents: how long their jobs took, and how they waited. A row per run."""
    table = Table(title="As the agents had it", title_justify="left")
    table.add_column("way")
    for name in AGENT_COLUMNS:
        table.add_column(name, justify="right")
    for label, runs in reports.items():
        for report in runs:
            table.add_row(label, *(text(report) for text in AGENT_COLUMNS.values()))
        table.add_section()
    return table


def comparison_table(reports: Mapping[str, Sequence[Report]], ratios: Mapping[str, Ratio | None]) -> Table:
    """A row per run; the caption has the ratios to the first way."""
    table = report_table("The same agents, by each way")
    for label, runs in reports.items():
        for report in runs:
            table.add_row(label, *report_row(report))
        table.add_section()
    first = next(iter(reports))
    table.caption = "\n".join(f"{label} / {first}: {ratio_text(found)}" for label, found in ratios.items()) or None
    table.caption_justify = "left"
    return table


def ratio_text(found: Ratio | None) -> str:
    if found is None:
        return "no ratio"
    lower = "" if found.lower_95 is None else f", above {found.lower_95:.2f} with 95 % confidence"
    return f"{found.mean:.2f} times the useful tokens/s (least of {len(found.each)}: {found.least:.2f}{lower})"


def progress_text(progress: Progress) -> str:
    return (
        f"{progress.turns_done} of {progress.turns} turns, {progress.output_tokens_per_s:,.0f} tokens/s, "
        f"hit rate {percent(progress.hit_rate)}, {progress.active} in flight"
    )
