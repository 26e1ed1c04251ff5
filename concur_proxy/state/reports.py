"""What replicas tell each other of backends, finished turns and sessions, and what that adds up to. Pure.

Times travel as ages, which a clock that is wrong cannot touch.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from concur_proxy.core.handover import SessionState
from concur_proxy.model import BackendId, FinishReason, Outcome, PoolId, SessionKey, TurnRecord, Usage
from concur_proxy.state.shares import Demand
from concur_proxy.windows.base import WindowView


@dataclass(frozen=True, slots=True)
class Report:
    """One backend as one replica sees it."""

    demand: Demand
    active: int = 0
    running: int = 0
    held: int = 0
    footprint_tokens: float = 0.0
    shared_tokens: float = 0.0
    running_tokens: float = 0.0
    busy_s: float = 0.0
    records_age_s: float = math.inf
    cache_tokens: float | None = None
    """Of the whole cache, as far as this replica's sessions find it."""
    bound: bool = False
    leaving: bool = False
    """The replica ends: it needs what is active, and nothing beside."""
    departed: int = 0
    """Sessions that have ended at this replica, ever, or that have been away for longer than their leases."""


def report_of(view: WindowView, demand: Demand, *, bound: bool, leaving: bool = False) -> Report:
    return Report(
        demand=demand,
        active=view.active,
        running=view.running,
        held=view.held,
        footprint_tokens=view.footprint_tokens,
        shared_tokens=view.shared_tokens,
        running_tokens=view.running_tokens,
        busy_s=view.busy_s,
        records_age_s=view.records_age_s,
        departed=view.departed,
        cache_tokens=view.cache_tokens,
        bound=bound,
        leaving=leaving,
    )


def add_up(
    reports: Sequence[Report], *, window: float, minimum: float, maximum: float, bound: bool, departed: int = 0
) -> WindowView:
    """Return a backend as all replicas together see it.

    A prefix that sessions of several replicas share is in the engine's cache once; how much of that cache seems to be
    there each says by what it sees. ``bound``: some replica's share has
    kept a turn waiting; that is the window's doing only while no other replica has the room. ``departed``: what
    ``Departures`` has counted; replicas come and go, so it is no sum of what those report that are here.
    """
    active = sum(report.active for report in reports)
    shared = max((report.shared_tokens for report in reports), default=0.0)
    footprint = sum(report.footprint_tokens - report.shared_tokens for report in reports) + shared
    caches = [report.cache_tokens for report in reports if report.cache_tokens is not None]
    held = sum(report.held for report in reports)
    load = sum(report.demand.load for report in reports)
    next_one = min((r.demand.first for r in reports if r.demand.waited_s is not None), default=1.0)
    return WindowView(
        window=window,
        minimum=minimum,
        maximum=maximum,
        active=active,
        running=sum(report.running for report in reports),
        held=held,
        bound=bound and (held > 0 or load + next_one > window),
        footprint_tokens=footprint,
        typical_footprint_tokens=footprint / active if active else None,
        records_age_s=min((report.records_age_s for report in reports), default=math.inf),
        shared_tokens=shared,
        running_tokens=sum(report.running_tokens for report in reports),
        busy_s=max((report.busy_s for report in reports), default=0.0),
        cache_tokens=sum(caches) / len(caches) if caches else None,
        departed=departed,
    )


class Departures:
    """How many sessions have ended at all replicas since this one looks: it never falls, whoever comes or goes."""

    def __init__(self) -> None:
        self._total: Counter[BackendId] = Counter()
        self._seen: dict[tuple[str, BackendId], int] = {}

    def hear(self, replica: str, backend: BackendId, departed: int) -> None:
        """Take in what a replica has counted; what it had before it was first heard of is not of interest."""
        before = self._seen.get((replica, backend), departed)
        self._total[backend] += max(0, departed - before)
        self._seen[replica, backend] = departed

    def keep(self, replicas: Collection[str]) -> None:
        """Forget all others: a name is never used again."""
        for each in [each for each in self._seen if each[0] not in replicas]:
            del self._seen[each]

    def of(self, backend: BackendId) -> int:
        return self._total[backend]


