"""The Responses API keeps state in the engine: a response id belongs to the backend that made it."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from concur_proxy.model import BackendId

PREFIX: Final = b"/v1/responses/"


class ResponseOrigins:
    """Which backend made a response; the least recently used ids are forgotten."""

    def __init__(self, capacity: int = 50_000) -> None:
        self._capacity = capacity
        self._backends: OrderedDict[str, BackendId] = OrderedDict()
        self._owners: dict[str, str] = {}

    def remember(self, response_id: str, backend: BackendId, owner: str | None = None) -> None:
        """``owner``: whose response it is, where callers are known."""
        self._backends[response_id] = backend
        self._backends.move_to_end(response_id)
        if owner is not None:
            self._owners[response_id] = owner
        if len(self._backends) > self._capacity:
            forgotten, _ = self._backends.popitem(last=False)
            self._owners.pop(forgotten, None)

    def find(self, response_id: str | None) -> BackendId | None:
        if response_id is None or response_id not in self._backends:
            return None
        self._backends.move_to_end(response_id)
        return self._backends[response_id]

    def owner(self, response_id: str | None) -> str | None:
        """Return whose response it is, None where that is not known."""
        return None if response_id is None else self._owners.get(response_id)

    def __len__(self) -> int:
        return len(self._backends)


def id_in_path(path: bytes) -> str | None:
    """Return the response id that a sub-path of the Responses API names."""
    if not path.startswith(PREFIX):
        return None
    return path[len(PREFIX) :].partition(b"/")[0].decode("latin-1")
