"""Tracing, where it is switched on; OpenTelemetry is imported only then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from concur_proxy.config import TracingSettings
from concur_proxy.errors import ConfigError

if TYPE_CHECKING:
    from concur_proxy.observe.tracing import Tracing


def tracing_of(settings: TracingSettings) -> Tracing | None:
    """Return what traces turns, None where nobody wants that. ConfigError where the extra is missing."""
    if settings.endpoint is None:
        return None
    try:
        from concur_proxy.observe.tracing import Tracing  # noqa: PLC0415

        return Tracing(settings)
    except ImportError as error:
        raise ConfigError(
            f"tracing.endpoint: {error.name or error} is not installed; pip install 'concur-proxy[otel]'"
        ) from None
