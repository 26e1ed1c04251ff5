"""What the management API tells. Null stands for unknown, in windows also for unlimited; never zero for either."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def _finite(value: float | None) -> float | None:
    return None if value is not None and not math.isfinite(value) else value


Finite = Annotated[float | None, BeforeValidator(_finite)]
"""JSON knows no infinity."""


class Report(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SessionState(StrEnum):
    RUNNING = "running"
    IDLE = "idle"
    HELD = "held"
    PAUSED = "paused"


class SignalsReport(Report):
    age_s: Finite = Field(description="Age of the newest engine sample; null: there has been none.")
    stale: bool = Field(description="Too old to steer by: the window is frozen.")
    kv_usage: float | None = Field(None, description="Share of KV blocks that running requests hold, 0 to 1.")
    hit_rate: float | None = Field(
        None, description="Cached over processed prompt tokens in the last interval, 0 to 1."
    )
    running: float | None = Field(None, description="Requests that the engine runs.")
    waiting: float | None = Field(None, description="Requests that wait inside the engine.")
    problem: str | None = Field(None, description="Why the last read of its metrics failed.")


class BackendReport(Report):
    name: str
    url: str
    state: str = Field(description="Whether it takes turns, and if not, why in a word.")
    problem: str | None = Field(None, description="Why it takes no turns, in words.")
    engine: str | None = Field(None, description="Kind of engine; null: not known yet.")
    unit: str = Field(description="What the window counts: sessions or tokens.")
    window: Finite = Field(description="The window in force; null: unlimited.")
    window_min: float
    window_max: Finite
    hard: bool = Field(False, description="Every turn over the window is held, warm or not.")
    reason: str | None = Field(None, description="Why the law set this window.")
    law: dict[str, Any] = Field(default_factory=dict, description="What the law knows.")
    running: int = Field(description="Turns in flight.")
    active: int | None = Field(None, description="Sessions that hold a place.")
    idle: int = Field(description="Sessions that hold a place between two turns.")
    held: int | None = Field(None, description="Turns that wait for it, or for others of its pool.")
    footprint_tokens: float = Field(description="Tokens of KV that its active sessions occupy.")
    capacity_tokens: float | None = Field(None, description="Tokens that its KV cache holds.")
    recent_hit_rate: float | None = Field(
        None, description="Cached over processed prompt tokens in the last 50 turns, 0 to 1; null: answers do not tell."
    )
    keepalive_s: float | None = Field(None, description="Idle connections to it are dropped after this.")
    connection_retries: int = Field(0, description="Requests sent again because an idle connection had been closed.")
    signals: SignalsReport


class HotLaneReport(Report):
    pool: str
    p99_s: float | None = Field(
        description="p99 of the time to the first token in the last window; null: nobody asked for anything."
    )
    objective_s: float = Field(description="What it should not exceed.")
    batch: str = Field(description="What becomes of batch work: open, held or refused.")


class StatusReport(Report):
    version: str
    uptime_s: float
    mode: str
    law: str
    held: int = Field(description="Turns that wait for a place.")
    longest_wait_s: float | None = Field(None, description="Time that the first of them has waited.")
    hot_lanes: list[HotLaneReport] = Field(
        [], description="How interactive turns fare in each pool, where they have an objective."
    )
    sessions: dict[SessionState, int] = Field(description="Sessions by state.")
    turns: dict[str, int] = Field(description="Turns since the start: arrived, admitted, finished, refused, abandoned.")
    backends: list[BackendReport]


class SessionReport(Report):
    id: str
    state: SessionState
    rule: str | None = Field(None, description="Which rule recognised it.")
    backend: str | None = Field(None, description="Where its context lives.")
    footprint_tokens: float
    turns: int = Field(description="Turns admitted so far.")
    idle_s: float | None = Field(None, description="Seconds since its last turn ended; null while one runs.")
    lease_s: float | None = Field(None, description="Seconds until it loses its place if no turn comes.")
    parent: str | None = None


class SessionList(Report):
    total: int = Field(description="How many match, listed or not.")
    sessions: list[SessionReport]


class HeldReport(Report):
    session: str | None = Field(description="Null: a turn without a session.")
    state: SessionState = Field(description="held: a new session; paused: it has run before.")
    rule: str = Field(description="Which rule recognised the session.")
    backend: str | None = Field(None, description="Where its context is, or was.")
    waited_s: float
    left_s: float = Field(description="Seconds until it is refused, or let in where that is set.")
    footprint_tokens: float


class Queue(Report):
    total: int = Field(description="How many turns wait, listed or not.")
    turns: list[HeldReport] = Field(description="Those that have waited longest.")


class LiveReport(Report):
    """One event of ``/concur/events``."""

    status: StatusReport
    queue: Queue


Series = list[float | None]


class HistoryReport(Report):
    """What the proxy remembers, oldest first. Every series has one value for each of ``at``; null is unknown."""

    now: float = Field(description="Seconds since the epoch, as the times in `at`.")
    interval_s: float = Field(description="Time between two moments that are kept.")
    span_s: float = Field(description="How far back this goes; moments may be means of several.")
    backend: str | None = Field(description="Null: all backends together.")
    backends: list[str] = Field(description="Those that something is known of.")
    at: list[float]
    series: dict[str, Series] = Field(
        description="By name. A window is null where it is unlimited, or counts in the other unit."
    )


class Ended(Report):
    ended: int = Field(description="Sessions whose places were freed.")


class Released(Report):
    program_id: str
    released: bool = Field(description="Whether there was such a session.")
