"""What was measured, between marks of a page."""

from __future__ import annotations

import re
from pathlib import Path


def between(page: Path, mark: str, text: str) -> None:
    """Replace what stands between ``<!-- mark -->`` and the next ``<!-- end -->``. LookupError where there is none."""
    marks = re.compile(rf"(<!-- {re.escape(mark)} -->\n).*?(<!-- end -->)", re.DOTALL)
    found, count = marks.subn(lambda match: f"{match[1]}{text}{match[2]}", page.read_text())
    if not count:
        raise LookupError(f"{page} has no line <!-- {mark} -->")
    page.write_text(found)
