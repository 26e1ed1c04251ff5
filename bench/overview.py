"""Draw the Overview dashboard of a thrashing and of a healthy fleet, from its own queries' real results.

python -m bench.overview docs/pictures

The same agents talk to the same engine twice: first the proxy lets all of them in, then its law decides. The real
Prometheus scrapes it; every panel asks what it asks in Grafana. Both pictures have the same scales. Takes six minutes.
"""

from __future__ import annotations

import argparse
import io
import math
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from PIL import Image

from concur_proxy.bench.proxy_process import QUIET, ProxyProcess
from concur_proxy.sim.server import EngineOptions, EngineServer
from tests.services.monitored import Agents, Habits, Prometheus

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "deploy" / "grafana"))

from boards import OVERVIEW, STAT, Panel  # noqa: E402

mpl.use("agg")

AGENTS = 32
HABITS = Habits(words=1500, think_s=0.5, turns=10, result=150, tokens=150)
ENGINE = EngineOptions(port=0, model="m", kv_tokens=180_000, speed=4.0)
FLEETS = {"thrashing": "unlimited", "healthy": "meanfield"}
WARM_UP_S, SHOWN_S, STEP_S = 60, 120, 2
RATE = "20s"

Series = list[tuple[int, str, list[float], list[float]]]
"""Place of the query, legend, minutes, values."""


@dataclass(frozen=True)
class Seen:
    """One fleet's answers to the queries of each panel, by title and place."""

    name: str
    law: str
    panels: list[tuple[Panel, Series]]


def watch(name: str, law: str) -> Seen:
    """Run a fleet under a law, and ask Prometheus what the dashboard would."""
    with (
        tempfile.TemporaryDirectory() as folder,
        EngineServer(ENGINE) as engine,
        ProxyProcess([engine.url], flags=[*QUIET, "--law", law]) as proxy,
        Prometheus(
            Path(folder), {"concur-proxy": f"127.0.0.1:{proxy.port}"}, hurry=lambda _: "groups: []", every="1s"
        ) as prometheus,
        Agents(proxy.url, AGENTS, HABITS),
    ):
        time.sleep(WARM_UP_S + SHOWN_S)
        until = time.time()
        panels = [panel for row in OVERVIEW.rows for panel in row.panels]
        return Seen(name, law, [(panel, ask(prometheus, panel, until)) for panel in panels])


def ask(prometheus: Prometheus, panel: Panel, until: float) -> Series:
    found: Series = []
    for place, query in enumerate(panel.queries):
        expr = query.expr.replace("$__rate_interval", RATE).replace("$job", ".*").replace("$backend", ".*")
        told = prometheus.range(expr, until - SHOWN_S, until, STEP_S)
        for times, values in told:
            found.append((place, query.legend, [(at - until + SHOWN_S) / 60 for at in times], values))
    return found


def tops(fleets: list[Seen]) -> list[float]:
    """Return the upper end of each panel's scale, over both fleets."""
    ends = []
    for sides in zip(*(fleet.panels for fleet in fleets), strict=True):
        panel = sides[0][0]
        finite = [peak(panel, series) for _, series in sides]
        ends.append(panel.top or 1.08 * max(finite, default=1.0) or 1.0)
    return ends


def peak(panel: Panel, series: Series) -> float:
    values = [[value if math.isfinite(value) else 0.0 for value in each[3]] for each in series]
    if panel.stacked:
        return max(map(sum, zip(*values, strict=False)), default=0.0)
    return max((max(each, default=0.0) for each in values), default=0.0)


SURFACE, INK, MUTED, GRID = "#ffffff", "#1c1c1a", "#6b6a64", "#e7e6e1"
LINES = ("#2a78d6", "#e8843c", "#1f9e68", "#8a5cc2")
COLOURS = {"red": "#c4342b", "orange": "#c97a12", "green": "#1b8a4f", "blue": "#2a6fc0"}


