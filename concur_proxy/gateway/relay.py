"""One engine response on its way to one client: bytes as they come, pressure back, nothing parsed twice.

How the body travels depends on how it came and on what the client can read:

- nothing changes and both sides speak chunks: the received bytes, framing included (``RAW``);
- known length, or none: the pieces as they are (``PLAIN``); to HTTP/1.0 clients too, whose end is the closing;
- an event is taken out, or the engine's end was a closed connection: chunks of our own (``CHUNKS``).
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from concur_proxy.core.usage import PassiveReader, UsageReader
from concur_proxy.errors import ConcurError
from concur_proxy.gateway import headers as lines
from concur_proxy.gateway.headers import Framing, HeaderList, ResponseHead
from concur_proxy.gateway.paths import Shape
from concur_proxy.gateway.replies import error_event
from concur_proxy.gateway.whole import WholeReader

if TYPE_CHECKING:
    from concur_proxy.gateway.connection import Failure
    from concur_proxy.gateway.exchange import Exchange
    from concur_proxy.gateway.turn import Turn

EVENT_STREAM: Final = b"text/event-stream"
EVENT_ENDS: Final[tuple[bytes, ...]] = (b"\n\n", b"\r\n\r\n")
RAW_EVENT_ENDS = tuple(end + b"\r\n" for end in EVENT_ENDS)
MAX_PARKED_BYTES: Final = 64 << 10


class Mode(enum.Enum):
    RAW = "raw"
    PLAIN = "plain"
    CHUNKS = "chunks"


RAW: Final = Mode.RAW
PLAIN: Final = Mode.PLAIN
CHUNKS: Final = Mode.CHUNKS


class Opener(Protocol):
    """What passes an engine's response on: a ``Relay``, or what stands for one."""

    def open(self, head: ResponseHead, *, whole: bool = False) -> None: ...

    def pass_on(self, raw: bytes, pieces: list[bytes], *, end: bool, trailers: HeaderList) -> None: ...


class Parked:
    """A whole response that was kept back; ``release`` sends it after all."""

    __slots__ = ("_body", "_relay", "_trailers", "head")

    def __init__(self, relay: Opener, head: ResponseHead, body: list[bytes], trailers: HeaderList) -> None:
        self._relay = relay
        self._body = body
        self._trailers = trailers
        self.head = head

    def release(self) -> None:
        self._relay.open(self.head, whole=True)
        self._relay.pass_on(b"", self._body, end=True, trailers=self._trailers)


