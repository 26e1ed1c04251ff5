"""The Responses API keeps state in the engine: a response id belongs to the backend that made it."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable

from concur_proxy.gateway.relay import Reader
from concur_proxy.model import BackendId, FinishReason, Usage

RESPONSE_ID = re.compile(rb'"id"\s*:\s*"(resp_[\x21\x23-\x7e]{1,128})"')
SEARCHED_BYTES = 64 << 10
PREFIX = b"/v1/responses/"


class ResponseOrigins:
    """Which backend made a response; the least recently used ids are forgotten."""

    def __init__(self, capacity: int = 50_000) -> None:
        self._capacity = capacity
        self._backends: OrderedDict[str, BackendId] = OrderedDict()

    def remember(self, response_id: str, backend: BackendId) -> None:
        self._backends[response_id] = backend
        self._backends.move_to_end(response_id)
        if len(self._backends) > self._capacity:
            self._backends.popitem(last=False)

    def find(self, response_id: str | None) -> BackendId | None:
        if response_id is None or response_id not in self._backends:
            return None
        self._backends.move_to_end(response_id)
        return self._backends[response_id]

    def __len__(self) -> int:
        return len(self._backends)


def id_in_path(path: bytes) -> str | None:
    """Return the response id that a sub-path of the Responses API names."""
    if not path.startswith(PREFIX):
        return None
    return path[len(PREFIX) :].partition(b"/")[0].decode("latin-1")


class IdSpotter:
    """A reader around another: reports the response id, which stands near the start of a body or of its first event."""

    def __init__(self, inner: Reader, found: Callable[[str], None]) -> None:
        self._inner = inner
        self._found = found
        self._searched: bytes | None = b""

    @property
    def usage(self) -> Usage | None:
        return self._inner.usage

    @property
    def finish_reason(self) -> FinishReason | None:
        return self._inner.finish_reason

    @property
    def saw_token(self) -> bool:
        return self._inner.saw_token

    def feed(self, data: bytes) -> bytes:
        if self._searched is not None:
            self._search(self._searched + data)
        return self._inner.feed(data)

    def finish(self) -> bytes:
        return self._inner.finish()

    def _search(self, text: bytes) -> None:
        match = RESPONSE_ID.search(text)
        if match:
            self._found(match[1].decode("ascii"))
        self._searched = None if match or len(text) > SEARCHED_BYTES else text
