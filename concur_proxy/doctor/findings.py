"""What a doctor says."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Weight(enum.Enum):
    """How much a finding matters."""

    WRONG = "wrong"
    """It does not work, or works against you."""
    MISSING = "missing"
    """It works, with less than there could be known."""
    NOTE = "note"
    """Worth knowing; all may be as it is meant to be."""


@dataclass(frozen=True, slots=True)
class Finding:
    """``code`` names the rule; ``about`` a backend, or the proxy."""

    code: str
    weight: Weight
    about: str
    what: str
    """What is the case, and what that leads to."""
    remedy: str
    """What to do, with the flag or setting."""