class Relay:
    """The sink of one upstream call."""

    __slots__ = (
        "_client",
        "_clock",
        "_last",
        "_mode",
        "_owner",
        "_parked",
        "_passive",
        "_pending",
        "_strip",
        "first_token_at",
        "head",
        "reader",
        "started",
    )

    def __init__(self, client: Exchange, owner: Turn, clock: Callable[[], float], *, strip: bool) -> None:
        self._client = client
        self._owner = owner
        self._clock = clock
        self._strip = strip
        self._mode = PLAIN
        self._pending = b""
        self._last = b""
        self._parked: list[bytes] | None = None
        self.reader: UsageReader | None = None
        self._passive: PassiveReader | None = None
        """The reader, where it is one of the usual ones, which are called directly."""
        self.head: ResponseHead | None = None
        self.started = False
        """The head is out: from here on no other answer is possible."""
        self.first_token_at: float | None = None

    # the sink

    def on_informational(self, head: ResponseHead) -> None:
        if self._client.http11:
            self._client.write(b"".join(lines.response_lines(head, with_length=False)) + b"\r\n")

    def on_head(self, head: ResponseHead) -> None:
        self.head = head
        if self._owner.wants_parked(head):
            self._parked = []
        else:
            self.open(head)

    def on_data(self, raw: bytes, pieces: list[bytes], *, end: bool, trailers: HeaderList) -> None:
        if self._parked is not None:
            self._park(pieces, end=end, trailers=trailers)
        else:
            self.pass_on(raw, pieces, end=end, trailers=trailers)

    def on_chunk(self, raw: bytes, piece: bytes) -> None:
        """Take one whole chunk, ``raw`` with its framing: what nearly every read of a stream brings."""
        reader = self._passive
        if self._parked is not None or not self.started or reader is None:
            self.on_data(raw, [piece], end=False, trailers=[])
            return
        kept = reader.feed(piece)
        if self.first_token_at is None and reader.saw_token:
            self.first_token_at = self._clock()
            self._owner.on_first_token(reader)
        if self._mode is RAW or (self._mode is CHUNKS and kept is piece):
            self._last = raw if self._mode is RAW else piece
            self._client.write(raw)
        elif kept:
            self._last = kept
            self._client.write(lines.chunk(kept) if self._mode is CHUNKS else kept)

    def on_failure(self, failure: Failure, detail: str) -> None:
        self._owner.on_failure(failure, detail)

    # the way out

    def open(self, head: ResponseHead, *, whole: bool = False) -> None:
        """Compose the head, which leaves together with the first data. ``whole``: the raw bytes are no longer there."""
        client = self._client
        self.reader = reader = self._owner.reader_for(head)
        self._passive = reader if isinstance(reader, PassiveReader) else None
        self._strip = self._strip and self.reader is not None and is_event_stream(head)
        self._mode = self._choose(head, whole=whole)
        known_length = self._told_length(head)
        if head.lines and known_length:
            out = [head.lines]
        else:
            out = lines.response_lines(
                head, with_length=known_length or (head.framing is Framing.NONE and head.status != 204)
            )
        out += self._owner.extra_lines(head)
        if self._mode is not PLAIN:
            out.append(b"transfer-encoding: chunked\r\n")
        if not client.keep_alive:
            out.append(b"connection: close\r\n")
        self._pending = b"".join(out) + b"\r\n"

    def _choose(self, head: ResponseHead, *, whole: bool) -> Mode:
        if head.framing is Framing.NONE or not self._client.http11:
            return PLAIN
        if self._strip or head.framing is Framing.CLOSE:
            return CHUNKS
        if head.framing is Framing.LENGTH:
            return PLAIN
        return CHUNKS if whole else RAW

    def pass_on(self, raw: bytes, pieces: list[bytes], *, end: bool, trailers: HeaderList) -> None:
        """Write what one read brought, and the end where it is the last."""
        if self.reader is not None:
            pieces = self._read(self.reader, pieces, end=end)
        out = raw if self._mode is RAW else one(pieces)
        if out:
            self._last = out
        if self._mode is CHUNKS:
            out = lines.chunk(out) + lines.last_chunk(trailers) if end else lines.chunk(out)
        if not self.started:
            if not out and not end:
                return  # vLLM sends the head of a stream long before its first token: until then another may answer
            self.started = True
            out, self._pending = self._pending + out, b""
        if out:
            self._client.write(out)
        if end:
            self._owner.on_end()
            self._client.done()

    def _read(self, reader: UsageReader, pieces: list[bytes], *, end: bool) -> list[bytes]:
        """Have the pieces read; return what goes on, which is all of them where nothing is taken out."""
        if isinstance(reader, WholeReader):  # as most are that read no stream: called directly
            for piece in pieces:
                reader.feed(piece)
            if end:
                reader.finish()
            return pieces
        kept = [reader.feed(piece) for piece in pieces]
        if end:
            kept.append(reader.finish())
        if self.first_token_at is None and reader.saw_token:
            self.first_token_at = self._clock()
            self._owner.on_first_token(reader)
        return kept if self._strip else pieces

    def _park(self, pieces: list[bytes], *, end: bool, trailers: HeaderList) -> None:
        assert self._parked is not None
        assert self.head is not None
        self._parked += pieces
        if end:
            parked, self._parked = self._parked, None
            self._owner.on_parked(Parked(self, self.head, parked, trailers))
        elif sum(map(len, self._parked)) > MAX_PARKED_BYTES:
            parked, self._parked = self._parked, None
            self.open(self.head, whole=True)
            self.pass_on(b"", parked, end=False, trailers=[])

    @property
    def is_between_events(self) -> bool:
        """Tell whether an event of our own can follow what the client has."""
        head = self.head
        if head is None or self._mode is PLAIN or not is_event_stream(head):
            return False
        return not self._last or self._last.endswith(RAW_EVENT_ENDS if self._mode is RAW else EVENT_ENDS)

    def break_off(self, error: ConcurError, shape: Shape) -> None:
        """The engine failed after the head went out: the client must not take what it has for the whole."""
        head = self.head
        assert head is not None
        if self.is_between_events:
            self._client.write(lines.chunk(error_event(error, shape)))
        self._client.cut(hard=self._mode is PLAIN and not self._told_length(head))

    def _told_length(self, head: ResponseHead) -> bool:
        return head.framing is Framing.LENGTH and not self._strip


def one(pieces: list[bytes]) -> bytes:
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def is_event_stream(head: ResponseHead) -> bool:
    return head.value(b"content-type").lower().startswith(EVENT_STREAM)
