"""What a dashboard is made of: rows, panels, their queries, and what to look for.

Queries hold Grafana's variables: ``$job`` and ``$backend`` choose, ``$__rate_interval`` fits the time range. Where a
recording rule (../prometheus/rules) has a value already, it is taken; where the rules are not loaded, it is computed.
"""

from __future__ import annotations

from dataclasses import dataclass

TIME, STAT, STATES, HEAT = "timeseries", "stat", "state-timeline", "heatmap"
SHARE, TOKENS, SECONDS, COUNT, BYTES, PER_S = "percentunit", "short", "s", "none", "Bps", "reqps"
J = '{job=~"$job"}'
B = '{job=~"$job",backend=~"$backend"}'


@dataclass(frozen=True, slots=True)
class Query:
    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """``look_for``: what a reader should see in it. ``steps``: colours of a number, by the value they begin at."""

    title: str
    look_for: str
    queries: tuple[Query, ...]
    unit: str = COUNT
    kind: str = TIME
    width: int = 8
    stacked: bool = False
    top: float | None = None
    """Upper end of the scale where it is known."""
    steps: tuple[tuple[float | None, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Board:
    uid: str
    title: str
    about: str
    rows: tuple[Row, ...]


def rate(metric: str, labels: str = B, by: str = "") -> str:
    """Return the summed rate of a counter."""
    grouped = f" by ({by})" if by else ""
    return f"sum{grouped}(rate({metric}{labels}[$__rate_interval]))"


def quantile(q: float, metric: str, labels: str = B, by: str = "") -> str:
    """Return a quantile of a histogram."""
    grouped = f"le,{by}" if by else "le"
    return f"histogram_quantile({q}, sum by ({grouped}) (rate({metric}_bucket{labels}[$__rate_interval])))"


def ratio(part: str, whole: str, by: str = "") -> str:
    return f"{rate(part, by=by)} / {rate(whole, by=by)}"


def recorded(rule: str, part: str, whole: str) -> str:
    """Return the share that a rule has recorded, computed where it has not."""
    return f"avg({rule}{B}) or {ratio(part, whole)}"


GOOD_HIGH = ((None, "red"), (0.6, "orange"), (0.85, "green"))
PLAIN = ((None, "blue"),)
