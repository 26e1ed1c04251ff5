"""Background responses: the engine goes on after its answer, so the lease does, too.

Nobody tells the proxy when such a response ends, and it asks nobody: it reads along when clients look (``GET
/v1/responses/{id}``), cancel or delete. Where nobody looks, the lease ends with its engine, or by its limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import orjson

from concur_proxy.core.usage import PassiveReader
from concur_proxy.gateway.rounds import Rounds
from concur_proxy.model import BackendId, FinishReason, Lease, Outcome, Usage

MAX_READ_BYTES: Final = 4 << 20
"""Of an answer that is read for its state; of a larger one it stays unknown."""
CARRY: Final = 64
"""Bytes of a piece that are looked at again with the next: more than an event's type needs."""
GONE: Final = 404
UNFINISHED: Final = frozenset({"queued", "in_progress"})
OUTCOMES: Final = {
    "completed": Outcome.COMPLETED,
    "incomplete": Outcome.COMPLETED,
    "failed": Outcome.ENGINE_ERROR,
    "cancelled": Outcome.CANCELLED,
}
_END: Final = re.compile(rb'"type"\s*:\s*"response\.(completed|incomplete|failed|cancelled)"')

Finish = Callable[[Lease, Outcome, Usage | None, FinishReason | None], None]


class StateReader(PassiveReader):
    """Reads an answer of the Responses API for the state of its response, too."""

    __slots__ = ("_ended", "_kept", "_size", "streamed")

    def __init__(self, *, streamed: bool) -> None:
        super().__init__(streamed=streamed)
        self.streamed = streamed
        self._kept: list[bytes] = []
        self._size = 0
        self._ended: str | None = None

    def feed(self, data: bytes) -> bytes:
        if self.streamed:
            self._look_for_end(data)
        elif self._size <= MAX_READ_BYTES:
            self._size += len(data)
            self._kept.append(data)
        return super().feed(data)

    def _look_for_end(self, data: bytes) -> None:
        known = b"".join((*self._kept, data))
        found = _END.search(known)
        if found is not None:
            self._ended = found[1].decode()
        self._kept = [known[-CARRY:]]

    @property
    def state(self) -> str | None:
        """The response's ``status`` as far as it has come; None where the answer does not tell."""
        if self.streamed:
            return self._ended or "in_progress"
        try:
            told = orjson.loads(b"".join(self._kept)) if self._size <= MAX_READ_BYTES else None
        except orjson.JSONDecodeError:
            return None
        state = told.get("status") if isinstance(told, dict) else None
        return state if isinstance(state, str) else None


class _Kept:
    """One lease whose response goes on."""

    __slots__ = ("_owner", "lease", "response_id")

    def __init__(self, owner: BackgroundLeases, response_id: str, lease: Lease) -> None:
        self._owner = owner
        self.response_id = response_id
        self.lease = lease

    def on_round(self) -> None:
        self._owner.end(self.response_id, Outcome.CANCELLED)


class BackgroundLeases:
    """Leases by response id, until the response ends. Not more than there are leases."""

    def __init__(self, finish: Finish, *, limit_s: float) -> None:
        """``finish`` gives a lease back. ``limit_s``: after which a response that nobody looks at counts as over."""
        self._finish = finish
        self._kept: dict[str, _Kept] = {}
        self._limits = Rounds(limit_s)

    def __contains__(self, response_id: object) -> bool:
        return response_id in self._kept

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, response_id: str, lease: Lease) -> None:
        """Take over the lease of a turn whose answer is complete and whose response is not."""
        self.end(response_id, Outcome.CANCELLED)
        kept = self._kept[response_id] = _Kept(self, response_id, lease)
        self._limits.start(kept)

    def heard(self, response_id: str, method: bytes, status: int, reader: StateReader | None) -> None:
        """An engine answered a client's question about a response."""
        if status == GONE:
            self.end(response_id, Outcome.BACKEND_LOST)
        elif method == b"DELETE" and status < 300:
            self.end(response_id, Outcome.CANCELLED)
        elif reader is not None and (outcome := OUTCOMES.get(reader.state or "")) is not None:
            self.end(response_id, outcome, reader.usage, reader.finish_reason)

    def end(
        self, response_id: str, outcome: Outcome, usage: Usage | None = None, reason: FinishReason | None = None
    ) -> None:
        """Give a lease back; nothing happens where there is none (any more)."""
        kept = self._kept.pop(response_id, None)
        if kept is not None:
            self._limits.stop(kept)
            self._finish(kept.lease, outcome, usage, reason)

    def lost(self, backend: BackendId) -> None:
        """An engine is gone, or starts anew: its responses are gone with it."""
        self._end_all(Outcome.BACKEND_LOST, backend)

    def close(self) -> None:
        """The proxy ends."""
        self._end_all(Outcome.SHUTDOWN)

    def _end_all(self, outcome: Outcome, backend: BackendId | None = None) -> None:
        for kept in list(self._kept.values()):
            if backend is None or kept.lease.backend == backend:
                self.end(kept.response_id, outcome)
