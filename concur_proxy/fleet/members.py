"""Which backends there are while the proxy runs: they come, are drained, and leave without a turn being dropped.

Rules:
- Several sources name backends: the configuration, the management API, a file, DNS, Kubernetes. One stays as long as
  any of them names it; where two describe it differently, the first source counts.
- Whoever leaves takes no more turns, finishes those that run, and is forgotten then.
- Where its pool has no other that is up, it goes on until a newcomer is, or until newcomers have had ``PATIENCE_S``:
  a list that replaces all backends at once must not leave the clients with none.
- A URL is one backend, whatever names it is given; one with data-parallel ranks is as many as it has.
- One that is named again while it leaves stays. One that is described anew leaves, and comes back as described.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from concur_proxy.config import BackendSettings
from concur_proxy.errors import ConfigError
from concur_proxy.model import BackendId
from concur_proxy.tasks import end

PATIENCE_S = 60.0
"""So long a newcomer is waited for."""

LOOK_S = 0.1
"""Time between two looks at one that leaves."""

_log = logging.getLogger(__name__)


class MemberPort(Protocol):
    """What the running proxy does with a backend."""

    def enter(self, backend: BackendSettings) -> None:
        """Take it in; raise ``ConfigError`` where it cannot be used as it is described."""
        ...

    def drain(self, backend: BackendId, *, drained: bool) -> None: ...

    def is_up(self, backend: BackendId) -> bool: ...

    def is_busy(self, backend: BackendId) -> bool:
        """Tell whether anything runs there."""
        ...

    def has_stand_in(self, backend: BackendId) -> bool:
        """Tell whether others that are up serve all of its models."""
        ...

    async def leave(self, backend: BackendId) -> None:
        """Forget it; nothing runs there."""
        ...


class _Member:
    __slots__ = ("drained", "entered_at", "going", "leaving", "settings")

    def __init__(self, settings: BackendSettings, entered_at: float) -> None:
        self.settings = settings
        self.entered_at = entered_at
        self.drained = False
        """By an operator."""
        self.leaving: asyncio.Task[None] | None = None
        self.going = False
        """Nothing runs there any more: it cannot stay."""


class Members:
    """The backends that are here, and what each source says of them. Belongs to one event loop."""

    def __init__(self, port: MemberPort, *, clock: Callable[[], float]) -> None:
        self._port = port
        self._clock = clock
        self._said: dict[str, dict[BackendId, BackendSettings]] = {}
        self._members: dict[BackendId, _Member] = {}

    def say(self, source: str, backends: Iterable[BackendSettings]) -> None:
        """Take in the whole list of a source; what it named before and does not name now may leave.

        Raises ``ConfigError`` for a backend that cannot be used, after all others are taken in.
        """
        self._said[source] = {backend.id: backend for backend in backends}
        self._reconcile()

    def named_by(self, backend: BackendId) -> list[str]:
        """Return the sources that name a backend."""
        return [source for source, said in self._said.items() if backend in said]

    def named(self, settings: BackendSettings) -> BackendId | None:
        """Return which of the backends that are named has the name or the URL of ``settings``."""
        wanted = self._wanted().items()
        return next((name for name, one in wanted if name == settings.id or one.url == settings.url), None)

    def said(self, source: str) -> list[BackendSettings]:
        """Return what a source has named last."""
        return list(self._said.get(source, {}).values())

    def drain(self, backend: BackendId, *, drained: bool) -> bool:
        """Let no more turns go to a backend or all its ranks, or let them again; False where none has that name."""
        ranks = [name for name in self._members if backend in (name, name.rpartition("/dp")[0])]
        for name in ranks:
            member = self._members[name]
            member.drained = drained
            if member.leaving is None:
                self._port.drain(name, drained=drained)
        return bool(ranks)

    def is_leaving(self, backend: BackendId) -> bool:
        member = self._members.get(backend)
        return member is not None and member.leaving is not None

    async def aclose(self) -> None:
        """End all waiting; the backends stay as they are."""
        await end(*(member.leaving for member in self._members.values()))

    # inside

    def _wanted(self) -> dict[BackendId, BackendSettings]:
        wanted: dict[BackendId, BackendSettings] = {}
        named: set[BackendId] = set()
        urls: set[str] = set()
        for said in self._said.values():
            for backend, settings in said.items():
                if backend not in named and settings.url not in urls:
                    wanted.update({one.id: one for one in settings.ranks})
                    named.add(backend)
                    urls.add(settings.url)
        return wanted

    def _reconcile(self) -> None:
        wanted = self._wanted()
        problems: list[ConfigError] = []
        for backend, settings in wanted.items():
            member = self._members.get(backend)
            try:
                if member is None:
                    self._enter(backend, settings)
                elif member.leaving is not None and not member.going and member.settings == settings:
                    self._stay(backend, member)
            except ConfigError as error:
                problems.append(error)
        for backend, member in self._members.items():
            if member.leaving is None and wanted.get(backend) != member.settings:
                name = f"leave {backend}"
                member.leaving = asyncio.get_running_loop().create_task(self._leave(backend, member), name=name)
        if problems:
            raise problems[0]

    def _enter(self, backend: BackendId, settings: BackendSettings) -> None:
        self._port.enter(settings)
        self._members[backend] = _Member(settings, self._clock())
        _log.info("backend %s enters (%s)", backend, ", ".join(self.named_by(backend)))

    def _stay(self, backend: BackendId, member: _Member) -> None:
        assert member.leaving is not None
        member.leaving.cancel()
        member.leaving = None
        self._port.drain(backend, drained=member.drained)
        _log.info("backend %s stays after all", backend)

    async def _leave(self, backend: BackendId, member: _Member) -> None:
        _log.info("backend %s leaves", backend)
        await _until(lambda: not self._is_needed(backend))
        self._port.drain(backend, drained=True)
        await _until(lambda: not self._port.is_busy(backend))
        member.going = True
        await self._port.leave(backend)
        del self._members[backend]
        _log.info("backend %s is gone", backend)
        try:
            self._reconcile()
        except ConfigError as error:
            _log.warning("backend %s: %s", backend, error.message)

    def _is_needed(self, backend: BackendId) -> bool:
        """Tell whether clients would be left with nothing although somebody is about to come."""
        if not self._port.is_up(backend) or self._port.has_stand_in(backend):
            return False
        now = self._clock()
        return any(
            member.leaving is None and not self._port.is_up(other) and now - member.entered_at < PATIENCE_S
            for other, member in self._members.items()
        )


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what runs elsewhere ends in many ways, none of which should cost a call
        await asyncio.sleep(LOOK_S)
