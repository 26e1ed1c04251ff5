"""One connection to an engine: sends a request, reads its response, tells a sink. No task, no queue.

The parser keeps track of the end of each message; what it hands out are the pieces of the body, while ``raw`` is the
same stretch as it came, chunk framing included, so that a relay which changes nothing need not frame anew.
"""

from __future__ import annotations

import asyncio
import enum
from typing import TYPE_CHECKING, Final, Protocol, cast

import httptools

from concur_proxy.gateway.headers import Framing, HeaderList, ResponseHead, name_of, occurrences

if TYPE_CHECKING:
    from concur_proxy.gateway.upstream import UpstreamCall, UpstreamPool

END_OF_HEAD: Final = b"\r\n\r\n"
LINE_ENDS: Final = b"\r\n"
CONTROLS: Final = bytes({*range(32), 127} - {9})
VERSIONS: Final = frozenset({"1.0", "1.1"})
HEX_DIGITS: Final = b"0123456789abcdefABCDEF"
MAX_SIZE_DIGITS: Final = 7
MAX_HEAD_BYTES: Final = 256 << 10
MAX_BARE_BYTES: Final = 256 << 10
"""Of chunk framing or trailers without any body in between."""


NO_PARSER: Final = httptools.HttpResponseParser(None)
"""In place of a parser that refers to its connection: no cycle is left behind when that is lost."""


class Failure(enum.Enum):
    """Why a response did not come to its end."""

    CONNECT = "connect"
    LOST_EARLY = "lost_early"
    """The connection died before any byte of a response."""
    LOST = "lost"
    TIMEOUT = "timeout"
    PROTOCOL = "protocol"
    """What came is not HTTP."""


class Sink(Protocol):
    """Who a response is for. Never called from within ``send`` and never after ``abort`` or a final call."""

    def on_informational(self, head: ResponseHead) -> None: ...

    def on_head(self, head: ResponseHead) -> None: ...

    def on_data(self, raw: bytes, pieces: list[bytes], *, end: bool, trailers: HeaderList) -> None:
        """Take what one read brought; follows ``on_head`` at once, also with nothing. ``end``: the final call."""

    def on_failure(self, failure: Failure, detail: str) -> None:
        """The final call instead of an end."""


