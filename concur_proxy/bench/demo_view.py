"""What a person sees of the demo: a table that moves on a terminal, plain lines elsewhere, and a verdict at the end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from concur_proxy.bench.report import Progress, Report
from concur_proxy.bench.tables import count, percent, seconds
from concur_proxy.bench.workloads import longest_contexts
from concur_proxy.sim.data import ATTRIBUTION
from concur_proxy.sim.options import Deployment
from concur_proxy.sim.workload import SessionScript

LINE_INTERVAL_S = 5.0
COLUMNS = ("turns", "tokens/s", "hit rate", "window", "active", "held")


@dataclass(frozen=True, slots=True)
class ProxyState:
    """None where the proxy has not told, or has no limit."""

    window: float | None = None
    active: int | None = None
    """Sessions with a place in the window."""
    held: int | None = None
    """Turns that wait for one."""

    @classmethod
    def of(cls, status: Mapping[str, Any]) -> ProxyState:
        """Read ``/concur/status`` of a proxy with one engine."""
        backends = status.get("backends") or [{}]
        active = [backends[0].get(name) for name in ("running", "idle")]
        return cls(
            window=backends[0].get("window"),
            active=None if None in active else sum(active),
            held=status.get("held"),
        )


NO_PROXY = ProxyState()


class DemoView:
    """A context manager around both runs."""

    def __init__(self, console: Console, *, started_at: float) -> None:
        self._console = console
        self._started_at = started_at
        self._rows: dict[str, tuple[Progress, ProxyState]] = {}
        self._label = ""
        self._next_line = 0.0
        self._live = Live(console=console, refresh_per_second=8, transient=True) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def begin(self, label: str) -> None:
        """Start the next way."""
        self._label = label
        self._next_line = 0.0

    def show(self, progress: Progress, state: ProxyState = NO_PROXY) -> None:
        self._rows[self._label] = progress, state
        if self._live is not None:
            self._live.update(self._moving())
        elif progress.elapsed_s >= self._next_line:
            self._next_line = progress.elapsed_s + LINE_INTERVAL_S
            self._say(progress.elapsed_s, line(progress, state))

    def ended(self, report: Report) -> None:
        if self._live is None:
            self._say(report.wall_s, "done")

    def _say(self, elapsed_s: float, text: str) -> None:
        self._console.print(f"{elapsed_s:5.1f} s  {self._label}: {text}", soft_wrap=True, highlight=False)

    def _moving(self) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        table.add_row("", "", *(Text(name, style="dim", justify="right") for name in COLUMNS))
        for label, (progress, state) in self._rows.items():
            bar = ProgressBar(total=progress.turns, completed=progress.turns_done, width=16)
            table.add_row(label, bar, *(Text(cell, justify="right") for cell in cells(progress, state)))
        elapsed = Text(f"{time.monotonic() - self._started_at:.0f} s", style="dim")
        return Group(table, elapsed)


def cells(progress: Progress, state: ProxyState) -> tuple[str, ...]:
    """One text for each of ``COLUMNS``."""
    return (
        f"{progress.turns_done}/{progress.turns}",
        count(progress.output_tokens_per_s),
        percent(progress.hit_rate),
        count(state.window),
        count(state.active if state.active is not None else progress.active),
        count(state.held),
    )


def line(progress: Progress, state: ProxyState) -> str:
    return ", ".join(
        f"{name} {cell}" for name, cell in zip(COLUMNS, cells(progress, state), strict=True) if cell != "-"
    )


def intro(scripts: tuple[SessionScript, ...], deployment: Deployment) -> str:
    """Say what is going to be played, on what."""
    capacity = deployment.engine.blocks * deployment.engine.block_size
    contexts = longest_contexts(scripts)
    turns = sum(len(script.turns) for script in scripts)
    return (
        f"{len(scripts)} recorded coding agents, {turns} turns, on a simulated engine ({deployment.model}, profile "
        f"{deployment.profile.name}). Their contexts come to {contexts:,} tokens, {contexts / capacity:.1f} times what "
        f"its KV cache holds. First straight to the engine, then through concur-proxy.\n"
        f"Recordings: {ATTRIBUTION}.\n"
    )


def verdict(direct: Report, proxied: Report) -> RenderableType:
    """The table at the end."""
    table = Table(box=None, padding=(0, 2), pad_edge=False)
    for name in ("", "straight", "concur-proxy"):
        table.add_column(name, justify="right" if name else "left")
    rows = (
        ("output tokens per second", count, "output_tokens_per_s"),
        ("prefix cache hit rate", percent, "hit_rate"),
        ("tokens computed again", count, "recomputed_tokens"),
        ("time of the batch", seconds, "wall_s"),
    )
    for title, text, name in rows:
        table.add_row(title, text(getattr(direct, name)), text(getattr(proxied, name)))
    gain = proxied.output_tokens_per_s / direct.output_tokens_per_s if direct.output_tokens_per_s else 0.0
    parts: list[RenderableType] = [table, Text(f"\n{gain:.2f} times the throughput of the same engine.", style="bold")]
    for label, report in (("straight", direct), ("concur-proxy", proxied)):
        parts += [Text(f"{label}: {number} x {problem}", style="red") for problem, number in report.problems.items()]
    return Group(*parts)
