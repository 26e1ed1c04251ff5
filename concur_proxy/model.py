"""The nouns that every package shares: frozen values, no behaviour beyond reading them.

Tokens are counts of the engine's own tokeniser, times are seconds of one monotonic clock that callers pass as ``now=``.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NewType

BackendId = NewType("BackendId", str)
"""Name of one KV pool: an engine, or one data-parallel rank of it where turns can be pinned to ranks."""

PoolId = NewType("PoolId", str)
"""Name of a set of interchangeable backends: models and adapters that share engines share a pool."""


@dataclass(frozen=True, slots=True)
class SessionKey:
    """One agent's run. ``namespace`` is a digest of the API key that opened it: one id under two keys is two."""

    namespace: str
    id: str


@dataclass(frozen=True, slots=True)
class TurnFacts:
    """What is known of a turn when it arrives, before any engine has seen it."""

    pool: PoolId
    session: SessionKey | None = None
    """None: a one-turn session of its own."""
    parent: SessionKey | None = None
    rule: str = "anonymous"
    """Which identification rule named the session (docs/sessions.md)."""
    final: bool = False
    """The client says that this is the session's last turn."""
    body_bytes: int = 0
    media_bytes: int = 0
    """Part of ``body_bytes`` that is base64 media and says nothing about tokens."""
    max_output_tokens: int | None = None
    choices: int = 1
    read_timeout_s: float | None = None
    """The client's own read timeout where it tells one (``x-stainless-read-timeout``)."""
    is_retry: bool = False
    body_digest: int = 0
    """A hash of the body: a retry of a turn carries the same one."""
    prefix_key: int | None = None
    """A hash of what many sessions share at the start of their prompt: system text and tools."""
    tenant: str = ""
    """Whose share of the engines it takes: the namespace of the API key, or who a header names."""
    urgency: int = 0
    """Priority that the client asks for; higher goes first, whatever sign its engine gives it."""
    deadline_s: float | None = None
    """Seconds after its arrival within which the client wants the answer."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What the engine reported for one turn. ``cached_tokens`` is None where it does not tell: unknown, not 0."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None = None


class Outcome(enum.Enum):
    """How an admitted turn ended."""

    COMPLETED = "completed"
    CLIENT_ERROR = "client_error"
    """The engine answered 4xx other than 429: says nothing about load."""
    OVERLOADED = "overloaded"
    """The engine answered 429, 503 or 529: it is full."""
    ENGINE_ERROR = "engine_error"
    CANCELLED = "cancelled"
    """The client went away."""
    BACKEND_LOST = "backend_lost"
    TIMED_OUT = "timed_out"
    SHUTDOWN = "shutdown"


class FinishReason(enum.Enum):
    """What a finished turn says about the session's future."""

    TOOL_CALLS = "tool_calls"
    STOP = "stop"
    LENGTH = "length"
    OTHER = "other"


class AdmitWhy(enum.Enum):
    """Why a turn was let through; everything but ``WINDOW`` is counted by a metric of its own (invariant 3)."""

    WINDOW = "window"
    WARM = "warm"
    """The law shrank the window, but this active session's context is still resident."""
    OVERSIZE = "oversize"
    """A session larger than the whole window that runs alone."""
    FORCED = "forced"
    """The maximum wait passed and forcing is switched on."""
    OBSERVED = "observed"
    """Observe mode: would have been held or refused."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of one admitted turn to run on ``backend``; given back exactly once (invariant 2)."""

    id: int
    turn: TurnFacts
    session: SessionKey
    """The turn's session, or the one-turn session made for it."""
    backend: BackendId
    arrived_at: float
    admitted_at: float
    why: AdmitWhy = AdmitWhy.WINDOW


class RefusalReason(enum.Enum):
    """Why a turn may not run; the value is the ``code`` that clients see."""

    QUEUE_TIMEOUT = "queue_timeout"
    QUEUE_FULL = "queue_full"
    NO_BACKEND = "no_backend"
    SHUTTING_DOWN = "shutting_down"


@dataclass(frozen=True, slots=True)
class Admitted:
    ticket: int
    lease: Lease


@dataclass(frozen=True, slots=True)
class Held:
    ticket: int
    deadline: float
    """When the turn will be refused (or forced in) if nothing frees a place before."""


@dataclass(frozen=True, slots=True)
class Refused:
    ticket: int
    reason: RefusalReason
    retry_after_s: float


class BackendEvent(enum.Enum):
    UP = "up"
    DRAINING = "draining"
    """Takes no new turns; running ones end."""
    LOST = "lost"
    FLUSHED = "flushed"
    """The engine is there, but its KV cache is empty (restart, reset)."""


@dataclass(frozen=True, slots=True)
class Signals:
    """What one backend looks like now. None means unknown, never zero: an engine that does not tell, or nothing seen.

    Rates and deltas are over the interval between the two newest samples.
    """

    age_s: float
    """Seconds since the newest engine sample; infinite where there has been none."""
    interval_s: float | None = None
    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None
    """0..1, share of KV blocks that *running* requests hold; idle agents' contexts count as free."""
    hit_rate: float | None = None
    """0..1, cached prompt tokens over prompt tokens within the interval; None where no prompt was processed."""
    evictable_tokens: float | None = None
    preemptions: float | None = None
    """Requests preempted or retracted within the interval."""
    requests: float | None = None
    """Requests finished within the interval."""
    rejections: float | None = None
    """Requests that the engine refused (429/503/529) within the interval, as the proxy saw them."""
    prompt_tokens: float | None = None
    generation_tokens: float | None = None
    steps: float | None = None
    scheduled_tokens: float | None = None
    capacity_tokens: float | None = None


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """A finished turn as the ledger knows it: exact, and without a scrape's delay."""

    backend: BackendId
    session: SessionKey
    outcome: Outcome
    arrived_at: float
    admitted_at: float
    finished_at: float
    first_token_at: float | None = None
    think_s: float | None = None
    """Seconds between the session's previous answer and this turn's arrival; None on a first turn."""
    usage: Usage | None = None
    expected_cached_tokens: int | None = None
    finish_reason: FinishReason | None = None