class UpstreamConnection(asyncio.Protocol):
    """Belongs to a pool; serves one call at a time."""

    __slots__ = (
        "_bare_bytes",
        "_between_chunks",
        "_complete",
        "_fresh_head",
        "_head_bytes",
        "_heads_seen",
        "_last_read",
        "_parser",
        "_paused",
        "_persistent",
        "_pieces",
        "_pool",
        "_reason",
        "_surplus",
        "_tail",
        "_timer",
        "call",
        "head",
        "headers",
        "idle_since",
        "transport",
        "uses",
    )

    def __init__(self, pool: UpstreamPool) -> None:
        self._pool = pool
        self._parser = httptools.HttpResponseParser(self)
        self._timer: asyncio.TimerHandle | None = None
        self._last_read = 0.0
        self._paused = False
        self.transport: asyncio.Transport
        self.call: UpstreamCall | None = None
        self.uses = 0
        self.idle_since = 0.0
        self._reset()

    def _reset(self) -> None:
        self.head: ResponseHead | None = None
        self.headers: HeaderList = []
        self._fresh_head = False
        self._complete = False
        self._persistent = False
        self._surplus = False
        self._between_chunks = False
        """All chunks so far came whole: what comes begins with a chunk."""
        self._pieces: list[bytes] = []
        self._reason = b""
        self._tail = b""
        self._heads_seen = 0
        self._head_bytes = 0
        self._bare_bytes = 0

    # the pool's side

    def begin(self, call: UpstreamCall) -> None:
        """Send the call's request."""
        self.call = call
        call.connection = self
        self.uses += 1
        self._pool.sent_bytes += len(call.head) + len(call.body)
        self._watch(self._pool.first_byte_timeout_s)
        if len(call.body) < 1 << 16:
            self.transport.write(call.head + call.body)
        else:
            self.transport.write(call.head)
            self.transport.write(call.body)

    def abort(self) -> None:
        """Close at once: that is how an engine notices that nobody waits any more."""
        self.call = None
        self._unwatch()
        self.transport.abort()

    def pause(self) -> None:
        if not self._paused and not self.transport.is_closing():
            self._paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            self._last_read = self._pool.loop.time()
            if not self.transport.is_closing():
                self.transport.resume_reading()

    @property
    def got_byte(self) -> bool:
        return self.head is not None or self._head_bytes > 0

    # the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._pool.add(self)

    def data_received(self, data: bytes) -> None:
        call = self.call
        if call is None:
            self.transport.abort()
            return
        self._pool.received_bytes += len(data)
        if self.head is not None:
            if self._timer is not None:
                self._last_read = self._pool.loop.time()
            if self._between_chunks and self._is_chunk(call, data):
                return
            raw = data if self._feed(data) else None
            self._between_chunks = self._between_chunks and are_chunks(data)
        elif not self._head_bytes and not call.head_only and self._is_familiar(call, data):
            return
        else:
            raw = self._feed_head(data)
        if raw is None:
            self._fail(Failure.PROTOCOL, "the engine sent something that is not HTTP/1.1")
        elif self.head is not None:
            if self._complete and self._fresh_head and self._persistent and not self._surplus:
                self._learn(self.head, data, raw)
            if self._fresh_head and not self._complete and self.head.framing is Framing.CHUNKED:
                self._between_chunks = are_chunks(raw)
            self._tell(call, self.head, raw)

    def _is_chunk(self, call: UpstreamCall, data: bytes) -> bool:
        """Take a read that is one whole chunk; False where it has to be parsed."""
        relay, piece = call.relay, chunk_of(data)
        if relay is None or not piece:
            return False
        self._tail = data[-4:]
        self._bare_bytes = 0
        relay.on_chunk(data, piece)
        return True

    def _is_familiar(self, call: UpstreamCall, data: bytes) -> bool:
        """Take a whole answer whose head is like that of the last; False where it has to be parsed."""
        head, start = self._pool.familiar_head(data)
        if head is None:
            return False
        body = data[start:]
        self.head = head
        self._complete = self._persistent = True
        relay = call.relay
        if relay is not None:
            relay.on_head(head)
        else:
            call.sink.on_head(head)
        if self.call is not call:
            return True
        self._release(call)
        if relay is not None:
            relay.on_data(body, [body], end=True, trailers=[])
        else:
            call.sink.on_data(body, [body], end=True, trailers=[])
        return True

    def _learn(self, head: ResponseHead, data: bytes, raw: bytes) -> None:
        """Keep the head of an answer that came in one read."""
        if self._head_bytes == len(data) and len(data) > len(raw) > 0 and head.framing is Framing.LENGTH:
            self._pool.learn(data, head)

    def _feed_head(self, data: bytes) -> bytes | None:
        """Parse while the head is not complete; return what of ``data`` follows it, None where it is not HTTP."""
        if not self._head_bytes:
            self._unwatch()
            self._watch(self._pool.idle_timeout_s)
        self._head_bytes += len(data)
        seen, known = self._heads_seen, self._tail + data
        if not self._feed(data):
            return None
        start = self._end_of_heads(known, self._heads_seen - seen)
        whole = self.head is not None
        size = self._head_bytes - (len(known) - start if whole else 0)
        if start < 0 or size > MAX_HEAD_BYTES:
            return None
        self._tail = b"" if whole else known[max(start, len(known) - 3) :]
        return known[start:] if whole else b""

    def _end_of_heads(self, known: bytes, count: int) -> int:
        """Return where the last one ends; -1 where blank lines stand before one, which the parser passes over."""
        start, fresh = 0, not self._tail
        for _ in range(count):
            if fresh and known[start : start + 1] != b"H":
                return -1
            start, fresh = known.index(END_OF_HEAD, start) + len(END_OF_HEAD), True
        begun = self.head is None and fresh and len(known) > start
        return -1 if begun and known[start : start + 1] != b"H" else start

    def _feed(self, data: bytes) -> bool:
        """Run the parser; False where the data breaks an unfinished message."""
        self._pieces = []
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._surplus = True
            return self._complete
        return True

    def _tell(self, call: UpstreamCall, head: ResponseHead, raw: bytes) -> None:
        sink = call.sink
        pieces, trailers, end = self._pieces, self.headers, self._complete
        fresh, self._fresh_head = self._fresh_head, False
        if head.framing is Framing.CHUNKED:
            if (fault := self._fault_at_end(trailers) if end else self._fault_between(raw, pieces)) is not None:
                self._fail(Failure.PROTOCOL, fault)
                return
            if end:
                raw = self._up_to_the_end(raw)
        elif end and len(raw) != sum(map(len, pieces)):
            self._surplus = True
        if fresh:
            sink.on_head(head)
            if self.call is not call:
                return
        if end:
            self._release(call)
        if call.relay is not None:
            call.relay.on_data(raw, pieces, end=end, trailers=trailers)
        else:
            sink.on_data(raw, pieces, end=end, trailers=trailers)

    def _fault_between(self, raw: bytes, pieces: list[bytes]) -> str | None:
        self._tail = raw[-4:] if len(raw) > 3 else (self._tail + raw)[-4:]
        if pieces:
            self._bare_bytes = 0
            return None
        self._bare_bytes += len(raw)
        return "the engine sent chunk framing without end" if self._bare_bytes > MAX_BARE_BYTES else None

    def _fault_at_end(self, trailers: HeaderList) -> str | None:
        """Name what must not reach a client, to whom chunks and trailers go as they come."""
        if self._surplus:
            return "the engine sent more than one response"
        unfit = any(not name_of(name).returned for name, _ in trailers)
        return "the engine sent a trailer that is for headers only" if unfit else None

    def _up_to_the_end(self, raw: bytes) -> bytes:
        """Cut off blank lines behind the last chunk, which the parser passes over."""
        if raw.endswith(END_OF_HEAD) and raw[-5:-4] not in (b"", b"\r", b"\n"):
            return raw
        known = self._tail + raw
        stray = len(known) - len(known.rstrip(LINE_ENDS)) - len(END_OF_HEAD)
        if stray > 0:
            self._surplus = True
            return raw[:-stray]
        return raw

    def eof_received(self) -> None:
        if self.call is not None and self.head is not None and self.head.framing is Framing.CLOSE:
            call, self.call = self.call, None
            self._unwatch()
            call.sink.on_data(b"", [], end=True, trailers=[])

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        call, self.call = self.call, None
        self._parser = NO_PARSER
        self._pool.forget(self)
        if call is None:
            return
        if not self.got_byte and self.uses > 1 and self._pool.retry(call):
            return
        failure = Failure.LOST if self.got_byte else Failure.LOST_EARLY
        call.sink.on_failure(failure, f"the engine closed the connection ({exc or 'end of file'})")

    def _release(self, call: UpstreamCall) -> None:
        """The response is complete: give the connection back, or close it where it cannot serve another call."""
        self._unwatch()
        self.call = None
        reusable = (
            not self._surplus
            and not call.head_only
            and self._persistent
            and not self.transport.is_closing()
            and self.transport.get_write_buffer_size() == 0
        )
        self.resume()
        self._reset()
        if reusable:
            self._pool.release(self)
        else:
            self.transport.abort()

    def _fail(self, failure: Failure, detail: str) -> None:
        call, self.call = self.call, None
        self._unwatch()
        self.transport.abort()
        if call is not None:
            call.sink.on_failure(failure, detail)

    # time limits

    def _watch(self, limit: float) -> None:
        """Watch over silence of ``limit`` seconds; 0: no limit. One timer, set anew only when it fires."""
        if limit:
            self._last_read = self._pool.loop.time()
            self._timer = self._pool.loop.call_later(limit, self._check_silence, limit)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_silence(self, limit: float) -> None:
        silent = self._pool.loop.time() - self._last_read
        if self._paused or silent < limit:
            left = limit if self._paused else limit - silent
            self._timer = self._pool.loop.call_later(left, self._check_silence, limit)
            return
        self._timer = None
        self._fail(Failure.TIMEOUT, f"the engine sent nothing for {limit:g} s")

    # the parser's side

    def on_message_begin(self) -> None:
        if self._complete:
            self._surplus = True
            return
        self.headers = []
        self._reason = b""

    def on_status(self, reason: bytes) -> None:
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._complete:
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._complete:
            return
        self._heads_seen += 1
        status = self._parser.get_status_code()
        values = {name_of(name).lower: value for name, value in self.headers}
        if status < 100 or not self._speaks_our_version(values) or not is_clean(self._reason):
            raise ValueError(status)
        head = ResponseHead(status, self._reason, self.headers, values, self._framing(status, values))
        self.headers = []
        call = self.call
        if status >= 200:
            self.head = head
            self._fresh_head = True
            self._complete = call is not None and call.head_only
            is_clear = head.framing is not Framing.NONE or b"transfer-encoding" not in values
            self._persistent = is_clear and self._parser.should_keep_alive()
        elif status not in (100, 101) and call is not None:
            call.sink.on_informational(head)

    def on_body(self, data: bytes) -> None:
        if not self._complete:
            self._pieces.append(data)

    def on_message_complete(self) -> None:
        if self.head is not None:
            self._complete = True

    def _speaks_our_version(self, values: dict[bytes, bytes]) -> bool:
        if b"connection" not in values and self._parser.should_keep_alive():
            return True  # only 1.1 keeps a connection without a word; the version is made as text, which takes longer
        return self._parser.get_http_version() in VERSIONS

    def _framing(self, status: int, values: dict[bytes, bytes]) -> Framing:
        if status < 200 or status in (204, 304) or (self.call is not None and self.call.head_only):
            return Framing.NONE
        coding = values.get(b"transfer-encoding")
        if coding is None:
            return Framing.LENGTH if b"content-length" in values else Framing.CLOSE
        codings = occurrences(self.headers, b"transfer-encoding")
        if codings > 1 or coding.strip().lower() != b"chunked":
            raise ValueError(coding)
        return Framing.CHUNKED


