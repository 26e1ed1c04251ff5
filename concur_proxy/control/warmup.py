"""Makes a backend ready that is about to take turns: a trial where turns failed there, else its cache is warmed.

Only where others serve its models meanwhile: where it is the only one, the sessions that wait fill the cache at once.
Whatever goes wrong while warming is no reason to keep it back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import orjson

from concur_proxy.control.ports import Reply, Unreached
from concur_proxy.control.target import EngineTarget
from concur_proxy.errors import ConfigError
from concur_proxy.model import BackendId

TRIAL_TIMEOUT_S = 10.0
WARM_TIMEOUT_S = 30.0
"""For all prefixes together."""
MAX_PREFIXES = 10
COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"

_log = logging.getLogger(__name__)


class Post(Protocol):
    """Sends an engine a request of our own. Never raises: whatever goes wrong is an ``Unreached``."""

    async def __call__(
        self, target: EngineTarget, path: str, body: bytes, *, timeout_s: float
    ) -> Reply | Unreached: ...


class Prefix(Protocol):
    """A request that leaves a shared prefix in the cache of who serves its model."""

    @property
    def path(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def body(self) -> bytes: ...


class WarmUp:
    """Implements ``control.ports.Prepare``. ``prefixes`` returns what to replay, the most important first."""

    def __init__(
        self,
        post: Post,
        *,
        models_of: Callable[[BackendId], Sequence[str]],
        has_stand_in: Callable[[BackendId], bool],
        prefixes: Callable[[], Sequence[Prefix]],
    ) -> None:
        self._post = post
        self._models_of = models_of
        self._has_stand_in = has_stand_in
        self._prefixes = prefixes

    async def __call__(self, target: EngineTarget, *, trial: bool) -> str | None:
        if trial:
            return await self._try(target)
        if self._has_stand_in(target.backend):
            await self._warm(target)
        return None

    async def _try(self, target: EngineTarget) -> str | None:
        """Have one token generated; an answer of any kind but a failure is good enough."""
        models = self._models_of(target.backend)
        if not models:
            return None
        body = orjson.dumps({"model": models[0], "prompt": "Hi", "max_tokens": 1})
        reply = await self._post(target, COMPLETIONS, body, timeout_s=TRIAL_TIMEOUT_S)
        if isinstance(reply, Unreached):
            return f"{COMPLETIONS}: {reply.reason}"
        is_failure = reply.status >= 500 and reply.status not in (501, 503, 529)
        return f"{COMPLETIONS} answers {reply.status}" if is_failure else None

    async def _warm(self, target: EngineTarget) -> None:
        models = set(self._models_of(target.backend))
        wanted = [one for one in self._prefixes() if one.model in models][:MAX_PREFIXES]
        if not wanted:
            return
        _log.info("backend %s: warming its cache with %d shared prefixes", target.backend, len(wanted))
        try:
            async with asyncio.timeout(WARM_TIMEOUT_S):
                for one in wanted:
                    await self._post(target, one.path, one.body, timeout_s=WARM_TIMEOUT_S)
        except TimeoutError:
            _log.warning("backend %s: warming took longer than %g s", target.backend, WARM_TIMEOUT_S)


class ConfiguredPrefix:
    """One line of ``fleet.warm_up_file``: a chat completion, of which one token is wanted."""

    path = CHAT

    def __init__(self, line: bytes, where: str) -> None:
        """Raise ``ConfigError`` for a line that is no body of a chat completion."""
        try:
            fields = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise ConfigError(f"{where}: not valid JSON: {error}") from None
        if not isinstance(fields, dict) or not isinstance(fields.get("model"), str) or "messages" not in fields:
            raise ConfigError(f"{where}: must be the body of a chat completion, with model and messages")
        self.model: str = fields["model"]
        self.body: bytes = orjson.dumps({**fields, "max_tokens": 1, "stream": False})


def read_prefixes(path: str) -> list[ConfiguredPrefix]:
    """Return the prefixes of ``fleet.warm_up_file``; raise ``ConfigError`` where it cannot be used."""
    try:
        lines = Path(path).read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(f"fleet.warm_up_file: {path} cannot be read: {error.strerror}") from None
    found = [
        ConfiguredPrefix(line, f"fleet.warm_up_file: {path}:{number}")
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]
    if len(found) > MAX_PREFIXES:
        raise ConfigError(f"fleet.warm_up_file: {path} has {len(found)} prefixes: at most {MAX_PREFIXES}")
    return found
