"""Asks every backend whether it is there and which models it serves, each on its own, and listens to the data path.

Backends may be down at the start and come up later; one that hangs delays nobody but itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from concur_proxy.control.condition import Condition, Rise, State
from concur_proxy.control.ports import Clock, Fetch, Prepare, Reply, Unreached
from concur_proxy.control.reading import document, status_words
from concur_proxy.control.target import EngineTarget
from concur_proxy.model import BackendEvent, BackendId, Outcome
from concur_proxy.tasks import end

PROBE_S = 2.0
SUSPECT_S = 0.5
"""Time between two probes, and while something looks wrong."""

TIMEOUT_S = 2.0
"""For one answer: an engine that has fallen silent is known within ten seconds, three probes in a row."""

MODELS_S = 15.0
"""Adapters are loaded while an engine runs."""

HEALTH_PATH = "/health"
MODELS_PATH = "/v1/models"

_NO_SUCH_PAGE = frozenset({404, 405, 501})

Models = tuple[Mapping[str, Any], ...]
"""Entries of a model list as the engine sent them, each with an ``id``."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Watched:
    target: EngineTarget
    condition: Condition = field(default_factory=Condition)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    health_path: str = HEALTH_PATH
    models_at: float | None = None
    models_problem: str | None = None
    task: asyncio.Task[None] | None = None


@dataclass(frozen=True, slots=True)
class HealthReport:
    """One backend's health, for people."""

    state: str
    reason: str | None
    """Why it is not up."""
    models_problem: str | None
    """Why its list of models is not known or not fresh."""


