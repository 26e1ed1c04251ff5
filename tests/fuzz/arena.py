"""Plays cases against real proxies on real sockets and judges what comes out at both ends.

Each lane has a proxy and an engine of its own, so that what is left over belongs to the case just played.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from socket import SO_LINGER, SOL_SOCKET
from typing import Any, Self, cast

import h11

from concur_proxy.core.gate import GatePolicy
from concur_proxy.gateway.handler import HandlerSettings
from tests.fuzz import judges
from tests.fuzz.grammar import Case
from tests.gateway.harness import Proxy

QUIET_S = 0.05
"""Nothing more is expected of a proxy that says nothing for so long, while no answer is due."""
PATIENCE_S = 10.0
LIMIT = 64 << 10
PLAIN = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nok"
HOLDING = b"POST /v1/chat/completions HTTP/1.1\r\nHost: p\r\nX-Holds: 1\r\nContent-Length: 2\r\n\r\n{}"
HEARTBEAT_S = 0.004
GOOD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: p\r\nContent-Length: 13\r\n\r\n" + b'{"model":"m"}'

ONLY_STRICTER = (
    "no request line received",  # blank lines before a request, which RFC 9112 asks servers to pass over
    "Receive buffer too long",
    "Too many 100",
)
"""Reasons of h11 to refuse that are no ambiguity."""


def is_only_stricter(case: Case, sent: judges.Reading) -> bool:
    """Tell whether h11 refuses something that RFC 9112 lets servers pass over."""
    spaces = sent.error.startswith("illegal request line") and b"  " in b"".join(case.request)
    return spaces or sent.error.startswith(ONLY_STRICTER)


def may_linger(case: Case, status: int) -> bool:
    """Tell whether the rest of a request is read and dropped behind an early answer, so that nobody gets a reset."""
    return status == 413 or b"xpect" in b"".join(case.request).lower()


def is_good(raw: bytes) -> bool:
    """Tell whether these are a plain request for the inference lane, after which the connection goes on."""
    sent = judges.requests_in(raw)
    if (
        sent.error
        or sent.incomplete
        or len(sent.requests) != 1
        or b"\r\n " in raw
        or raw.lower().count(b"\ncontent-length:") > 1  # which we refuse, however alike they are
        or not raw.partition(b"\r\n")[0].endswith(b" HTTP/1.1")
    ):
        return False
    (request,) = sent.requests
    named = {name for name, _ in request.headers}
    is_chat = request.method == b"POST" and request.target == b"/v1/chat/completions"
    return (
        is_chat
        and len(request.body) < LIMIT
        and not named & {b"connection", b"upgrade", b"expect", b"transfer-encoding"}
    )


class Finding(AssertionError):  # noqa: N818 - not an error of the code that raises it
    """Something that must not happen."""


class EngineConnection(asyncio.Protocol):
    """Reads strictly what the proxy forwards; answers as the case says."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._case = lane.case
        self._reader = h11.Connection(h11.SERVER, 4 * judges.LARGEST)
        self._current: judges.Request | None = None
        self._is_clean = True
        self._tasks: set[asyncio.Task[None]] = set()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._lane.open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lane.open.discard(self)

    def data_received(self, data: bytes) -> None:
        self._reader.receive_data(data)
        try:
            self._read()
        except h11.RemoteProtocolError as error:
            self._lane.fault = f"the engine got what is not HTTP: {error}"
            self.transport.abort()

    def _read(self) -> None:
        while (event := self._reader.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            if isinstance(event, h11.Request):
                if not self._is_clean and self._lane.case is self._case:
                    self._lane.fault = "a connection was used again behind an answer that was not clean"
                self._current = judges.Request(event.method, event.target, b"", list(event.headers))
            elif isinstance(event, h11.Data) and self._current is not None:
                self._current.body += event.data
            elif isinstance(event, h11.EndOfMessage) and self._current is not None:
                request, self._current = self._current, None
                self._answer(request)

    def _answer(self, request: judges.Request) -> None:
        if (b"x-holds", b"1") in request.headers:
            return
        self._lane.forwarded.append(request)
        self._reader.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
        self._reader.send(h11.EndOfMessage())
        self._reader.start_next_cycle()
        case = self._lane.case
        if case is None or case.answer is None:
            self.transport.write(PLAIN[:-2] if request.method == b"HEAD" else PLAIN)
            return
        self._case = case
        self._is_clean = self._seems_clean(case.answer, request.method)
        task = asyncio.ensure_future(self._play(case))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _seems_clean(self, pieces: tuple[bytes, ...], method: bytes) -> bool:
        """Tell whether one whole answer has come by the end of a piece: of later ones a proxy cannot know."""
        for end in range(1, len(pieces) + 1):
            told = judges.answers_in(b"".join(pieces[:end]), [method], ended=False)
            if told.error or len(told.found) > 1:
                return False
            if told.found and told.found[0].whole:
                return not told.rest.strip(b"\r\n")
        return False

    async def _play(self, case: Case) -> None:
        for piece in case.answer or ():
            if self.transport.is_closing():
                return
            self.transport.write(piece)
            await asyncio.sleep(0)
        if case.end == "close":
            self.transport.close()
        elif case.end == "reset" and not self.transport.is_closing():
            sock = self.transport.get_extra_info("socket")
            sock.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()


@dataclass
class Outcome:
    """What the client got."""

    raw: bytes = b""
    ended: bool = False
    was_reset: bool = False


@dataclass
class Lane:
    log: Log
    case: Case | None = None
    fault: str = ""
    forwarded: list[judges.Request] = field(default_factory=list)
    open: set[EngineConnection] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    heartbeat_s: float = 0.0

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._engine = await loop.create_server(lambda: EngineConnection(self), "127.0.0.1", 0)
        port = self._engine.sockets[0].getsockname()[1]
        self._proxy: Any = Proxy(
            (f"http://127.0.0.1:{port}",),
            window=1,
            settings=HandlerSettings(max_body_bytes=LIMIT, extra_paths=("/extra",), heartbeat_s=self.heartbeat_s),
            policy=GatePolicy(lease_min_s=0.01, lease_max_s=0.02),
        )
        await self._proxy.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._proxy.__aexit__(None, None, None)
        self._engine.close()
        for connection in list(self.open):
            connection.transport.abort()

    async def play(self, case: Case) -> None:
        """Play one case and judge it; raise ``Finding``."""
        self.case, self.fault, self.forwarded = case, "", []
        sent = judges.requests_in(b"".join(case.request))
        async with contextlib.AsyncExitStack() as stack:
            if case.is_held:
                await stack.enter_async_context(self._place_taken())
            got = await self._talk(case, sent)
        forwarded = self.forwarded
        await self._leave_nothing()
        self._judge(case, sent, got, forwarded)
        self.case = None
        await self._serve_a_good_one()
        if self.log.faults:
            raise Finding(f"logged: {self.log.faults.pop(0)}")

    @contextlib.asynccontextmanager
    async def _place_taken(self) -> AsyncIterator[None]:
        """Have another client take the only place, and leave once the gate holds somebody or a moment is over."""
        _, writer = await asyncio.open_connection("127.0.0.1", self._proxy.port)
        writer.write(HOLDING)
        async with asyncio.timeout(PATIENCE_S):
            while not self._proxy.dispatcher.snapshot().running:
                await asyncio.sleep(0)
        leaving = asyncio.get_running_loop().call_later(3 * HEARTBEAT_S, writer.transport.abort)
        try:
            yield
        finally:
            leaving.cancel()
            writer.transport.abort()

    async def _talk(self, case: Case, sent: judges.Reading) -> Outcome:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._proxy.port, limit=1 << 22)
        if not case.is_held and is_good(case.before):
            await self._introduce(case, reader, writer)
        out = Outcome()
        reading = asyncio.ensure_future(self._read(reader, out, case, sent))
        try:
            for piece in case.request:
                if writer.transport.is_closing():
                    break
                writer.write(piece)
                await asyncio.sleep(0)
            if case.leaves:
                for _ in range(len(case.request[0]) % 7 if case.request else 0):
                    await asyncio.sleep(0)
            else:
                await reading
        except ConnectionError:
            await reading
        finally:
            reading.cancel()
            writer.transport.abort()
            with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                await reading
        return out

    async def _introduce(self, case: Case, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Have the good request of a case answered until its head is known on this connection."""
        self.case = None
        for _ in range(3):
            writer.write(case.before)
            async with asyncio.timeout(PATIENCE_S):
                head = await reader.readuntil(b"\r\n\r\n")
                if not head.startswith(b"HTTP/1.1 200 ") or b"content-length: 2\r\n" not in head:
                    raise Finding(f"a good request was not served before: {head!r}")
                await reader.readexactly(2)
        self.case, self.forwarded = case, []

    async def _read(self, reader: asyncio.StreamReader, out: Outcome, case: Case, sent: judges.Reading) -> None:
        patience = self._patience(b"", case, sent)
        while True:
            try:
                async with asyncio.timeout(patience):
                    data = await reader.read(1 << 16)
            except TimeoutError:
                return
            except ConnectionError:
                out.ended = out.was_reset = True
                return
            if not data:
                out.ended = True
                return
            out.raw += data
            patience = self._patience(out.raw, case, sent)
            if not patience:
                return

    def _patience(self, raw: bytes, case: Case, sent: judges.Reading) -> float:
        """Tell how long to wait for more: not at all where all that is due is there."""
        told = judges.answers_in(raw, [request.method for request in sent.requests], ended=False)
        whole = [answer for answer in told.found if answer.whole]
        if whole and whole[-1].value(b"connection") == b"close":
            return QUIET_S if may_linger(case, whole[-1].status) else PATIENCE_S
        if len(whole) < len(sent.requests):
            return PATIENCE_S if case.answer is None else QUIET_S
        return QUIET_S if sent.error or sent.incomplete or len(whole) < len(told.found) else 0.0

    async def _leave_nothing(self) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not (self._proxy.idle() and not self._proxy.state.connections):
                    await asyncio.sleep(0.001)
        except TimeoutError:
            snapshot = self._proxy.dispatcher.snapshot()
            raise Finding(f"something is left: {snapshot}, {len(self._proxy.state.connections)} connections") from None

    async def _serve_a_good_one(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._proxy.port)
        try:
            writer.write(GOOD)
            async with asyncio.timeout(PATIENCE_S):
                head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200 "):
                raise Finding(f"a good request was not served afterwards: {head!r}")
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError) as error:
            raise Finding(f"a good request was not served afterwards: {error!r}") from None
        finally:
            writer.transport.abort()
        await self._leave_nothing()

    # the judgement

    def _judge(self, case: Case, sent: judges.Reading, got: Outcome, forwarded: list[judges.Request]) -> None:
        if self.fault:
            raise Finding(self.fault)
        if not is_only_stricter(case, sent) and not judges.is_ordered_part(forwarded, sent.requests):
            raise Finding(f"forwarded what a strict reader does not find ({sent.error or 'no error'}): {forwarded}")
        methods = [request.method for request in sent.requests]
        told = judges.answers_in(got.raw, methods, ended=got.ended and not got.was_reset)
        for answer in told.found:
            self.counts[str(answer.status)] += 1
        if case.leaves:
            return
        last = told.found[-1] if told.found else None
        knows_methods = b"HEAD" not in b"".join(case.request)
        if knows_methods and case.answer is None:
            self._judge_own_answers(told, got)
            too_large = sum(map(len, case.request)) > LIMIT
            closes = last is not None and (got.ended or last.value(b"connection") == b"close")
            if len(told.found) < len(sent.requests) and not closes and not too_large:
                raise Finding(f"{len(told.found)} answers to {len(sent.requests)} requests")
        if (
            last is not None
            and last.whole
            and last.value(b"connection") == b"close"
            and not may_linger(case, last.status)
        ):
            if not got.ended:
                raise Finding(f"said it would close and did not: {last}")
            if told.rest and knows_methods:
                raise Finding(f"bytes behind the last answer: {told.rest!r}")
        has_signs_of_life = case.is_held and self.heartbeat_s > 0
        if case.answer is not None and forwarded and told.found and knows_methods and not has_signs_of_life:
            self._judge_passed_answer(case, forwarded[0].method, told.found[0])

    def _judge_own_answers(self, told: judges.Answers, got: Outcome) -> None:
        """The engine is healthy: every answer is whole."""
        if told.error:
            raise Finding(f"the client got what is not HTTP: {told.error}: {got.raw[-300:]!r}")
        if any(not answer.whole for answer in told.found):
            raise Finding(f"an answer came in part: {got.raw[-300:]!r}")
        if any(answer.status >= 500 and answer.status != 501 for answer in told.found):
            raise Finding(f"a healthy engine, and yet: {told.found}")

    def _judge_passed_answer(self, case: Case, method: bytes, first: judges.Answer) -> None:
        """What arrived whole is what a strict reader finds in the engine's bytes."""
        if not first.whole or first.value(b"x-concur-backend") == b"" or b'"error"' in first.body:
            return
        ends = case.end != "keep"
        meant = judges.answers_in(b"".join(case.answer or ()), [method], ended=ends)
        if first.status in (204, 304):  # without a body whatever its headers say
            return
        if not meant.found or not (meant.found[0].whole or case.end == "reset"):
            raise Finding(f"delivered what a strict reader refuses ({meant.error}): {first}")
        if first.status != meant.found[0].status:
            raise Finding(f"delivered another status: {first} for {meant.found[0]}")
        if first.body != meant.found[0].body and b'"usage"' not in meant.found[0].body:
            raise Finding(f"delivered another body: {first} for {meant.found[0]}")


class Log(logging.Handler):
    """Whatever is logged as a warning or worse is a finding."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.setFormatter(logging.Formatter())
        self.faults: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.faults.append(self.format(record))


@contextlib.contextmanager
def listening() -> Any:
    """Collect what is logged."""
    log, root = Log(), logging.getLogger()
    root.addHandler(log)
    try:
        yield log
    finally:
        root.removeHandler(log)