# reports as text


def dump_reports(reports: Mapping[BackendId, Report]) -> str:
    return json.dumps({backend: dataclasses.asdict(report) for backend, report in reports.items()})


def load_reports(text: str) -> dict[BackendId, Report]:
    """Return what ``dump_reports`` wrote; of what another version has written, what is understood."""
    names = {field.name for field in dataclasses.fields(Report)} - {"demand"}
    parts = {field.name for field in dataclasses.fields(Demand)}
    return {
        BackendId(backend): Report(
            demand=Demand(**{name: value for name, value in said.get("demand", {}).items() if name in parts}),
            **{name: value for name, value in said.items() if name in names},
        )
        for backend, said in json.loads(text).items()
    }


# finished turns


def dump_records(records: Iterable[TurnRecord], *, now: float) -> str:
    return json.dumps([_record(record, now) for record in records])


def _record(record: TurnRecord, now: float) -> list[Any]:
    usage = record.usage
    return [
        record.backend,
        record.session.namespace,
        record.session.id,
        record.outcome.value,
        now - record.arrived_at,
        now - record.admitted_at,
        now - record.finished_at,
        None if record.first_token_at is None else now - record.first_token_at,
        record.think_s,
        None if usage is None else [usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens],
        record.expected_cached_tokens,
        None if record.finish_reason is None else record.finish_reason.value,
    ]


def load_records(text: str, *, now: float) -> list[TurnRecord]:
    return [_loaded(*fields, now=now) for fields in json.loads(text)]


def _loaded(*fields: Any, now: float) -> TurnRecord:
    backend, namespace, name, outcome, arrived, admitted, finished, first, think_s, usage, expected, reason = fields
    return TurnRecord(
        BackendId(backend),
        SessionKey(namespace, name),
        Outcome(outcome),
        now - arrived,
        now - admitted,
        now - finished,
        first_token_at=None if first is None else now - first,
        think_s=think_s,
        usage=None if usage is None else Usage(*usage),
        expected_cached_tokens=expected,
        finish_reason=None if reason is None else FinishReason(reason),
    )


# sessions


def name_of(pool: PoolId, key: SessionKey) -> str:
    """Return what a session is called in Redis; ``pool_and_key`` takes it apart again."""
    return json.dumps([pool, key.namespace, key.id])


def pool_and_key(name: str) -> tuple[PoolId, SessionKey]:
    pool, namespace, session = json.loads(name)
    return PoolId(pool), SessionKey(namespace, session)


def dump_session(state: SessionState) -> str:
    said = {
        field.name: getattr(state, field.name)
        for field in dataclasses.fields(state)
        if field.name not in {"pool", "key", "parent", "finish_reason"}
    }
    parent, reason = state.parent, state.finish_reason
    said["parent"] = None if parent is None else [parent.namespace, parent.id]
    said["finish_reason"] = None if reason is None else reason.value
    return json.dumps(said)


def load_session(name: str, text: str, *, age_s: float) -> SessionState:
    """Return what was said of a session ``age_s`` seconds ago, as it is now."""
    pool, key = pool_and_key(name)
    said = json.loads(text)
    parent, reason, think = said.pop("parent"), said.pop("finish_reason"), said.pop("think")
    said["lease_s"] = max(0.0, said["lease_s"] - age_s)
    said["idle_s"] = None if said["idle_s"] is None else said["idle_s"] + age_s
    return SessionState(
        pool=pool,
        key=key,
        parent=None if parent is None else SessionKey(*parent),
        finish_reason=None if reason is None else FinishReason(reason),
        think=None if think is None else (think[0], think[1], think[2]),
        **said,
    )
