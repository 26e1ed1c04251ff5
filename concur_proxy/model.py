"""The nouns that every package shares: frozen values, no behaviour beyond reading them.

Values that are made for every turn have their ``__init__`` written out: a generated one takes thirty times as long once
this is compiled.

Tokens are counts of the engine's own tokeniser, times are seconds of one monotonic clock that callers pass as ``now=``.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, NewType

BackendId = NewType("BackendId", str)
"""Name of one KV pool: an engine, or one data-parallel rank of it where turns can be pinned to ranks."""

PoolId = NewType("PoolId", str)
"""Name of a set of interchangeable backends: models and adapters that share engines share a pool."""


@dataclass(init=False, slots=True, unsafe_hash=True)
class SessionKey:
    """One agent's run. ``namespace`` is a digest of the API key that opened it: one id under two keys is two."""

    namespace: Final[str]
    id: Final[str]

    def __init__(
        self,
        namespace: str,
        id: str,
    ) -> None:
        self.namespace = namespace
        self.id = id


@dataclass(init=False, slots=True, unsafe_hash=True)
class TurnFacts:
    """What is known of a turn when it arrives, before any engine has seen it."""

    pool: Final[PoolId]
    session: Final[SessionKey | None]
    """None: a one-turn session of its own."""
    parent: Final[SessionKey | None]
    rule: Final[str]
    """Which identification rule named the session (docs/sessions.md)."""
    final: Final[bool]
    """The client says that this is the session's last turn."""
    body_bytes: Final[int]
    media_bytes: Final[int]
    """Part of ``body_bytes`` that is base64 media and says nothing about tokens."""
    max_output_tokens: Final[int | None]
    choices: Final[int]
    read_timeout_s: Final[float | None]
    """The client's own read timeout where it tells one (``x-stainless-read-timeout``)."""
    is_retry: Final[bool]
    body: Final[bytes]
    """By which a retry of a turn is known: it carries the same one. Empty where ``body_digest`` tells it."""
    body_digest: Final[int]
    """A hash of the body in its place; 0 where there is none."""
    prefix_key: Final[int | None]
    """A hash of what many sessions share at the start of their prompt: system text and tools."""
    tenant: Final[str]
    """Whose share of the engines it takes: the namespace of the API key, or who a header names."""
    urgency: Final[int]
    """Priority that the client asks for; higher goes first, whatever sign its engine gives it."""
    deadline_s: Final[float | None]
    """Seconds after its arrival within which the client wants the answer."""

    def __init__(
        self,
        pool: PoolId,
        session: SessionKey | None = None,
        *,
        parent: SessionKey | None = None,
        rule: str = "anonymous",
        final: bool = False,
        body_bytes: int = 0,
        media_bytes: int = 0,
        max_output_tokens: int | None = None,
        choices: int = 1,
        read_timeout_s: float | None = None,
        is_retry: bool = False,
        body: bytes = b"",
        body_digest: int = 0,
        prefix_key: int | None = None,
        tenant: str = "",
        urgency: int = 0,
        deadline_s: float | None = None,
    ) -> None:
        self.pool = pool
        self.session = session
        self.parent = parent
        self.rule = rule
        self.final = final
        self.body_bytes = body_bytes
        self.media_bytes = media_bytes
        self.max_output_tokens = max_output_tokens
        self.choices = choices
        self.read_timeout_s = read_timeout_s
        self.is_retry = is_retry
        self.body = body
        self.body_digest = body_digest
        self.prefix_key = prefix_key
        self.tenant = tenant
        self.urgency = urgency
        self.deadline_s = deadline_s


@dataclass(init=False, slots=True, unsafe_hash=True)
class Usage:
    """What the engine reported for one turn. ``cached_tokens`` is None where it does not tell: unknown, not 0."""

    prompt_tokens: Final[int]
    completion_tokens: Final[int]
    cached_tokens: Final[int | None]

    def __init__(
        self,
        prompt_tokens: int,
        completion_tokens: int,
        cached_tokens: int | None = None,
    ) -> None:
        self.prompt_tokens = prompt_tokens
        self.completion_tokens = completion_tokens
        self.cached_tokens = cached_tokens


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

    __hash__ = object.__hash__  # Enum's own is a function in Python, and counters are kept by it for every turn