class Health:
    """Probes backends; ``on_models`` hears of a list before ``on_event`` says that its backend is up.

    ``prepare`` tries and warms a backend that is about to come up.
    """

    __slots__ = ("_clock", "_fetch", "_on_event", "_on_models", "_prepare", "_timeout_s", "_watched")

    def __init__(
        self,
        fetch: Fetch,
        *,
        on_event: Callable[[BackendId, BackendEvent], None],
        on_models: Callable[[BackendId, Models], None],
        clock: Clock,
        timeout_s: float = TIMEOUT_S,
        prepare: Prepare | None = None,
    ) -> None:
        self._fetch = fetch
        self._prepare = prepare
        self._on_event = on_event
        self._on_models = on_models
        self._clock = clock
        self._timeout_s = timeout_s
        self._watched: dict[BackendId, _Watched] = {}

    def add(self, target: EngineTarget) -> None:
        """Start to watch a backend."""
        watched = self._watched[target.backend] = _Watched(target)
        watched.task = asyncio.get_running_loop().create_task(self._watch(watched), name=f"health {target.backend}")

    async def remove(self, backend: BackendId) -> None:
        """Stop to watch a backend."""
        watched = self._watched.pop(backend, None)
        await end(watched.task if watched is not None else None)

    async def aclose(self) -> None:
        for backend in list(self._watched):
            await self.remove(backend)

    def turn_ended(self, backend: BackendId, outcome: Outcome) -> None:
        """Hear from the data path how a turn ended there; a failure brings the next probe forward."""
        if (watched := self._watched.get(backend)) is not None:
            events = watched.condition.turn_ended(outcome, now=self._clock())
            if events:
                self._tell(watched, events)
            if watched.condition.suspect:
                watched.wake.set()

    def sleeping(self, backend: BackendId, *, asleep: bool) -> None:
        """Hear from the metrics whether the engine sleeps."""
        if (watched := self._watched.get(backend)) is not None:
            self._tell(watched, watched.condition.sleeping(asleep=asleep))
            if watched.condition.suspect:
                watched.wake.set()

    def drain(self, backend: BackendId, *, drained: bool) -> None:
        """Let no more turns go to a backend, or let them again; what runs there ends by itself."""
        if (watched := self._watched.get(backend)) is not None:
            self._tell(watched, watched.condition.drain(drained=drained))
            if watched.condition.suspect:
                watched.wake.set()

    def report(self, backend: BackendId) -> HealthReport | None:
        """Return how the backend is, None for one that is not watched."""
        if (watched := self._watched.get(backend)) is None:
            return None
        condition = watched.condition
        return HealthReport(condition.state.value, condition.problem, watched.models_problem)

    async def _watch(self, watched: _Watched) -> None:
        while True:
            watched.wake.clear()
            try:
                await self._probe(watched)
            except Exception:  # noqa: BLE001
                # A bug must not stop the watching: a backend that has died would stay in use for ever.
                _log.exception("probing %s failed", watched.target.backend)
            await self._pause(watched)

    async def _pause(self, watched: _Watched) -> None:
        suspect = watched.condition.suspect
        # Never less than the short pause: a storm of failing turns must not become a storm of probes.
        await asyncio.sleep(SUSPECT_S)
        if not suspect and not watched.wake.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(PROBE_S - SUSPECT_S):
                    await watched.wake.wait()

    async def _probe(self, watched: _Watched) -> None:
        problem, silent = await self._ask_health(watched)
        if problem is None and self._models_due(watched):
            await self._ask_models(watched)
        if problem is None and not await self._ready(watched):
            return
        # No await between a change of the condition and telling it: what the data path reports must not overtake it.
        self._tell(watched, watched.condition.probed(problem, silent=silent, now=self._clock()))

    async def _ready(self, watched: _Watched) -> bool:
        """Prepare a backend that is about to come up; False where a trial of it failed."""
        condition, target = watched.condition, watched.target
        if self._prepare is None:
            return True
        if condition.rising(now=self._clock()) is Rise.TRIAL:
            problem = await self._prepare(target, trial=True)
            if problem is not None and condition.rising(now=self._clock()) is Rise.TRIAL:
                condition.trial_failed(problem, now=self._clock())
                return False
        if condition.rising(now=self._clock()) is Rise.EMPTY:
            await self._prepare(target, trial=False)
        return True

    async def _ask_health(self, watched: _Watched) -> tuple[str | None, bool]:
        """Return what is wrong, None for nothing, and whether that is silence."""
        reply = await self._fetch(watched.target, watched.health_path, timeout_s=self._timeout_s)
        if isinstance(reply, Reply) and reply.status in _NO_SUCH_PAGE and watched.health_path != MODELS_PATH:
            watched.health_path = MODELS_PATH
            reply = await self._fetch(watched.target, watched.health_path, timeout_s=self._timeout_s)
        if isinstance(reply, Unreached):
            return reply.reason, reply.silent
        # Whoever answers with a client error is there; what it says is about the question.
        healthy = 200 <= reply.status < 300 or 400 <= reply.status < 500
        return (None if healthy else f"{watched.health_path} answers {reply.status}"), False

    def _models_due(self, watched: _Watched) -> bool:
        last, away = watched.models_at, watched.condition.state in (State.UNKNOWN, State.LOST)
        return away or last is None or watched.models_problem is not None or self._clock() - last >= MODELS_S

    async def _ask_models(self, watched: _Watched) -> None:
        watched.models_at = self._clock()
        reply = await self._fetch(watched.target, MODELS_PATH, timeout_s=self._timeout_s)
        models = read_models(reply, watched.target)
        if isinstance(models, str):
            watched.models_problem = models
            return
        watched.models_problem = None
        self._on_models(watched.target.backend, models)

    def _tell(self, watched: _Watched, events: list[BackendEvent]) -> None:
        backend, condition = watched.target.backend, watched.condition
        for event in events:
            _log.info("backend %s: %s%s", backend, event.value, f" ({condition.problem})" if condition.problem else "")
            self._on_event(backend, event)


def read_models(reply: Reply | Unreached, target: EngineTarget) -> Models | str:
    """Return the entries of a model list as they came, or in words why there are none."""
    if isinstance(reply, Unreached):
        return f"{MODELS_PATH}: {reply.reason}"
    if (wrong := status_words(MODELS_PATH, reply.status, target)) is not None:
        return wrong
    listed = document(reply.text)
    entries = listed.get("data") if isinstance(listed, dict) else None
    if not isinstance(entries, list):
        return f"no list of models at {MODELS_PATH}"
    return tuple(entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str))
