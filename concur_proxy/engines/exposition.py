"""Reads the Prometheus text format, and OpenMetrics where engines use it.

A page of a real engine has some 600 lines of which a dozen matter, so labels are read only when they are asked for.
A line that makes no sense is counted and skipped; a page that is no metrics page at all is an ``Unreadable`` that says
what it looks like instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

Labels = Mapping[str, str]

BUCKET: Final = "_bucket"
"""In every second line of an engine's page; of histograms, sum and count are all that anybody asks for."""

# Possessive throughout: a hostile or broken line fails in linear time.
_LINE = re.compile(
    r"""
    \s*+
    (?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*+)
    (?:\s*+\{(?P<labels>(?:[^"}]++|"(?:[^"\\]++|\\.)*+")*+)\}\s*+|\s++)
    (?P<value>[^\s{}"\#]++)
    (?:\s++[-+0-9.eE]++)?        # time stamp: when a scrape was made is known better on this side
    \s*+
    (?:\#\s.*)?                 # exemplar
    """,
    re.VERBOSE,
)
_LABEL = re.compile(r'\s*([a-zA-Z_:][a-zA-Z0-9_:]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n", '"': '"', "\\": "\\"}
_HTML = re.compile(r"\s*(?:<!doctype html|<html|<head|<body|<\?xml)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Series:
    """One sample line. ``value`` may be NaN or infinite."""

    value: float
    raw_labels: str = ""

    @property
    def labels(self) -> Labels:
        return {name: _unescape(value) for name, value in _LABEL.findall(self.raw_labels)}


@dataclass(frozen=True, slots=True)
class Page:
    """What one metrics page says: sample lines under their full names (``_total``, ``_sum`` and so on included)."""

    series: Mapping[str, tuple[Series, ...]]
    bad_lines: int = 0
    """Lines that could not be read."""

    def __iter__(self) -> Iterator[str]:
        return iter(self.series)

    def get(self, name: str) -> tuple[Series, ...]:
        return self.series.get(name, ())


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Not a metrics page; ``reason`` says what it is, in words for an operator."""

    reason: str


def read_page(text: str) -> Page | Unreadable:
    """Return the samples of ``text``; comments, ``# EOF``, time stamps, exemplars and buckets are left out."""
    found: dict[str, list[Series]] = {}
    bad = 0
    for line in text.split("\n"):
        if not line or line[0] == "#" or line.isspace() or line.partition("{")[0].endswith(BUCKET):
            continue
        if (match := _LINE.fullmatch(line)) is None or (value := _number(match["value"])) is None:
            bad += 1
            continue
        found.setdefault(match["name"], []).append(Series(value, match["labels"] or ""))
    if not found:
        return Unreadable(_looks_like(text))
    return Page({name: tuple(series) for name, series in found.items()}, bad)


def _number(text: str) -> float | None:
    # Python reads "1_000" as a number, the format does not.
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def _unescape(value: str) -> str:
    if "\\" not in value:
        return value
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[0]), value)


def _looks_like(text: str) -> str:
    if _HTML.match(text):
        return "HTML page"
    if text.lstrip()[:1] in ("{", "["):
        return "JSON document"
    if not text.strip():
        return "empty page"
    return "page without metrics"
