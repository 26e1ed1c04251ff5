"""A running proxy's status on a terminal."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
from pydantic import ValidationError
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from concur_proxy.admin.reports import BackendReport, StatusReport
from concur_proxy.errors import ConcurError
from concur_proxy.windows.base import Unit

TIMEOUT_S = 10.0


_LEGEND = (
    "active: sessions with a place, of the window. KV tokens: what they occupy, of what the cache holds; of the\n"
    "window where that counts tokens.\n"
    "usage, queued: as the engine says now. hits: share of prompt tokens that were cached."
)


def fetch_status(url: str, token: str | None) -> StatusReport:
    """Ask the proxy at ``url`` for its status; raise ``ConcurError`` where it does not give it.

    ``url`` may be a bare host and port.
    """
    url = url if "://" in url else f"http://{url}"
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        answer = httpx.get(f"{url.rstrip('/')}/concur/status", headers=headers, timeout=TIMEOUT_S)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ConcurError(
            f"no answer from {url}: {str(error).rstrip('.')}. Is the proxy running? Name its address with --url."
        ) from None
    if answer.status_code != httpx.codes.OK:
        raise ConcurError(f"{url} answered {answer.status_code}: {_reason(answer)}")
    try:
        return StatusReport.model_validate_json(answer.content)
    except ValidationError:
        raise ConcurError(f"{url} is not a concur-proxy of this version") from None


def _reason(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return "this is not a concur-proxy" if answer.status_code == httpx.codes.NOT_FOUND else answer.reason_phrase


def render(status: StatusReport) -> RenderableType:
    """Return the status as a heading, a table with one row per backend, and remarks."""
    return Group(Text(_heading(status)), _table(status), Text(_LEGEND, style="dim"), *map(Text, _remarks(status)))


def _heading(status: StatusReport) -> str:
    units = "/".join(sorted({backend.unit for backend in status.backends}))
    sessions = ", ".join(f"{count} {state}" for state, count in status.sessions.items())
    policy = f"{status.mode}, law {status.law} (counts {units})"
    return (
        f"concur-proxy {status.version}, up {_duration(status.uptime_s)}, {policy}\n"
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
    window = "any" if backend.window is None else _count(backend.window)
    yield backend.name
    yield backend.state
    yield _count(backend.active) if in_tokens else f"{_count(backend.active)} of {window}"
    yield _count(backend.held)
    yield f"{_count(backend.footprint_tokens)} of {window if in_tokens else _count(backend.capacity_tokens)}"
    yield _share(signals.kv_usage)
    yield _share(signals.hit_rate)
    yield _count(signals.waiting)


def _remarks(status: StatusReport) -> Iterator[str]:
    for backend in status.backends:
        if backend.problem:
            yield f"{backend.name}: {backend.problem}"
        if backend.signals.problem:
            yield f"{backend.name}: metrics: {backend.signals.problem}"
        if backend.reason:
            yield f"{backend.name}: window: {backend.reason}"


def _count(value: float | None) -> str:
    """Return a count in at most five characters."""
    if value is None:
        return "?"
    return f"{value:.0f}" if value < 10_000 else f"{value / 1000:.0f}k" if value < 10_000_000 else f"{value / 1e6:.0f}M"


def _share(value: float | None) -> str:
    return "?" if value is None else f"{value:.0%}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
