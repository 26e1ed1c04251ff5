"""One who may call: a name, the models that it may use, and until when."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TypeGuard

MAX_NAME = 256


class Caller:
    """``name`` is its tenant, too. Callers of one ``namespace`` see each other's sessions, and nobody else's."""

    __slots__ = ("_exact", "_prefixes", "expires_at", "is_restricted", "name", "namespace")

    def __init__(
        self, name: str, namespace: str, *, models: Iterable[str] | None = None, expires_at: float = math.inf
    ) -> None:
        """``models``: names, or beginnings of names that end in ``*``; None: all. ``expires_at``: UNIX time."""
        self.name = name
        self.namespace = namespace
        self.expires_at = expires_at
        self.is_restricted = models is not None
        listed = tuple(models or ())
        self._exact = frozenset(model for model in listed if not model.endswith("*"))
        self._prefixes = tuple(model[:-1] for model in listed if model.endswith("*"))

    @property
    def models(self) -> tuple[str, ...] | None:
        """The models that it may use, as they were given; None: all."""
        return (*sorted(self._exact), *(f"{prefix}*" for prefix in self._prefixes)) if self.is_restricted else None

    def may_use(self, model: str | None) -> bool:
        """Tell whether it may use a model; None: one that cannot be told, which only those without limits may."""
        if not self.is_restricted:
            return True
        return model is not None and (model in self._exact or model.startswith(self._prefixes))


def is_name(text: object) -> TypeGuard[str]:
    """Tell whether a text can name a caller: it becomes a label of metrics and a word in logs."""
    return isinstance(text, str) and 0 < len(text) <= MAX_NAME and text.isprintable() and text == text.strip()