def chunk_of(data: bytes) -> bytes:
    """Return what is in the one chunk that ``data`` is, written as everybody writes it; empty where it is none."""
    opening = OPENINGS[len(data)] if len(data) < len(OPENINGS) else b""
    start = len(opening)
    if not start or data[:start] != opening or data[-2:] != LINE_ENDS:
        return b""
    return data[start:-2]


def are_chunks(data: bytes) -> bool:
    """Tell whether ``data`` is whole chunks and nothing else; none at all is, too, and the last one is not."""
    position = 0
    while position < len(data):
        end = data.find(LINE_ENDS, position, position + MAX_SIZE_DIGITS + len(LINE_ENDS))
        digits = data[position:end] if end > position else b""
        if not digits or digits.translate(None, HEX_DIGITS):
            return False
        size = int(digits, 16)
        position = end + size + 2 * len(LINE_ENDS)
        if not size or data[position - len(LINE_ENDS) : position] != LINE_ENDS:
            return False
    return True


def _openings(most: int) -> list[bytes]:
    """Return by the length of a whole chunk how it begins; empty where no chunk has that length."""
    found = [b""] * most
    for size in range(1, most):
        opening = b"%x\r\n" % size
        whole = len(opening) + size + len(LINE_ENDS)
        if whole < most:
            found[whole] = opening
    return found


OPENINGS: Final = _openings(1 << 10)


def is_clean(reason: bytes) -> bool:
    """Tell whether a reason phrase can stand in a status line: the parser lets anything but a line's end pass."""
    return reason == b"OK" or reason.translate(None, CONTROLS) == reason
