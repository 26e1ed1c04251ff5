"""Readers of answers on their way to the client, without I/O: usage, finish reason, first token, response id.

A reader never changes what passes, with one exception: told to, it takes the usage event out of a stream. It holds no
more than a few kilobytes of any answer.
"""

from __future__ import annotations

from typing import Final, Protocol

from concur_proxy.core.bodyscan import BodyScanner
from concur_proxy.core.sse import UsageEventCutter
from concur_proxy.model import FinishReason, Usage

EVENT_STREAM: Final = "text/event-stream"


class UsageReader(Protocol):
    """Fed with an answer's body, piece by piece."""

    def feed(self, data: bytes) -> bytes:
        """Return what is to be forwarded now; the very object where nothing is taken out."""

    def finish(self) -> bytes:
        """Return what was kept back: the body is complete."""

    @property
    def usage(self) -> Usage | None: ...

    @property
    def finish_reason(self) -> FinishReason | None: ...

    @property
    def saw_token(self) -> bool:
        """Something generated has passed; of streams only, other answers come at once."""

    @property
    def response_id(self) -> str | None:
        """Id that the Responses API gave the answer."""


def reader_for(content_type: str, *, strip_usage_event: bool = False, encoded: bool = False) -> UsageReader:
    """Return the reader for a body. ``encoded``: it is compressed, and passes unread like all that is not JSON or SSE.

    ``strip_usage_event``: take out the event that a stream only has because the proxy asked for it.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if encoded:
        return Unread()
    if kind == EVENT_STREAM:
        return CuttingReader() if strip_usage_event else PassiveReader(streamed=True)
    if kind == "application/json" or kind.endswith("+json"):
        return PassiveReader(streamed=False)
    return Unread()


class Unread:
    """Lets a body pass and knows nothing of it."""

    __slots__ = ()
    usage: Usage | None = None
    finish_reason: FinishReason | None = None
    saw_token = False
    response_id: str | None = None

    def feed(self, data: bytes) -> bytes:
        return data

    def finish(self) -> bytes:
        return b""


class PassiveReader:
    """Looks at a body and leaves it as it is."""

    __slots__ = ("_scanner",)

    def __init__(self, *, streamed: bool) -> None:
        self._scanner = BodyScanner(streamed=streamed)

    def feed(self, data: bytes) -> bytes:
        self._scanner.feed(data)
        return data

    def finish(self) -> bytes:
        return b""

    @property
    def usage(self) -> Usage | None:
        return self._scanner.usage

    @property
    def finish_reason(self) -> FinishReason | None:
        return self._scanner.finish_reason

    @property
    def saw_token(self) -> bool:
        return self._scanner.saw_token

    @property
    def response_id(self) -> str | None:
        return self._scanner.response_id


class CuttingReader(PassiveReader):
    """Reads a stream and takes its usage event out."""

    __slots__ = ("_cutter",)

    def __init__(self) -> None:
        super().__init__(streamed=True)
        self._cutter = UsageEventCutter()

    def feed(self, data: bytes) -> bytes:
        self._scanner.feed(data)
        return self._cutter.feed(data)

    def finish(self) -> bytes:
        return self._cutter.finish()
