"""What every source of backends does: look again and again, tell what has changed, and say once what is wrong."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from concur_proxy.config import BackendSettings
from concur_proxy.errors import ConfigError

Backends = Sequence[BackendSettings]
Tell = Callable[[str, Backends], None]
"""Takes a source's name and its whole list."""

_log = logging.getLogger(__name__)


class SourceError(Exception):
    """A source cannot be read now; the message says why, in words for an operator."""


async def watch(name: str, look: Callable[[], Awaitable[Backends]], tell: Tell, *, interval_s: float) -> None:
    """Look every ``interval_s`` seconds for ever, and tell a list that differs from the one before."""
    told: Backends | None = None
    problem: str | None = None
    while True:
        try:
            found = tuple(await look())
            if found != told:
                tell(name, found)
                told = found
            problem = None
        except (SourceError, ConfigError) as error:
            if str(error) != problem:
                problem = str(error)
                _log.warning("%s: %s; the backends stay as they are", name, problem)
        except Exception:  # noqa: BLE001
            # A bug here must not end the watching: nothing would be found any more.
            _log.exception("%s: looking for backends failed", name)
        await asyncio.sleep(interval_s)
