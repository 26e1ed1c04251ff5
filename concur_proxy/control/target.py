"""Where an engine's own pages are, and what is known of it beforehand."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field

from concur_proxy.config import BackendSettings, EngineKind
from concur_proxy.config.tls import engine_context
from concur_proxy.model import BackendId

RANK_HEADER = "x-data-parallel-rank"


@dataclass(frozen=True, slots=True)
class EngineTarget:
    """One backend as scraper and health probe see it."""

    backend: BackendId
    base_url: str
    """Without a trailing slash."""
    socket_path: str | None = None
    """A Unix socket to connect to instead of the URL's host."""
    kind: str | None = None
    """The engine's kind where the operator set it; None: find out."""
    metrics_url: str | None = None
    """Where its metrics are, where that is not under ``base_url``."""
    capacity_tokens: float | None = None
    """KV cache capacity that the operator gave, for engines that do not tell it."""
    api_key: str | None = field(default=None, repr=False)
    rank: int | None = None
    """The data-parallel rank that it is, of several behind its URL."""
    tls: ssl.SSLContext | None = None
    """How its certificate is met; None: as the system does."""


def target_of(settings: BackendSettings) -> EngineTarget:
    """Return the target that the settings describe; a path may follow the socket's after a colon.

    Raises ``ConfigError`` for a CA file that cannot be used.
    """
    socket, _, prefix = settings.url.removeprefix("unix:").partition(":")
    is_socket = settings.url.startswith("unix:")
    return EngineTarget(
        backend=settings.id,
        base_url=(f"http://localhost{prefix}" if is_socket else settings.url).rstrip("/"),
        socket_path=socket if is_socket else None,
        kind=None if settings.kind is EngineKind.AUTO else settings.kind.value,
        metrics_url=settings.metrics_url,
        capacity_tokens=settings.kv_tokens,
        api_key=settings.api_key.get_secret_value() if settings.api_key else None,
        rank=settings.data_parallel_rank,
        tls=engine_context(settings),
    )
