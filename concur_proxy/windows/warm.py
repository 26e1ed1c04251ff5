"""Where a law that counts sessions begins."""

from __future__ import annotations

FIRST_WINDOW = 16.0
"""Sessions, where neither capacity nor a typical footprint is known."""


def what_fits(capacity_tokens: float | None, typical_footprint_tokens: float | None) -> float:
    """Return capacity by typical footprint, 1 session or more: what fits, before anything was seen."""
    if not capacity_tokens or not typical_footprint_tokens:
        return FIRST_WINDOW
    return max(1.0, capacity_tokens / typical_footprint_tokens)