class FinishReason(enum.Enum):
    """What a finished turn says about the session's future."""

    TOOL_CALLS = "tool_calls"
    STOP = "stop"
    LENGTH = "length"
    OTHER = "other"

    __hash__ = object.__hash__  # sessions' returns are counted by it for every turn


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

    __hash__ = object.__hash__  # counted for every turn, too


@dataclass(init=False, slots=True, unsafe_hash=True)
class Lease:
    """The right of one admitted turn to run on ``backend``; given back exactly once (invariant 2)."""

    id: Final[int]
    turn: Final[TurnFacts]
    session: Final[SessionKey]
    """The turn's session, or the one-turn session made for it."""
    backend: Final[BackendId]
    arrived_at: Final[float]
    admitted_at: Final[float]
    why: Final[AdmitWhy]

    def __init__(
        self,
        id: int,
        turn: TurnFacts,
        session: SessionKey,
        backend: BackendId,
        arrived_at: float,
        admitted_at: float,
        why: AdmitWhy = AdmitWhy.WINDOW,
    ) -> None:
        self.id = id
        self.turn = turn
        self.session = session
        self.backend = backend
        self.arrived_at = arrived_at
        self.admitted_at = admitted_at
        self.why = why


class RefusalReason(enum.Enum):
    """Why a turn may not run; the value is the ``code`` that clients see."""

    QUEUE_TIMEOUT = "queue_timeout"
    QUEUE_FULL = "queue_full"
    NO_BACKEND = "no_backend"
    SHUTTING_DOWN = "shutting_down"
    CUT_OFF = "replica_cut_off"
    """This replica does not reach what all share, while others do: they have its share of the windows."""
    TOO_MANY_SESSIONS = "too_many_sessions"
    """So many sessions of this tenant are active as may be; the others are its limits, too."""
    TOO_MANY_HELD = "too_many_held"
    TURN_RATE = "turn_rate_limit"
    TOKEN_RATE = "token_rate_limit"  # noqa: S105 - tokens of text
    BATCH_PAUSED = "batch_paused"
    """Batch work is held back while interactive answers are too slow."""


class ColdLane(enum.Enum):
    """What becomes of batch work in the order ``lanes``."""

    OPEN = "open"
    HELD = "held"
    """Waits, since interactive answers are too slow."""
    REFUSED = "refused"
    """Is sent away, since they still are after a while."""


@dataclass(init=False, slots=True, unsafe_hash=True)
class Admitted:
    ticket: Final[int]
    lease: Final[Lease]

    def __init__(
        self,
        ticket: int,
        lease: Lease,
    ) -> None:
        self.ticket = ticket
        self.lease = lease


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


@dataclass(init=False, slots=True, unsafe_hash=True)
class TurnRecord:
    """A finished turn as the ledger knows it: exact, and without a scrape's delay."""

    backend: Final[BackendId]
    session: Final[SessionKey]
    outcome: Final[Outcome]
    arrived_at: Final[float]
    admitted_at: Final[float]
    finished_at: Final[float]
    first_token_at: Final[float | None]
    think_s: Final[float | None]
    """Seconds between the session's previous answer and this turn's arrival; None on a first turn."""
    usage: Final[Usage | None]
    expected_cached_tokens: Final[int | None]
    finish_reason: Final[FinishReason | None]

    def __init__(
        self,
        backend: BackendId,
        session: SessionKey,
        outcome: Outcome,
        arrived_at: float,
        admitted_at: float,
        finished_at: float,
        *,
        first_token_at: float | None = None,
        think_s: float | None = None,
        usage: Usage | None = None,
        expected_cached_tokens: int | None = None,
        finish_reason: FinishReason | None = None,
    ) -> None:
        self.backend = backend
        self.session = session
        self.outcome = outcome
        self.arrived_at = arrived_at
        self.admitted_at = admitted_at
        self.finished_at = finished_at
        self.first_token_at = first_token_at
        self.think_s = think_s
        self.usage = usage
        self.expected_cached_tokens = expected_cached_tokens
        self.finish_reason = finish_reason
