"""One request of a client and the way back for its answer, as the fast lane sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from concur_proxy.auth.caller import Caller
from concur_proxy.errors import ConcurError
from concur_proxy.gateway.headers import HeaderList
from concur_proxy.gateway.paths import Route

if TYPE_CHECKING:
    from concur_proxy.gateway.familiar import FamiliarRequest
    from concur_proxy.gateway.protocol import FastLaneProtocol


class Running(Protocol):
    """Who works on an exchange."""

    def client_gone(self) -> None: ...

    def pause(self) -> None:
        """The client does not keep up."""

    def resume(self) -> None: ...


class _NoEvent:
    """Stands where uvicorn's protocol expects the event that wakes an ASGI application."""

    def set(self) -> None:
        pass


class Exchange:
    """Counts as a cycle of uvicorn's protocol, which looks at the attributes of the second group."""

    __slots__ = (
        "_pieces",
        "_protocol",
        "allow",
        "body",
        "caller",
        "complete",
        "disconnected",
        "error",
        "expects_continue",
        "familiar",
        "headers",
        "http11",
        "keep_alive",
        "lowered",
        "method",
        "path",
        "response_complete",
        "route",
        "size",
        "started",
        "target",
        "turn",
    )
    message_event = _NoEvent()

    def __init__(
        self, protocol: FastLaneProtocol, method: bytes, target: bytes, headers: HeaderList, route: Route | None
    ) -> None:
        self._protocol = protocol
        self._pieces: list[bytes] = []
        self.method = method
        self.target = target
        self.path = target.partition(b"?")[0]
        self.headers = headers
        self.lowered: dict[str, str] = {}
        """Values by lower-case name, for those who only read; of several the last."""
        self.route = route
        self.http11 = True
        self.body = b""
        self.size = 0
        self.complete = False
        """The whole request has been read."""
        self.expects_continue = False
        self.familiar: FamiliarRequest | None = None
        """What has been made of the same head before."""
        self.error: ConcurError | None = None
        """What is wrong with the request itself: nothing of it goes to an engine."""
        self.allow = b""
        self.caller: Caller | None = None
        """Who sends it, where the proxy checks keys."""
        self.turn: Running | None = None

        self.keep_alive = True
        self.disconnected = False
        self.started = False
        self.response_complete = False

    # the way in

    def feed(self, data: bytes) -> None:
        self.size += len(data)
        if self.error is None:
            self._pieces.append(data)

    def doom(self, error: ConcurError) -> None:
        """Answer with ``error`` instead of forwarding; what is left of the request is read and dropped."""
        self.error = error
        self._pieces.clear()

    def close_body(self) -> None:
        """The request is complete."""
        self.complete = True
        pieces = self._pieces
        self.body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._pieces = []

    # the way back

    @property
    def head_only(self) -> bool:
        return self.method == b"HEAD"

    @property
    def peer(self) -> bytes:
        return self._protocol.peer

    @property
    def scheme(self) -> bytes:
        return b"https" if self._protocol.scheme == "https" else b"http"

    @property
    def server_headers(self) -> HeaderList:
        """What the server adds to its own answers: date and name."""
        return self._protocol.server_state.default_headers

    @property
    def write_paused(self) -> bool:
        return self._protocol.is_stalled

    def write(self, data: bytes) -> None:
        self.started = True
        if not self.disconnected:
            self._protocol.wire.write(data)

    def done(self) -> None:
        """The answer is complete: on to the next request, or close."""
        self.response_complete = True
        self.turn = None
        self.body = b""
        self._protocol.exchange_done(self)

    def cut(self, *, hard: bool) -> None:
        """Leave the answer incomplete and close; ``hard`` with a reset, where nothing else shows that it is."""
        self.response_complete = True
        self.keep_alive = False
        self.turn = None
        if hard:
            self._protocol.reset()
        else:
            self._protocol.transport.close()

    def gone(self) -> None:
        """The client's connection is lost."""
        self.disconnected = True
        turn, self.turn = self.turn, None
        if turn is not None:
            turn.client_gone()
