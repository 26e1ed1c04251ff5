"""A running proxy's status on a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from concur_proxy.admin.reports import BackendReport, StatusReport
from concur_proxy.model import ColdLane
from concur_proxy.windows.base import Unit

BATCH = {
    ColdLane.OPEN.value: "batch work goes on",
    ColdLane.HELD.value: "batch work is held back",
    ColdLane.REFUSED.value: "batch work is refused",
}

_LEGEND = (
    "active: sessions with a place, of the window. KV tokens: what they occupy, of what the cache holds; of the "
    "window where that counts tokens. "
    "usage, queued: as the engine says now. hits: share of the prompt tokens of the last 50 turns that were cached."
)


def render(status: StatusReport) -> RenderableType:
    """Return the status as a heading, a table with one row per backend, and remarks."""
    return Group(Text(_heading(status)), _table(status), Text(_LEGEND, style="dim"), *map(Text, _remarks(status)))


def _heading(status: StatusReport) -> str:
    units = "/".join(sorted({backend.unit for backend in status.backends}))
    sessions = ", ".join(f"{count} {state}" for state, count in status.sessions.items())
    policy = f"{status.mode}, law {status.law} (counts {units})"
    return (
        f"concur-proxy {status.version}, up {duration_words(status.uptime_s)}, {policy}\n"
        f"sessions: {sessions or 'none'}; turns held: {status.held}"
    )


def _table(status: StatusReport) -> Table:
    table = Table(box=SIMPLE_HEAD)
    table.add_column("backend", overflow="fold")
    table.add_column("state")
    for name in ("active", "held", "KV tokens", "usage", "hits", "queued"):
        table.add_column(name, justify="right")
    for backend in status.backends:
        table.add_row(*_row(backend))
    return table


def _row(backend: BackendReport) -> Iterator[str]:
    signals, in_tokens = backend.signals, backend.unit == Unit.TOKENS.value
    window = "any" if backend.window is None else count_words(backend.window)
    yield backend.name
    yield backend.state
    yield count_words(backend.active) if in_tokens else f"{count_words(backend.active)} of {window}"
    yield count_words(backend.held)
    yield f"{count_words(backend.footprint_tokens)} of {window if in_tokens else count_words(backend.capacity_tokens)}"
    yield share_words(None if signals.stale else signals.kv_usage)
    yield share_words(signals.hit_rate if backend.recent_hit_rate is None else backend.recent_hit_rate)
    yield count_words(None if signals.stale else signals.waiting)


def _remarks(status: StatusReport) -> Iterator[str]:
    for lane in status.hot_lanes:
        p99 = "nobody asks" if lane.p99_s is None else f"p99 {lane.p99_s:.2f} s"
        first = f"first token of interactive turns: {p99}, objective {lane.objective_s:g} s"
        yield f"{lane.pool}: {first}; {BATCH[lane.batch]}"
    for backend in status.backends:
        if backend.problem:
            yield f"{backend.name}: {backend.problem}"
        if backend.signals.problem:
            yield f"{backend.name}: metrics: {backend.signals.problem}"
        if backend.reason:
            yield f"{backend.name}: window: {backend.reason}"


def count_words(value: float | None) -> str:
    """Return a count in at most five characters."""
    if value is None:
        return "?"
    return f"{value:.0f}" if value < 10_000 else f"{value / 1000:.0f}k" if value < 10_000_000 else f"{value / 1e6:.0f}M"


def share_words(value: float | None) -> str:
    """Return a share as a percentage."""
    return "?" if value is None else f"{value:.0%}"


def duration_words(seconds: float) -> str:
    """Return a time in its two largest units."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
