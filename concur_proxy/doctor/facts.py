"""What an engine answered, before anybody judges it. None is unknown: not asked, or not told."""

from __future__ import annotations

from dataclasses import dataclass

from concur_proxy.engines.base import EngineSample


@dataclass(frozen=True, slots=True)
class Limits:
    """What the engine tells of its own configuration."""

    prefix_caching: bool | None = None
    max_running: int | None = None
    """Requests that it runs at once, at most: ``max_num_seqs``."""


@dataclass(frozen=True, slots=True)
class Warmth:
    """What came of one prompt that was sent twice."""

    problem: str | None = None
    """Why it could not be answered."""
    prompt_tokens: int = 0
    tells: bool = False
    """The second answer says how many prompt tokens were cached, be it none."""
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """One engine, asked from here."""

    name: str
    url: str
    unreachable: str | None = None
    """Why it cannot be asked from here."""
    kind: str | None = None
    metrics_problem: str | None = None
    samples: tuple[EngineSample, ...] = ()
    """Taken one after another."""
    limits: Limits = Limits()
    model: str | None = None
    models_problem: str | None = None
    warmth: Warmth | None = None
    closes_after_s: float | None = None
    """So long an idle connection was kept; None: longer than anybody waited."""

    @property
    def sample(self) -> EngineSample | None:
        """The newest sample."""
        return self.samples[-1] if self.samples else None
