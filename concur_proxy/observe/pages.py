"""The tables of docs/metrics.md."""

from __future__ import annotations

from concur_proxy.observe.catalogue import CHAPTERS
from concur_proxy.observe.families import Chapter


def render_metrics() -> str:
    """Return a Markdown table for each chapter of the catalogue."""
    return "\n".join(map(_chapter, CHAPTERS))


def _chapter(chapter: Chapter) -> str:
    rows = [
        f"| `{family.name}` | {family.type} | {family.unit} | {', '.join(family.labels)} | {family.help} |"
        for family in chapter.families
    ]
    head = ["| metric | type | unit | labels | meaning |", "|---|---|---|---|---|"]
    return "\n".join([f"## {chapter.title}\n", f"{chapter.about}\n", *head, *rows]) + "\n"
