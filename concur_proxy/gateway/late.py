"""An engine's answer that comes when the client has a head already: a stream goes on with it, all else is an error.

What the engine says in another status, or not as an event stream, becomes an error event in the client's API.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from concur_proxy.core.usage import UsageReader
from concur_proxy.errors import ConcurError
from concur_proxy.gateway.headers import HeaderList, ResponseHead
from concur_proxy.gateway.heartbeat import HeldStream
from concur_proxy.gateway.paths import Shape
from concur_proxy.gateway.relay import EVENT_ENDS, Parked, is_event_stream
from concur_proxy.gateway.replies import engine_error_event

if TYPE_CHECKING:
    from concur_proxy.gateway.connection import Failure
    from concur_proxy.gateway.turn import Turn

MAX_ERROR_BYTES: Final = 64 << 10


class LateRelay:
    """The sink of one upstream call, in place of a ``Relay``."""

    __slots__ = (
        "_clock",
        "_kept",
        "_last",
        "_owner",
        "_parked",
        "_shape",
        "_stream",
        "first_token_at",
        "head",
        "reader",
        "started",
    )

    def __init__(self, stream: HeldStream, owner: Turn, clock: Callable[[], float], shape: Shape) -> None:
        self._stream = stream
        self._owner = owner
        self._clock = clock
        self._shape = shape
        self._kept: list[bytes] | None = None
        """Of an answer that cannot go on as it is."""
        self._parked = False
        self._last = b""
        self.reader: UsageReader | None = None
        self.head: ResponseHead | None = None
        self.started = False
        """Something of the engine's has gone on."""
        self.first_token_at: float | None = None

    # the sink

    def on_informational(self, head: ResponseHead) -> None:
        pass

    def on_head(self, head: ResponseHead) -> None:
        self.head = head
        self._parked = self._owner.wants_parked(head)
        if self._parked:
            self._kept = []
        else:
            self.open(head)

    def on_data(self, raw: bytes, pieces: list[bytes], *, end: bool, trailers: HeaderList) -> None:
        if self._parked and end:
            assert self.head is not None
            kept, self._kept, self._parked = [*(self._kept or ()), *pieces], None, False
            self._owner.on_parked(Parked(self, self.head, kept, trailers))
        else:
            self.pass_on(raw, pieces, end=end, trailers=trailers)

    def on_failure(self, failure: Failure, detail: str) -> None:
        self._owner.on_failure(failure, detail)

    # the way out

    def open(self, head: ResponseHead, *, whole: bool = False) -> None:  # noqa: ARG002  # as a relay's
        encoded = head.value(b"content-encoding") not in (b"", b"identity")
        fits = 200 <= head.status < 300 and is_event_stream(head) and not encoded
        self._kept = None if fits else []
        self.reader = self._owner.reader_for(head) if fits else None

    def pass_on(self, raw: bytes, pieces: list[bytes], *, end: bool, trailers: HeaderList) -> None:  # noqa: ARG002
        if self._kept is not None:
            self._keep(self._kept, pieces, end=end)
            return
        data = b"".join(pieces if self.reader is None else self._read(self.reader, pieces, end=end))
        if data:
            self.started, self._last = True, data
            self._stream.write(data)
        if end:
            self._owner.on_end()
            self._stream.end(trailers)

    def _read(self, reader: UsageReader, pieces: list[bytes], *, end: bool) -> list[bytes]:
        kept = [reader.feed(piece) for piece in pieces]
        if end:
            kept.append(reader.finish())
        if self.first_token_at is None and reader.saw_token:
            self.first_token_at = self._clock()
            self._owner.on_first_token(reader)
        return kept

    def _keep(self, kept: list[bytes], pieces: list[bytes], *, end: bool) -> None:
        if sum(map(len, kept)) < MAX_ERROR_BYTES:
            kept += pieces
        if end and not self._parked:
            assert self.head is not None
            self._stream.write(engine_error_event(self.head.status, b"".join(kept), self._shape))
            self._owner.on_end()
            self._stream.end()

    def break_off(self, error: ConcurError, shape: Shape) -> None:  # noqa: ARG002  # as a relay's
        """The engine failed after something of its answer went out."""
        self._stream.break_off(error, between_events=self._last.endswith(EVENT_ENDS))
