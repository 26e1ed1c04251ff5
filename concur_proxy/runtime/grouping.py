"""Grouping of batch work by what it means, where the settings name a model for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from concur_proxy.config import BatchSettings
from concur_proxy.core.gate import Gate
from concur_proxy.errors import ConfigError

if TYPE_CHECKING:
    from concur_proxy.gateway.meaning import Grouper


def grouper_of(settings: BatchSettings, gate: Gate) -> Grouper | None:
    """Load the model and return what asks it; None where none is named. ConfigError where it cannot be loaded."""
    if settings.meaning_model is None:
        return None
    try:
        from concur_proxy.gateway import meaning  # noqa: PLC0415 - its libraries are in an extra
    except ImportError as error:
        raise ConfigError(
            f"batch.meaning_model: it needs more packages ({error.name} is missing): "
            "pip install 'concur-proxy[meaning]'"
        ) from None
    return meaning.Grouper(meaning.load(settings.meaning_model), is_held=gate.is_held, group=gate.group)
