"""Puts the shared state between the parts of one proxy, where there is one to share."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import replace
from importlib.util import find_spec

from concur_proxy.config import Settings, StateSettings
from concur_proxy.control.loop import ControlLoop
from concur_proxy.errors import ConcurError
from concur_proxy.gateway.dispatch import Dispatcher
from concur_proxy.gateway.handler import Handler
from concur_proxy.model import BackendId, SessionKey, TurnRecord
from concur_proxy.observe.facts import SharedFacts

START_S = 10.0
RETRY_S = 0.2

NO_LIBRARY = (
    "state.url needs the Python package redis: pip install 'concur-proxy[redis]', or leave state.url out where this "
    "proxy is the only one"
)


def require_library() -> None:
    """Raise ``ConcurError`` where what ``state.url`` needs is not installed."""
    if find_spec("redis") is None:
        raise ConcurError(NO_LIBRARY)


class Replicas:
    """One proxy among others. ``gate`` is what the control loop moves: all of them as one."""

    def __init__(self, settings: Settings, dispatcher: Dispatcher) -> None:
        require_library()
        from concur_proxy.state.connect import close, connect  # noqa: PLC0415 - an extra: only who wants it needs it
        from concur_proxy.state.link import Link  # noqa: PLC0415
        from concur_proxy.state.neighbours import Neighbours  # noqa: PLC0415
        from concur_proxy.state.replica import Replica  # noqa: PLC0415
        from concur_proxy.state.steering import SharedGate  # noqa: PLC0415
        from concur_proxy.state.wakes import Wakes  # noqa: PLC0415

        state = settings.state
        prefix = f"{{{state.name}}}:"
        self._client = connect(_url(state), username=state.username, password=_password(state), ca_file=state.ca_file)
        self._close = close
        self.name = secrets.token_hex(6)
        self.link = Link(self._client, prefix, self.name)
        self.replica = Replica(self.link, dispatcher, name=self.name, max_sessions=settings.gate.max_sessions)
        self.gate = SharedGate(self.replica)
        self._url = _url(state)
        self._neighbours = Neighbours(self.name, lambda: self.replica.reaches_redis)
        self.replica.ask_neighbours = self._neighbours.ask
        self._has_joined = False
        self._wakes = Wakes(
            self._client,
            prefix,
            woken=self.replica.woken,
            heard=self.replica.heard,
            turns_from=lambda: self.replica.leader.turns_from,
        )

    async def start(self, handler: Handler, loop: ControlLoop) -> None:
        """Join the others; ConcurError where Redis cannot be reached."""
        loop.steers = lambda: self.replica.leads
        self.replica.leader.dump = loop.dump
        self.replica.is_leaving = lambda: handler.shutting_down
        self.replica.address = await self._neighbours.start(self._url)
        self.replica.start(loop)
        key = await self._shared_secret("namespace_key")
        handler.settings = replace(handler.settings, namespace_key=bytes.fromhex(key))
        handler.owners = self.replica.owners
        self._wakes.start()

    async def stop(self) -> None:
        await self._neighbours.aclose()
        await self._wakes.aclose()
        await self.replica.stop()
        await self._close(self._client)

    async def _shared_secret(self, name: str) -> str:
        """Return what all replicas must have alike: sessions are told apart by it."""
        deadline = asyncio.get_running_loop().time() + START_S
        while (answer := await self.link.ask(["secret", name, secrets.token_hex(32)])) is None:
            if asyncio.get_running_loop().time() > deadline:
                raise ConcurError(
                    f"state.url: Redis does not answer ({self.link.problem}). Start it, or leave state.url out where "
                    "this proxy is the only one."
                )
            await asyncio.sleep(RETRY_S)
        return str(answer["value"])

    @property
    def has_joined(self) -> bool:
        """Others have had the time to say what they use, so there may be a share for us; nobody waits without Redis."""
        self._has_joined = self._has_joined or self.replica.settled or not self.link.up
        return self._has_joined

    @property
    def is_cut_off(self) -> bool:
        """Others reach Redis and have our share, and we do not."""
        return self.replica.is_cut_off

    def facts(self) -> SharedFacts:
        replica = self.replica
        return SharedFacts(
            up=self.link.up,
            leads=replica.leads,
            replicas=replica.peers + 1,
            claims=replica.owners.claims,
            claims_late=replica.owners.late,
            moved=replica.owners.moved,
            windows=replica.windows,
        )

    # what the proxy tells

    def record(self, record: TurnRecord) -> None:
        self.replica.record(record)
        self.replica.owners.turn_ended(record.backend, record.session)

    def turn_over(self, session: SessionKey | None) -> None:
        if session is not None:
            self.replica.owners.turn_over(session)

    def refused(self, backend: BackendId) -> None:
        self.replica.refused(backend)


def _url(settings: StateSettings) -> str:
    assert settings.url is not None
    return settings.url.get_secret_value()


def _password(settings: StateSettings) -> str | None:
    return None if settings.password is None else settings.password.get_secret_value()
