"""Second opinions: what h11, a strict parser that shares no code with ours, reads in the same bytes."""

from __future__ import annotations

from dataclasses import dataclass, field

import h11

LARGEST = 1 << 20
INSERTED = b'"stream_options":{"include_usage":true}'


@dataclass
class Request:
    method: bytes
    target: bytes
    body: bytes
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)


@dataclass
class Reading:
    """What was read; ``error``: why reading ended there, empty where it did not."""

    requests: list[Request]
    error: str = ""
    incomplete: bool = False


def requests_in(raw: bytes) -> Reading:
    """Read what a client sends, as a server would that answers everything with an empty 404."""
    connection, found = h11.Connection(h11.SERVER, LARGEST), Reading([])
    if raw:  # to h11 nothing means the end
        connection.receive_data(raw)
    current: Request | None = None
    try:
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Request):
                current = Request(event.method, event.target, b"", list(event.headers))
            elif isinstance(event, h11.Data) and current is not None:
                current.body += event.data
            elif isinstance(event, h11.EndOfMessage) and current is not None:
                found.requests.append(current)
                current = None
                connection.send(h11.Response(status_code=404, headers=[("content-length", "0")]))
                connection.send(h11.EndOfMessage())
                if connection.our_state is h11.MUST_CLOSE or connection.their_state is h11.MUST_CLOSE:
                    return found
                connection.start_next_cycle()
            elif event is h11.NEED_DATA or event is h11.PAUSED:
                found.incomplete = current is not None or bool(connection.trailing_data[0])
                return found
    except h11.RemoteProtocolError as error:
        found.error = str(error)
        return found


@dataclass
class Answer:
    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes = b""
    whole: bool = False

    def value(self, name: bytes) -> bytes:
        return next((value for key, value in self.headers if key == name), b"")


@dataclass
class Answers:
    found: list[Answer]
    error: str = ""
    rest: bytes = b""
    """What follows the last answer."""


def answers_in(raw: bytes, methods: list[bytes], *, ended: bool) -> Answers:
    """Read what a client gets for requests with these methods; ``ended``: the connection has."""
    connection, out = h11.Connection(h11.CLIENT, LARGEST), Answers([])
    if raw:
        connection.receive_data(raw)
    if ended:
        connection.receive_data(b"")
    try:
        for method in [*methods, *[b"GET"] * 64]:
            if not connection.trailing_data[0]:
                return out
            out.rest = b""
            connection.send(h11.Request(method=method, target="/", headers=[("host", "p")]))
            connection.send(h11.EndOfMessage())
            if not _read_one(connection, out):
                return out
            if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
                out.rest = connection.trailing_data[0]
                return out
            connection.start_next_cycle()
            out.rest = connection.trailing_data[0]
    except h11.RemoteProtocolError as error:
        out.error = str(error)
    return out


def _read_one(connection: h11.Connection, out: Answers) -> bool:
    answer: Answer | None = None
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Response):
            answer = Answer(event.status_code, [(name.lower(), value) for name, value in event.headers])
            out.found.append(answer)
        elif isinstance(event, h11.Data) and answer is not None:
            answer.body += event.data
        elif isinstance(event, h11.EndOfMessage) and answer is not None:
            answer.whole = True
            return True
        elif event is h11.NEED_DATA or event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
            return False


def is_ordered_part(forwarded: list[Request], sent: list[Request]) -> bool:
    """Tell whether everything that was forwarded had been sent, in this order; one may come twice, by a retry."""
    position = 0
    for number, request in enumerate(forwarded):
        if number and same(request, forwarded[number - 1]):
            continue
        while position < len(sent) and not same(request, sent[position]):
            position += 1
        if position == len(sent):
            return False
        position += 1
    return True


def same(one: Request, other: Request) -> bool:
    return (one.method, one.target, _plain(one.body)) == (other.method, other.target, _plain(other.body))


def _plain(body: bytes) -> bytes:
    """Take out what the proxy inserts."""
    return body.replace(INSERTED + b",", b"", 1) if INSERTED + b"," in body else body.replace(INSERTED, b"", 1)