def draw(fleet: Seen, ends: list[float], path: Path) -> None:
    figure = plt.figure(figsize=(15, 11), dpi=80, facecolor=SURFACE)
    title = f"Overview of a {fleet.name} fleet: {AGENTS} agents, one engine, law {fleet.law}"
    figure.text(0.02, 0.965, title, fontsize=16, fontweight="bold", color=INK)
    left, below = 0, 0.93
    for (panel, series), end in zip(fleet.panels, ends, strict=True):
        height = 0.085 if panel.kind == STAT else 0.266
        box = (0.045 + 0.965 * left / 24, below - height + 0.04, 0.965 * panel.width / 24 - 0.05, height - 0.08)
        if panel.kind == STAT:
            box = (0.02 + 0.965 * left / 24, below - height, 0.965 * panel.width / 24, height - 0.01)
        (number if panel.kind == STAT else lines)(figure.add_axes(box), panel, series, end)
        left += panel.width
        if left >= 24:
            left, below = 0, below - height - 0.01
    drawn = io.BytesIO()
    figure.savefig(drawn, facecolor=SURFACE)
    plt.close(figure)
    # Few colours are enough for it, and make it small.
    Image.open(drawn).convert("RGB").quantize(128).save(path, optimize=True)


def number(axes: Axes, panel: Panel, series: Series, _: float) -> None:
    axes.set_axis_off()
    value = next((value for *_, values in series for value in reversed(values) if math.isfinite(value)), math.nan)
    colour = [colour for start, colour in panel.steps if start is None or value >= start][-1]
    axes.text(0, 1, panel.title, color=MUTED, fontsize=11, va="top")
    axes.text(0, 0, worded(value, panel.unit), color=COLOURS[colour], fontsize=27, fontweight="bold", va="bottom")


def worded(value: float, unit: str) -> str:
    if math.isnan(value):
        return "no data"
    if unit == "percentunit":
        return f"{value:.0%}"
    return f"{value:.1f} s" if unit == "s" else f"{value:,.0f}"


def lines(axes: Axes, panel: Panel, series: Series, end: float) -> None:
    axes.set_title(panel.title, loc="left", fontsize=11, color=INK, fontweight="bold")
    colours = LINES[1:] if panel.title == "Recomputed share" else LINES
    if panel.stacked and series:
        known = [[value if math.isfinite(value) else 0.0 for value in values] for *_, values in series]
        shades = [f"{LINES[place]}b0" for place, *_ in series]
        axes.stackplot(series[0][2], known, labels=[legend for _, legend, *_ in series], colors=shades, lw=0)
    else:
        for place, legend, times, values in series:
            colour = colours[place]
            axes.plot(times, values, color=colour, label=legend, lw=2, solid_capstyle="round")
            axes.fill_between(times, values, color=colour, alpha=0.08, lw=0)
    axes.set_ylim(0, end)
    axes.set_xlim(0, SHOWN_S / 60)
    axes.yaxis.set_major_formatter(lambda value, _: tick(value, panel.unit))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g} min" if value else "")
    axes.locator_params(axis="x", nbins=3)
    axes.locator_params(axis="y", nbins=5)
    axes.tick_params(colors=MUTED, labelsize=9, length=0)
    axes.grid(axis="y", color=GRID, lw=1)
    axes.set_axisbelow(True)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.legend(
        loc="upper left",
        bbox_to_anchor=(-0.03, -0.1),
        ncols=4,
        frameon=False,
        fontsize=9,
        labelcolor=INK,
        handlelength=1.0,
        columnspacing=1.0,
        borderaxespad=0.3,
    )


def tick(value: float, unit: str) -> str:
    if unit == "percentunit":
        return f"{value:.0%}"
    return f"{value:g} s" if unit == "s" else f"{value:,.0f}" if value >= 5 or value == 0 else f"{value:g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the pictures go")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    fleets = [watch(name, law) for name, law in FLEETS.items()]
    ends = tops(fleets)
    for fleet in fleets:
        draw(fleet, ends, folder / f"overview-{fleet.name}.png")


if __name__ == "__main__":
    main()
