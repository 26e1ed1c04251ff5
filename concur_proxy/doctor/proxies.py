"""The rules about a proxy. Pure: its status in, findings out."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from concur_proxy.admin.reports import BackendReport, StatusReport
from concur_proxy.doctor.findings import Finding, Weight

PROXY = "proxy"
ENOUGH_TURNS = 20
"""Before so many turns nothing is said of how clients behave."""
RETRIED = 0.01
"""Share of turns sent again on a new connection that is worth a word."""

Rule = Callable[[StatusReport], Iterator[Finding]]


def judge(status: StatusReport) -> list[Finding]:
    """Return everything that is to be said about a proxy."""
    return [finding for rule in RULES for finding in rule(status)]


def observes(status: StatusReport) -> Iterator[Finding]:
    if status.mode == "observe":
        what = "it observes: it decides and reports, but holds nothing"
        yield Finding("observes", Weight.NOTE, PROXY, what, "set gate.mode to enforce when you have seen enough")


def unlimited(status: StatusReport) -> Iterator[Finding]:
    if status.law == "unlimited":
        yield Finding(
            "unlimited", Weight.NOTE, PROXY, "the law unlimited holds nothing", "set control.law, such as meanfield"
        )


def no_backends(status: StatusReport) -> Iterator[Finding]:
    if not status.backends:
        yield Finding(
            "no-backend", Weight.WRONG, PROXY, "there is no backend: every turn is refused", "add --backend URL"
        )


def no_sessions(status: StatusReport) -> Iterator[Finding]:
    if status.turns.get("admitted", 0) >= ENOUGH_TURNS and not sum(status.sessions.values()):
        what = "turns come, but no session is recognised: each counts as an agent of its own"
        remedy = "have clients send X-Session-ID, or name their header in sessions.headers (docs/sessions.md)"
        yield Finding("no-sessions", Weight.WRONG, PROXY, what, remedy)


def down(status: StatusReport) -> Iterator[Finding]:
    for backend in status.backends:
        if backend.state != "up":
            words = f" ({backend.problem})" if backend.problem else ""
            drained = backend.state == "draining"
            weight = Weight.NOTE if drained else Weight.WRONG
            remedy = (
                f"POST /concur/backends/{backend.name}/undrain" if drained else f"see why {backend.url} does not answer"
            )
            yield Finding("backend-down", weight, backend.name, f"it takes no turns: {backend.state}{words}", remedy)


def stale(status: StatusReport) -> Iterator[Finding]:
    for backend in _with_metrics(status):
        if backend.signals.stale:
            age = backend.signals.age_s
            read = "has never read its metrics" if age is None else f"has read its metrics {age:.0f} s ago"
            why = f" ({backend.signals.problem})" if backend.signals.problem else ""
            what = f"the proxy {read}{why}: its window is frozen"
            yield Finding("metrics-stale", Weight.WRONG, backend.name, what, "let the proxy reach its metrics_url")


def retried(status: StatusReport) -> Iterator[Finding]:
    admitted = status.turns.get("admitted", 0)
    for backend in status.backends:
        if admitted >= ENOUGH_TURNS and backend.connection_retries > RETRIED * admitted:
            what = (
                f"{backend.connection_retries} turns were sent again: it had closed the idle connection that they took"
            )
            remedy = f"set upstream.keepalive_s below {backend.keepalive_s or 4:g}, or raise the engine's own"
            yield Finding("connections-closed", Weight.WRONG, backend.name, what, remedy)


def capped(status: StatusReport) -> Iterator[Finding]:
    for backend in status.backends:
        if backend.window_max is not None and backend.hard and backend.held and backend.window == backend.window_max:
            what = f"window_max ({backend.window_max:g} {backend.unit}) is what holds {backend.held} turns"
            yield Finding("capped", Weight.NOTE, backend.name, what, "raise control.window_max if it is not meant to")


def _with_metrics(status: StatusReport) -> Iterator[BackendReport]:
    return (backend for backend in status.backends if backend.engine != "none" and backend.state == "up")


RULES: tuple[Rule, ...] = (observes, unlimited, no_backends, no_sessions, down, stale, retried, capped)
