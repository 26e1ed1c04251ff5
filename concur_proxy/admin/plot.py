"""Pictures of a proxy's history. Each panel has one unit: sessions and tokens never share an axis."""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from concur_proxy import pictures
from concur_proxy.admin.client import ProxyClient
from concur_proxy.admin.reports import HistoryReport
from concur_proxy.errors import ConfigError
from concur_proxy.history import SPAN_S

POINTS = 2000
WIDTH, ROW = 11.0, 2.2
GAP = 3.5
"""Intervals without a moment after which a line is broken: the proxy was away."""

_SPAN = re.compile(r"(\d+(?:\.\d+)?)(s|m|h)")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class Panel:
    """One axis. ``lines``: series, label, colour, dashed."""

    label: str
    lines: Sequence[tuple[str, str, str, bool]]
    most: float | None = None


PANELS = (
    Panel(
        "sessions",
        [
            ("active", "active sessions", "C0", False),
            ("window_sessions", "window", "0.4", True),
            ("held", "turns waiting", "C1", False),
        ],
    ),
    Panel("share", [("hit_rate", "hit rate", "C2", False), ("kv_usage", "KV usage", "C4", True)], most=1.05),
    Panel(
        "KV tokens",
        [
            ("footprint_tokens", "active contexts", "C0", False),
            ("capacity_tokens", "cache holds", "0.4", True),
            ("window_tokens", "window", "C4", True),
        ],
    ),
    Panel(
        "tokens per second",
        [
            ("generated_tokens_per_s", "generated", "C9", False),
            ("recomputed_tokens_per_s", "computed again", "C3", False),
        ],
    ),
    Panel("congestion signal", [("congestion", "congestion", "C3", False), ("threshold", "threshold", "0.4", True)]),
)


def read_span(text: str) -> float:
    """Return seconds of ``30m``, ``6h`` or ``90s``; ``ConfigError`` for anything else, and for more than a day."""
    found = _SPAN.fullmatch(text.strip())
    span_s = float(found[1]) * _SECONDS[found[2]] if found else 0.0
    if not 0 < span_s <= SPAN_S:
        raise ConfigError(f"--span {text}: must be a time such as 30m or 6h, 24h at most")
    return span_s


def read_history(source: str, *, token: str | None, backend: str | None, span_s: float) -> HistoryReport:
    """Return the history that a proxy tells, or that is in a file; ``ConcurError`` where there is none."""
    path = Path(source)
    if not path.is_file():
        if path.suffix == ".json":
            raise ConfigError(f"--from {source}: there is no such file")
        return ProxyClient(source, token).history(backend=backend, span_s=span_s, points=POINTS)
    try:
        report = HistoryReport.model_validate_json(path.read_bytes())
    except ValidationError:
        raise ConfigError(f"--from {source}: this is not what /concur/history answers") from None
    if backend not in (None, report.backend):
        raise ConfigError(f"--backend {backend}: the file has {report.backend or 'all backends together'} only")
    first = next((index for index, at in enumerate(report.at) if at >= report.now - span_s), len(report.at))
    series = {name: values[first:] for name, values in report.series.items()}
    return report.model_copy(update={"at": report.at[first:], "series": series})


def draw(path: Path, history: HistoryReport) -> None:
    """Write the picture; ``ConfigError`` where matplotlib is missing, nothing is known, or it cannot be written."""
    panels = [panel for panel in PANELS if any(_is_known(history, line[0]) for line in panel.lines)]
    if not panels:
        raise ConfigError("nothing is remembered of that time: the proxy keeps a moment every ten seconds")
    figure = pictures.figure(WIDTH, ROW * len(panels) + 0.7)
    axes = figure.subplots(len(panels), 1, squeeze=False, sharex=True)[:, 0]
    figure.suptitle(_title(history), fontsize="medium")
    for axis, panel in zip(axes, panels, strict=True):
        _panel(axis, panel, history)
    dates = importlib.import_module("matplotlib.dates")
    locator = dates.AutoDateLocator()
    axes[-1].xaxis.set_major_locator(locator)
    axes[-1].xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    axes[-1].set_xlabel("time (UTC)")
    pictures.save(figure, path)


def _panel(axis: Any, panel: Panel, history: HistoryReport) -> None:
    for name, label, color, dashed in panel.lines:
        if _is_known(history, name):
            times, values = _broken(history, name)
            axis.plot(times, values, color=color, linestyle="--" if dashed else "-", linewidth=1.3, label=label)
    axis.set_ylabel(panel.label)
    axis.set_ylim(bottom=0, top=panel.most)
    axis.grid(alpha=0.3)
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1), fontsize="small", ncols=3, frameon=False, borderpad=0)


def _title(history: HistoryReport) -> str:
    return f"concur-proxy: {history.backend or 'all backends'}, up to {_time(history.now):%Y-%m-%d %H:%M:%S} UTC"


def _is_known(history: HistoryReport, name: str) -> bool:
    return any(value is not None for value in history.series.get(name, ()))


def _broken(history: HistoryReport, name: str) -> tuple[list[datetime], list[float]]:
    """Return times and values; NaN where nothing is known, and between what lies apart."""
    step = max(history.interval_s, history.span_s / POINTS)
    times: list[datetime] = []
    values: list[float] = []
    for index, (at, value) in enumerate(zip(history.at, history.series[name], strict=True)):
        if index and at - history.at[index - 1] > GAP * step:
            times.append(_time(at))
            values.append(math.nan)
        times.append(_time(at))
        values.append(math.nan if value is None else value)
    return times, values


def _time(epoch_s: float) -> datetime:
    return datetime.fromtimestamp(epoch_s, UTC)
