"""Writes a block into a page between two markers."""

from __future__ import annotations

from pathlib import Path

END = "<!-- end -->"


def replaced(page: str, name: str, block: str) -> str:
    """Put ``block`` between ``<!-- name -->`` and the next ``<!-- end -->`` of a page. ValueError without them."""
    start = f"<!-- {name} -->"
    before, found, rest = page.partition(start)
    _, end, after = rest.partition(END)
    if not found or not end:
        raise ValueError(f"the page has no {start} followed by {END}")
    return f"{before}{start}\n{block.strip()}\n{end}{after}"


def write(path: Path, name: str, block: str) -> None:
    path.write_text(replaced(path.read_text(), name, block))
