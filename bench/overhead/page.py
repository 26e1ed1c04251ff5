"""The table, for people and for a page of the documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.overhead import rounds
from bench.overhead.machine import Facts
from bench.overhead.rounds import CONNECTIONS, MANY, PACE_PER_S, SIZES
from bench.overhead.summary import Results, Spread, estimated
from bench.overhead.upstream import CHUNKS, GAP_S
from bench.overhead.ways import LITELLM, NO_PROXY, RELAY, Way

ALONE = 0.95
"""Reads per event above which a stream counts as one whose events came one by one."""
LABELS = {RELAY: "bare relay", LITELLM: "LiteLLM"}
NOTES = f"""\
Medians of the rounds, in brackets the least and the most. In each round every proxy started afresh, one after another.

- CPU is user and system time of the proxy and its children, less what it uses when idle, by answered requests, or by
  events that arrived: {CHUNKS} a stream and a few more, {GAP_S * 1000:g} ms apart, {MANY} streams at once.
- Added latency: {PACE_PER_S:.0f} requests/s of 1 KB, open loop; the percentile less the same one without a proxy in
  that round. Without a proxy it is the latency itself.
- The proxy has a core to itself, load and engine share the rest. Where they could not keep it busy, ≈ marks the rate
  that the CPU time of a request allows ({MANY} connections, 1 KB).
- Memory is resident: before the first request, and the most at any time ({MANY} bodies of 1 MB at once).
- Bodies have the size given, answers are small. The engine is a raw asyncio server.
"""


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table: which figure, and how it is written."""

    label: str
    key: str
    text: Callable[[float], str]
    added: bool = False
    """The figure counts against no proxy."""


def microseconds(seconds: float) -> str:
    return number(seconds * 1e6)


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.2f}"


def megabytes(size: float) -> str:
    return number(size / 1e6)


def number(value: float) -> str:
    """Write three digits that mean something."""
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}"


def rows() -> list[Row]:
    found = [
        Row(f"CPU µs per request: {size}, {connections} conn.", rounds.cpu_key(size, connections), microseconds)
        for size in SIZES
        for connections in CONNECTIONS
    ]
    pace = f"{PACE_PER_S:.0f}/s"
    return [
        *found,
        Row("CPU µs per streamed chunk", rounds.CHUNK, microseconds),
        Row(f"added ms at {pace}, p50", rounds.P50, milliseconds, added=True),
        Row(f"added ms at {pace}, p99", rounds.P99, milliseconds, added=True),
        Row("requests/s on one core", rounds.RATE, number),
        Row("RSS at rest, MB", rounds.RSS_REST, megabytes),
        Row("RSS at most, MB", rounds.RSS_LOAD, megabytes),
    ]


def table(results: Results) -> list[str]:
    """Return the lines of a Markdown table: a column a way."""
    ways = list(results.by_way)
    lines = ["| | " + " | ".join(LABELS.get(way, way) for way in ways) + " |", "|---" * (len(ways) + 1) + "|"]
    lines += [f"| {row.label} | " + " | ".join(cell(results, way, row) for way in ways) + " |" for row in rows()]
    return lines


def cell(results: Results, way: str, row: Row) -> str:
    against = row.added and way != NO_PROXY
    spread = results.added(way, row.key) if against else results.spread(way, row.key)
    if spread is None:
        return "failed" if _failed(results, way, row.key) else "-"
    sign = "≈ " if row.key == rounds.RATE and estimated(results, way) else ""
    return sign + spread_text(spread, row.text)


def _failed(results: Results, way: str, key: str) -> bool:
    problem = results.problem(way, key)
    return problem is not None and "does not reach" not in problem


def spread_text(spread: Spread, text: Callable[[float], str]) -> str:
    middle, low, high = map(text, (spread.median, spread.low, spread.high))
    return middle if low == high else f"**{middle}** ({low} to {high})"


def page(results: Results, ways: Sequence[Way], facts: Facts) -> str:
    """Return the whole block: what was run where, the table, what its words mean, what is missing and why."""
    lines = ["```console", facts.command, "```", "", facts.sentence(), "", *table(results), "", NOTES]
    lines += [
        f"- {LABELS.get(way.name, way.name)} {way.version}".rstrip() + f": {way.setup}."
        for way in ways
        if way.version is not None
    ]
    lines += [f"- {LABELS.get(way.name, way.name)}: not installed, left out." for way in ways if way.version is None]
    lines += problems(results)
    return "\n".join(lines)


def problems(results: Results) -> list[str]:
    """Return a line for each figure that is missing."""
    found: dict[tuple[str, str], str] = {}
    for way, each in results.by_way.items():
        for figures in each:
            found |= {(way, key): text for key, text in figures.problems.items()}
    lines = [f"- {LABELS.get(way, way)}, {key}: {text}" for (way, key), text in found.items()]
    return lines + [line for way in results.by_way if (line := together(results, way))]


def together(results: Results, way: str) -> str | None:
    """Say where events came in fewer pieces than they were sent in: each cost less than one that comes alone."""
    reads = results.spread(way, rounds.READS)
    if reads is None or reads.median > ALONE:
        return None
    return f"- {LABELS.get(way, way)}: {1 - reads.median:.0%} of the streamed chunks came together with the one before."
