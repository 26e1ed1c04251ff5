"""What a person sees of runs: figures as text, a table with a column for each way, and what went wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean

from rich.table import Table

from concur_proxy.bench.figures import Spread
from concur_proxy.bench.pairs import Ratio
from concur_proxy.bench.report import Progress, Report

Figure = Callable[[Report], float | None]


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


def _job(time: Callable[[Spread], float]) -> Figure:
    return lambda run: None if run.jobs is None else time(run.jobs)


ROWS: Sequence[Mapping[str, tuple[Figure, Callable[[float | None], str]]]] = (
    {
        "useful tokens/s": (lambda run: run.useful_tokens_per_s, count),
        "output tokens/s": (lambda run: run.output_tokens_per_s, count),
        "turns/s": (lambda run: run.turns_per_s, rate),
        "good turns/s": (lambda run: run.goodput_per_s, rate),
        "hit rate": (lambda run: run.hit_rate, percent),
        "tokens computed again": (lambda run: run.recomputed_tokens, count),
        "whole run": (lambda run: run.wall_s, seconds),
    },
    {
        "first token p50": (lambda run: run.ttft_p50_s, seconds),
        "first token p95": (lambda run: run.ttft_p95_s, seconds),
        "turn p50": (lambda run: run.turn_p50_s, seconds),
        "turn p95": (lambda run: run.turn_p95_s, seconds),
        "longest wait": (lambda run: run.longest_wait_s, seconds),
    },
    {
        "job mean": (_job(lambda jobs: jobs.mean_s), seconds),
        "job p50": (_job(lambda jobs: jobs.p50_s), seconds),
        "job p95": (_job(lambda jobs: jobs.p95_s), seconds),
        "job p99": (_job(lambda jobs: jobs.p99_s), seconds),
        "fairness": (lambda run: run.fairness, percent),
        "failed agents": (lambda run: run.failed_sessions, count),
        "failed turns": (lambda run: run.errors, count),
        "retries": (lambda run: run.retries, count),
    },
)


def comparison_table(reports: Mapping[str, Sequence[Report]]) -> Table:
    """A column for each way: the mean of its runs, and their least and most where they differ."""
    table = Table(title="The same agents by each way" if len(reports) > 1 else None, title_justify="left")
    table.add_column("")
    for label, runs in reports.items():
        table.add_column(label if len(runs) == 1 else f"{label}\n{len(runs)} runs", justify="right", overflow="fold")
    for section in ROWS:
        for name, (figure, text) in section.items():
            cells = [_cell([figure(run) for run in runs], text) for runs in reports.values()]
            if any(cell != "-" for cell in cells):
                table.add_row(name, *cells)
        table.add_section()
    return table


def _cell(values: Sequence[float | None], text: Callable[[float | None], str]) -> str:
    told = [value for value in values if value is not None]
    if not told:
        return "-"
    least, middle, most = (text(value) for value in (min(told), fmean(told), max(told)))
    return middle if least == most else f"{middle}\n({least} to {most})"


def ratio_table(ratios: Mapping[str, Mapping[str, Ratio | None]], baseline: str) -> Table:
    """``ratios`` by way and figure. A row for each figure of each way."""
    table = Table(title=f"How many times {baseline}'s, pair by pair", title_justify="left")
    for name in ("", "", "mean", "90 % confident", "pairs"):
        table.add_column(name, justify="left" if not name else "right", overflow="fold")
    for label, figures in ratios.items():
        for name, found in figures.items():
            if found is not None:
                each = ", ".join(f"{one:.2f}" for one in found.each)
                table.add_row(label, name, f"{found.mean:.2f}", interval_text(found), each)
        table.add_section()
    return table


def interval_text(found: Ratio) -> str:
    if found.lower_95 is None or found.upper_95 is None:
        return "one pair: unknown"
    return f"{found.lower_95:.2f} to {found.upper_95:.2f}"


def troubles(reports: Mapping[str, Sequence[Report]]) -> Iterator[str]:
    """Yield a sentence for everything that went wrong."""
    for label, runs in reports.items():
        problems: Counter[str] = Counter()
        for run in runs:
            problems.update(run.problems)
            if run.ended_early:
                yield f"{label}: a run was ended early ({run.ended_early}); its figures are those until then."
        for problem, times in problems.most_common():
            yield f"{label}: {times} {'turn' if times == 1 else 'turns'} failed: {problem}"


def progress_text(progress: Progress) -> str:
    trouble = f", {progress.errors} failed" if progress.errors else ""
    return (
        f"{progress.turns_done} of {progress.turns} turns, {progress.output_tokens_per_s:,.0f} tokens/s, "
        f"hit rate {percent(progress.hit_rate)}, {progress.active} in flight{trouble}"
    )
