"""Reads of a long conversation what its session's last turn did not bring.

An agent sends with each turn all that was said before. What a body began with the last time is compared, in a tenth of
the time that reading takes; what has come since is read as if it stood in a conversation of its own. That finds what a
reading of the whole finds: a beginning counts only where a reading has shown that it ends behind a message of the
conversation itself.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

import msgspec

from concur_proxy.gateway.skim import TALKS, UNFIT, Body, Message, fields_in, skim, talk_in, telling
from concur_proxy.model import SessionKey

MAX_KEPT_BYTES: Final = 64 << 20
"""Of all beginnings together; the ones that were of no use for longest go."""
GROWTH: Final = 1 << 16
"""Bytes behind a beginning from which on a longer one is kept."""
TAIL: Final = 1 << 17
"""Bytes at the end of a body in which its last message is looked for."""
MOST_TELLING: Final = 512
"""Messages of one beginning that are kept because they open the prompt or may bring media."""
LAST_MESSAGES: Final = (b'},{"role":', b'}, {"role": ')
"""How clients write that a message follows another one."""
SECRET: Final = secrets.token_hex(16)
"""No client can write it: what bears this name stands where it was put."""

TALK: Final = list[Message] | None | msgspec.UnsetType
Rest: Final = msgspec.defstruct(
    "Rest",
    [("continued", list[Message], []), *[(name, TALK, msgspec.UNSET) for name in TALKS]],
    bases=(Body,),
    rename={"continued": SECRET},
)
"""What follows a beginning, whose conversation goes on under a name of our own."""
OPENED: Final = b'{"%b":[{}' % SECRET.encode()
"""Stands for a beginning: a conversation of one message, which does not count."""
MARK: Final = b'"%b"' % SECRET.encode()
CLOSED: Final = b',{"role":%b}]}' % MARK
"""Ends a beginning, with a message that shows where it has ended."""
_read_beginning = msgspec.json.Decoder(Body).decode
_read_rest: Final[Callable[[bytes], Any]] = msgspec.json.Decoder(Rest).decode


class Beginning:
    """Parts of a body that follow each other, up to the end of a message, and what they tell.

    Values are kept as they were written: that takes no memory but the parts.
    """

    __slots__ = ("found", "length", "name", "parts", "talk")

    def __init__(self, part: memoryview, found: Body, name: str, talk: list[Message]) -> None:
        self.parts = [part]
        self.length = len(part)
        self.found = found
        self.name = name
        """Of the conversation that goes on."""
        self.talk = telling(talk)

    def opens(self, body: bytes) -> bool:
        """Tell whether a body begins so."""
        position = 0
        for part in self.parts:
            if not body.startswith(part, position):
                return False
            position += len(part)
        return True

    def go_on(self, part: memoryview, talk: list[Message]) -> None:
        self.talk = telling([*self.talk, *talk])
        self.parts.append(part)
        self.length += len(part)

    def fields(self) -> dict[str, Any]:
        """Return what is there beside the conversation that goes on."""
        fields = fields_in(self.found)
        for name in TALKS:
            talk = getattr(self.found, name)
            if talk is not None and name != self.name:
                fields[name] = talk_in(talk)
        return fields


class Conversations:
    """The beginnings of long bodies, by session. Bounded."""

    __slots__ = ("_beginnings", "_max_bytes", "kept_bytes")

    def __init__(self, max_bytes: int = MAX_KEPT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._beginnings: OrderedDict[SessionKey, Beginning] = OrderedDict()
        self.kept_bytes = 0

    def skim(self, session: SessionKey, body: bytes) -> dict[str, Any] | None:
        """Return what ``skim`` returns."""
        beginning = self._beginnings.pop(session, None)
        if beginning is not None:
            self.kept_bytes -= beginning.length
        if beginning is None or not beginning.opens(body):
            beginning = _first(body)
        elif len(body) - beginning.length > GROWTH:
            _read_on(beginning, body)
        fields = _with_rest(beginning, body) if beginning is not None else None
        if beginning is None or fields is None:
            return skim(body)
        self._keep(session, beginning)
        return fields

    def _keep(self, session: SessionKey, beginning: Beginning) -> None:
        if len(beginning.talk) > MOST_TELLING:
            return
        self._beginnings[session] = beginning
        self.kept_bytes += beginning.length
        while self.kept_bytes > self._max_bytes:
            _, oldest = self._beginnings.popitem(last=False)
            self.kept_bytes -= oldest.length


def _first(body: bytes) -> Beginning | None:
    """Read all but the last message and what follows it; None where that is not most of the body, or cannot be."""
    end = _last_message(body, len(body) // 2)
    if end < 0:
        return None
    closed = b"".join((memoryview(body)[:end], CLOSED))
    try:
        found = _read_beginning(closed)
        for name in TALKS:
            talk: list[Message] | None = getattr(found, name)
            if talk and _is_mark(talk[-1]):
                setattr(found, name, None)
                return Beginning(memoryview(closed)[:end], found, name, talk[:-1])
    except UNFIT:
        pass
    return None


def _read_on(beginning: Beginning, body: bytes) -> None:
    """Read up to the last message, where there is one more and that can be."""
    start = beginning.length
    end = _last_message(body, start)
    if end < 0:
        return
    closed = b"".join((OPENED, memoryview(body)[start:end], CLOSED))
    try:
        talk: list[Message] = _read_rest(closed).continued
        if _is_mark(talk[-1]):
            beginning.go_on(memoryview(closed)[len(OPENED) : len(closed) - len(CLOSED)], talk[1:-1])
    except UNFIT:
        return


def _with_rest(beginning: Beginning, body: bytes) -> dict[str, Any] | None:
    """Return the fields of a body that begins so; None where the rest has to be read together with its beginning."""
    try:
        found = _read_rest(b"".join((OPENED, memoryview(body)[beginning.length :])))
        if any(getattr(found, name) is not msgspec.UNSET for name in TALKS):
            return None  # it comes twice, and the last one counts
        fields = beginning.fields()
        fields.update(fields_in(found))
        fields[beginning.name] = talk_in([*beginning.talk, *found.continued[1:]])
    except UNFIT:
        return None
    return fields


def _last_message(body: bytes, start: int) -> int:
    """Return where the message before the last one ends, as far as that can be told by looking; -1: nowhere."""
    start = max(start, len(body) - TAIL)
    return max(body.rfind(each, start) for each in LAST_MESSAGES) + 1 or -1


def _is_mark(message: Message) -> bool:
    return bool(memoryview(message.role) == MARK)
