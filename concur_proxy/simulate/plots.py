"""Plots of simulated runs: each law over time, and throughput against the fixed window with each law's point."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from concur_proxy import pictures
from concur_proxy.sim.scenario import Scenario
from concur_proxy.sim.series import Moment, Series
from concur_proxy.simulate.summary import Summary

SMOOTH_S = 30.0
"""What jumps from second to second is drawn as a mean over this."""
WIDTH, ROW = 11.0, 2.1


def draw(path: Path, scenario: Scenario, rows: Sequence[Summary], swept: Sequence[Summary]) -> None:
    """Write one picture. ConfigError where matplotlib is missing, or the file cannot be written."""
    panels = [panel for panel in PANELS if any(panel[1](series)[0] for row in rows for series in row.results[0].series)]
    figure = pictures.figure(WIDTH, ROW * (len(panels) + bool(swept)) + 1.0)
    axes = list(figure.subplots(len(panels) + bool(swept), 1, squeeze=False)[:, 0])
    figure.suptitle(f"{scenario.name}: {scenario.about}")
    if swept:
        _curve(axes.pop(0), rows, swept)
    for axis, (title, values) in zip(axes, panels, strict=True):
        axis.sharex(axes[0])
        axis.set_ylabel(title)
        axis.grid(alpha=0.3)
        for color, row in enumerate(rows):
            for series in row.results[0].series:
                _line(axis, row, series, values, f"C{color}", alone=len(row.results[0].series) == 1)
                if title == SIGNAL:
                    axis.plot(*THRESHOLD(series), color=f"C{color}", linestyle="--", linewidth=1.0)
    axes[0].legend(loc="upper right", fontsize="small")
    axes[-1].set_xlabel("virtual time, seconds")
    pictures.save(figure, path, option="--plot")


Values = Callable[[Series], tuple[list[float], list[float]]]


def _of(value: Callable[[Moment], float | None], *, smooth: bool = False) -> Values:
    def values(series: Series) -> tuple[list[float], list[float]]:
        points = [(moment.at, found) for moment in series.moments if (found := value(moment)) is not None]
        known = [(at, found) for at, found in points if math.isfinite(found)]
        times, found_ = [at for at, _ in known], [found for _, found in known]
        return times, smoothed(times, found_) if smooth else found_

    return values


def throughput(series: Series) -> tuple[list[float], list[float]]:
    """Return times and generated tokens per second between the updates."""
    moments = series.moments
    pairs = [(a, b) for a, b in itertools.pairwise(moments) if b.at > a.at]
    rates = [(b.generated_tokens - a.generated_tokens) / (b.at - a.at) for a, b in pairs]
    times = [b.at for _, b in pairs]
    return times, smoothed(times, rates)


def smoothed(times: Sequence[float], values: Sequence[float]) -> list[float]:
    """Return at each time the mean of what lies within the last ``SMOOTH_S``."""
    means, start, total = [], 0, 0.0
    for index, value in enumerate(values):
        total += value
        while times[start] <= times[index] - SMOOTH_S:
            total -= values[start]
            start += 1
        means.append(total / (index - start + 1))
    return means


def windows_in(unit: str) -> Values:
    """Return the windows of laws that count in this unit, nothing of others: they have an axis of their own."""
    windows = _of(lambda moment: moment.window)
    return lambda series: windows(series) if series.unit == unit else ([], [])


SIGNAL = "congestion signal"
THRESHOLD = _of(lambda moment: moment.law.get("threshold"))
"""Dashed, where a law tells it."""
PANELS: Sequence[tuple[str, Values]] = (
    ("window, sessions", windows_in("sessions")),
    ("window, tokens", windows_in("tokens")),
    ("active sessions", _of(lambda moment: moment.active)),
    ("turns held", _of(lambda moment: moment.held)),
    ("KV usage", _of(lambda moment: moment.kv_usage, smooth=True)),
    ("hit rate", _of(lambda moment: moment.hit_rate, smooth=True)),
    (SIGNAL, _of(lambda moment: moment.law.get("congestion"), smooth=True)),
    ("tokens/s", throughput),
)


def _line(axis: Any, row: Summary, series: Series, values: Values, color: str, *, alone: bool) -> None:
    times, found = values(series)
    label = row.arm if alone else f"{row.arm} {series.backend}"
    axis.plot(times, found, color=color, label=label, linewidth=1.0, alpha=0.9 if alone else 0.6)


def _curve(axis: Any, rows: Sequence[Summary], swept: Sequence[Summary]) -> None:
    """Draw useful tokens per second against the fixed window; laws at the window that they had on average."""
    axis.plot(
        [row.window for row in swept],
        [row.mean("useful_tokens_per_s") for row in swept],
        "o-", color="black", markersize=3, label="fixed",
    )  # fmt: skip
    for color, row in enumerate(rows):
        if row.window is None:
            rate = row.mean("useful_tokens_per_s")
            axis.axhline(rate, color=f"C{color}", linestyle=":", linewidth=1.0)
            axis.plot([_mean_active(row, swept)], [rate], "*", color=f"C{color}", markersize=11, label=row.arm)
    axis.set_xscale("log")
    axis.set_ylabel("useful tokens/s")
    axis.set_xlabel("fixed window, sessions; laws at their mean number of active sessions")
    axis.grid(alpha=0.3)
    axis.legend(fontsize="small")


def _mean_active(row: Summary, swept: Sequence[Summary]) -> float:
    moments = [moment for series in row.results[0].series for moment in series.moments]
    if not moments:
        return swept[-1].window or 1.0
    return max(1.0, sum(moment.active for moment in moments) / len(moments))
