"""Certificates that are replaced while the proxy runs: new connections are met, and made, with the new ones."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Iterable

from concur_proxy.config.tls import Renewable
from concur_proxy.errors import ConfigError
from concur_proxy.runtime.watch import FileWatch

logger = logging.getLogger(__name__)


class Certificates(FileWatch):
    """Looks after the contexts in use, which ``contexts`` tells anew each time: backends come and go."""

    def __init__(self, contexts: Callable[[], Iterable[ssl.SSLContext | None]]) -> None:
        super().__init__((), lambda: None)
        self._contexts = contexts

    def check(self) -> bool:
        """Look once; True where something had changed."""
        used = {context for context in self._contexts() if isinstance(context, Renewable)}
        stale = [context for context in used if context.is_stale()]
        for context in stale:
            _renew(context)
        return bool(stale)


def _renew(context: Renewable) -> None:
    try:
        context.renew()
    except ConfigError as error:
        logger.error("what was there before stays in force: %s", error.message)  # noqa: TRY400 - no bug of ours
    except Exception:
        logger.exception("what was there before stays in force: %s", ", ".join(context.files))
    else:
        logger.info("read again: %s", ", ".join(context.files))
