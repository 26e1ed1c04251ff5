"""A running proxy on a terminal, looked at again and again: the same facts as on the live page."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from concur_proxy.admin.client import ProxyClient
from concur_proxy.admin.reports import HistoryReport, Queue, Series
from concur_proxy.admin.view import count_words, duration_words, render, share_words
from concur_proxy.errors import ConcurError

EVERY_S = 2.0
LEAST_S, MOST_S = 480.0, 3600.0
"""How far back the lines go: as far as the proxy has run, between these."""
WIDTH = 48
"""Points of each line over time."""
WAITING = 6
"""Held turns that are shown."""
BARS = "▁▂▃▄▅▆▇█"


def watch(
    client: ProxyClient, console: Console, *, every_s: float = EVERY_S, pause: Callable[[float], None] = time.sleep
) -> None:
    """Show the proxy until Ctrl-C; where it does not answer, say so and go on asking."""
    picture: RenderableType = Text(f"asking {client.url} ...")
    with Live(picture, console=console, auto_refresh=False, screen=console.is_terminal) as live:
        try:
            while True:
                try:
                    picture = look(client)
                    live.update(picture, refresh=True)
                except ConcurError as error:
                    live.update(Group(Text(error.message, style="bold red"), Text(), picture), refresh=True)
                pause(every_s)
        except KeyboardInterrupt:
            return


def look(client: ProxyClient) -> RenderableType:
    """Return one picture."""
    status, queue = client.status(), client.queue(limit=WAITING)
    span_s = min(max(status.uptime_s, LEAST_S), MOST_S)
    history = client.history(backend=None, span_s=span_s, points=WIDTH)
    return Group(render(status), _lines(history), _queue(queue), Text("Ctrl-C ends this.", style="dim"))


def _lines(history: HistoryReport) -> RenderableType:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, values, most, words in _shown(history):
        known = [value for value in values if value is not None]
        newest = words(values[-1]) if values else "?"
        table.add_row(name, Text(spark(values, most or max(known, default=0.0)), style="cyan"), newest)
    return Group(Text(f"\nthe last {duration_words(history.span_s)}"), table)


Line = tuple[str, Series, float | None, Callable[[float | None], str]]
"""Its name, its values, the most that its bars show (None: the largest value), and how a value is written."""


def _shown(history: HistoryReport) -> Iterator[Line]:
    series = history.series
    windows = [series["window_sessions"], series["window_tokens"]]
    window = next((values for values in windows if any(value is not None for value in values)), None)
    yield "active sessions", series["active"], None, count_words
    if window is not None:
        yield "window", window, None, count_words
    yield "turns waiting", series["held"], None, count_words
    yield "KV usage", series["kv_usage"], 1.0, share_words
    yield "hit rate", series["hit_rate"], 1.0, share_words
    yield "generated per s", series["generated_tokens_per_s"], None, count_words
    yield "computed again per s", series["recomputed_tokens_per_s"], None, count_words


def spark(values: Sequence[float | None], most: float) -> str:
    """Return one character for each value, from 0 to ``most``; blank where it is unknown."""
    top = len(BARS) - 1
    return "".join(
        " " if value is None else BARS[min(top, max(0, round(value / most * top)))] if most > 0 else BARS[0]
        for value in values
    )


def _queue(queue: Queue) -> RenderableType:
    if not queue.total:
        return Text("\nnobody waits")
    table = Table(box=SIMPLE_HEAD, title=f"waiting turns: {queue.total}", title_justify="left")
    table.add_column("session", overflow="fold")
    for name in ("kind", "waits for", "at most"):
        table.add_column(name)
    for turn in queue.turns:
        kind = "paused" if turn.state == "paused" else "new"
        table.add_row(Text(turn.session or "(none)"), kind, duration_words(turn.waited_s), duration_words(turn.left_s))
    return table
