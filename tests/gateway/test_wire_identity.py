"""Invariant 8 on the wire: what arrives is what was sent, however it is framed, cut, merged and delayed on its way.

Both ends know only HTTP. Each example is one client connection with some requests, sent one after the other or at once,
and what an engine answers; both byte streams are cut at drawn places, and each piece waits for some turns of the loop.
The second half of the file breaks the relay on purpose and wants the law to notice.
"""

import asyncio
import gzip
import itertools
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from concur_proxy.core.sse import UsageEventCutter
from concur_proxy.gateway import headers as lines
from concur_proxy.gateway import relay, turn
from concur_proxy.gateway.connection import UpstreamConnection
from concur_proxy.gateway.exchange import Exchange
from concur_proxy.gateway.handler import HandlerSettings
from concur_proxy.gateway.relay import Relay
from tests.core.answers import USAGE_CHUNK, chunk, done, event
from tests.gateway.harness import Engine, Proxy, read_head, run, until

OURS = {b"x-request-id", b"x-concur-session", b"x-concur-backend", b"x-concur-queued-ms"}
ADDED = {b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host", b"x-request-id", b"traceparent"}
FRAMING = {b"content-length", b"transfer-encoding"}
THIS_HOP = {b"connection", b"keep-alive", b"te", b"x-private", b"expect", b"host"}
INSERTED = b'"stream_options":{"include_usage":true},'
SETTINGS = HandlerSettings(extra_paths=("/extra/*",))


@dataclass
class Sent:
    """One request and its answer, as they are sent, with what must arrive."""

    head: bytes
    body: bytes
    headers: list
    """Those of the request that must arrive, in order."""
    answer: bytes
    answer_head: bytes
    answer_headers: list
    answer_body: bytes
    informational: list
    in_chunks: bool = False
    answer_in_chunks: bool = False
    raw_chunks: bytes | None = None
    """The answer's body in its framing, where nothing may touch that."""
    trailers: list = field(default_factory=list)
    closes: bool = False
    """The answer ends with the engine's connection."""
    head_only: bool = False
    expects: bool = False
    is_old: bool = False
    inserted: bool = False


def pieces_of(data, cuts):
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    return [data[start:end] for start, end in itertools.pairwise(places)]


def raw_lines(headers):
    return b"".join(b"%b:%b%b\r\n" % (name, space, value) for name, space, value in headers)


def kept(headers, *dropped):
    return [(name, value) for name, _, value in headers if name.lower() not in THIS_HOP.union(*dropped)]


NAMES = st.sampled_from(
    [b"X-A", b"x-a", b"Set-Cookie", b"X-Latin", b"Authorization", b"accept", b"Cache-Control", b"X-Concurrent", b"Via"]
)
VALUES = st.sampled_from([b"", b"1", b"a, b", b'"q\t;"', b"caf\xe9", "日本".encode(), b"Bearer " + b"k" * 80, b"a:b"])
HOPS = st.sampled_from([(b"Connection", b"keep-alive, X-Private"), (b"Keep-Alive", b"timeout=5"), (b"TE", b"trailers")])
HEADERS = st.lists(
    st.one_of(
        st.tuples(NAMES, st.sampled_from([b" ", b"", b"\t ", b"  "]), VALUES),
        HOPS.map(lambda hop: (hop[0], b" ", hop[1])),
    ),
    max_size=5,
).map(
    lambda drawn: [*drawn, (b"X-Private", b" ", b"p")] if any(name == b"Connection" for name, _, _ in drawn) else drawn
)
TRAILER = st.tuples(st.sampled_from([b"X-Sum", b"x-sum", b"Server-Timing"]), VALUES)
TRAILERS = st.one_of(st.just([]), st.lists(TRAILER, min_size=1, max_size=3))
BINARY = st.one_of(
    st.binary(max_size=200),
    st.binary(min_size=1, max_size=40).map(lambda some: some * 500),
    st.sampled_from(
        [b"\r\n", b"0\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n", b"5\r\nhello\r\n0\r\n\r\n", b"data: x\n\n" * 3]
    ),
)
EXTENSIONS = st.sampled_from([b"", b";a", b";a=b", b';a="b c";d=e', b";" + b"x" * 300])
WHAT = [*["stream"] * 4, *["plain"] * 2, "form", "packed", "get", "head", "delete"]
FRAMINGS = [*["chunks"] * 4, "length", "length", "close", "204", "304"]
EVENTS = [*["usage"] * 3, "text", "tools", "ping", "named", "null usage", "error"]
STATUSES = [*[b"200 OK"] * 4, b"201", b"400 Caf\xe9", b"404 Not Found", b"500 "]
HINTS = [(b"100 Continue", []), (b"103 Early Hints", [(b"Link", b" ", b"<a>")])]
FORM = b'--B\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n%b\r\n--B--\r\n'
CUTS = st.lists(st.integers(0, 6000), max_size=12)


@st.composite
def in_chunks(draw, body, trailers, *, small=False):
    """Draw the framing of a body in chunks."""
    pieces = [piece for piece in pieces_of(body, draw(CUTS) if not small else range(0, len(body), 3)) if piece]
    size = draw(st.sampled_from([b"%x", b"%X", b"000%x"]))
    framed = [b"%b%b\r\n%b\r\n" % (size % len(piece), draw(EXTENSIONS), piece) for piece in pieces]
    last = draw(st.sampled_from([b"0", b"000"])) + draw(EXTENSIONS)
    return b"".join(framed) + last + b"\r\n" + b"".join(b"%b: %b\r\n" % trailer for trailer in trailers) + b"\r\n"


@st.composite
def events(draw):
    """Draw a stream of events; return it as sent and without the usage events."""
    out, without = [], []
    for _ in range(draw(st.integers(1, 5))):
        end = draw(st.sampled_from(["\n", "\r\n"]))
        what = draw(st.sampled_from(EVENTS))
        raw = {
            "text": event(chunk({"content": draw(st.text(max_size=8))}), end=end),
            "tools": event(chunk({"tool_calls": [{"index": 0, "arguments": "{\u00e9"}], "reasoning": "r"}), end=end),
            "ping": f": ping{end}{end}".encode(),
            "named": event("\U0001f600", name="x", end=end),
            "usage": event(USAGE_CHUNK, end=end),
            "null usage": event(chunk({"content": "a"}, usage=None), end=end),
            "error": event({"error": {"message": "no"}}, end=end),
        }[what]
        out.append(raw)
        without.append(b"" if what == "usage" else raw)
    ending = draw(st.sampled_from([done(), done("\r\n"), b"", b"data: half"]))
    return b"".join(out) + ending, b"".join(without) + ending


@st.composite
def requests(draw, *, is_last):
    """Draw the request half: (head, wire body, body, headers that arrive, flags)."""
    what = draw(st.sampled_from(WHAT))
    extra = draw(HEADERS)
    path = {"form": b"/v1/audio/transcriptions?a=b%20c", "get": b"/v1/responses/r?x[]=1&y", "head": b"/extra/thing"}
    method = {"get": b"GET", "head": b"HEAD", "delete": b"DELETE"}.get(what, b"POST")
    body = {
        "plain": draw(BINARY),
        "stream": b'{"stream":true,"model":"m","messages":[]}',
        "form": FORM % draw(BINARY),
        "packed": gzip.compress(draw(BINARY), mtime=0),
    }.get(what, b"")
    extra += {
        "form": [(b"Content-Type", b" ", b"multipart/form-data; boundary=B")],
        "packed": [(b"Content-Encoding", b" ", b"gzip")],
        "stream": [(b"Content-Type", b"", b"application/json")],
    }.get(what, [])
    is_old = is_last and draw(st.booleans())
    framed = body and not is_old and draw(st.booleans())
    expects = bool(body) and not is_old and draw(st.booleans())
    wire = draw(in_chunks(body, draw(TRAILERS))) if framed else body
    framing = [(b"Transfer-Encoding", b" ", b"chunked")] if framed else [(b"Content-Length", b" ", b"%d" % len(body))]
    if method != b"POST" and not body:
        framing = []
    if expects:
        framing.append((b"Expect", b" ", b"100-continue"))
    target = path.get(what, b"/v1/responses/r" if what == "delete" else b"/v1/chat/completions")
    all_headers = draw(st.permutations([(b"Host", b" ", b"proxy.test"), *framing, *extra]))
    head = b"%b %b HTTP/1.%d\r\n" % (method, target, not is_old) + raw_lines(all_headers) + b"\r\n"
    dropped = {b"accept-encoding"} if what == "stream" else set()
    return what, head, wire, body, kept(all_headers, FRAMING, dropped), framed, expects, is_old


@st.composite
def sent(draw, *, is_last=False):
    what, head, wire, body, arriving, framed, expects, is_old = draw(requests(is_last=is_last))
    stream = what == "stream" and draw(st.sampled_from([True, True, True, False]))
    content, arrives = draw(events()) if stream else (draw(BINARY),) * 2
    extra = draw(HEADERS)
    extra.append((b"Content-Type", b" ", b"text/event-stream" if stream else b"text/plain"))
    if not stream and draw(st.booleans()):
        content = arrives = gzip.compress(content, mtime=0)
        extra.append((b"Content-Encoding", b" ", b"gzip"))
    framing = draw(st.sampled_from(FRAMINGS))
    status = {"204": b"204 No Content", "304": b"304 Not Modified"}.get(framing) or draw(st.sampled_from(STATUSES))
    if status[:1] not in b"2":  # errors pass as they are
        arrives = content
    trailers, raw = [], content
    if framing in ("204", "304"):
        raw = content = arrives = b""
        if framing == "304":
            extra.append((b"Content-Length", b" ", b"7"))
    elif framing == "length":
        extra.append((b"Content-Length", b" ", b"%d" % len(content)))
    elif framing == "chunks":
        trailers = draw(TRAILERS)
        raw = draw(in_chunks(content, trailers, small=draw(st.booleans())))
        extra.append((b"Transfer-Encoding", b" ", b"chunked"))
    if what == "head":
        raw = content = arrives = b""
    extra = draw(st.permutations(extra))
    hints = draw(st.lists(st.sampled_from(HINTS), max_size=2))
    first = b"".join(b"HTTP/1.1 %b\r\n%b\r\n" % (line, raw_lines(headers)) for line, headers in hints)
    answer_head = b"HTTP/1.1 %b\r\n%b\r\n" % (status, raw_lines(extra))
    bodiless = framing in ("204", "304") or what == "head"
    taken_out = stream and status[:1] == b"2" and not bodiless
    return Sent(
        head=head,
        body=body,
        headers=arriving,
        answer=first + answer_head + raw,
        answer_head=b"HTTP/1.1 " + (status if b" " in status else status + b" "),
        answer_headers=kept(extra, FRAMING),
        answer_body=arrives,
        informational=[kept(headers) for line, headers in hints if not is_old and line[:3] == b"103"],
        in_chunks=bool(framed),
        answer_in_chunks=framing == "chunks",
        raw_chunks=raw if framing == "chunks" and not (taken_out or bodiless or is_old) else None,
        trailers=trailers if framing == "chunks" and not (bodiless or is_old) else [],
        closes=framing == "close" and not bodiless,
        head_only=what == "head",
        expects=expects,
        is_old=is_old,
        inserted=what == "stream",
    ), wire


@st.composite
def conversations(draw):
    count = draw(st.integers(1, 4))
    turns = [draw(sent(is_last=number == count - 1)) for number in range(count)]
    delays = st.lists(st.integers(0, 3), min_size=1, max_size=6)
    at_once = draw(st.booleans())
    return turns, at_once, draw(CUTS), draw(delays), [(draw(CUTS), draw(delays)) for _ in turns]


async def trickle(send, data, cuts, delays):
    """Send data in pieces, each after some turns of the loop."""
    for piece, delay in zip(pieces_of(data, cuts), itertools.cycle(delays), strict=False):
        await send(piece)
        for _ in range(delay):
            await asyncio.sleep(0)


async def read_chunks(reader):
    """Return (as it came, body, trailers)."""
    raw, body, trailers = b"", b"", []
    while True:
        line = await reader.readuntil(b"\r\n")
        size = int(line.partition(b";")[0], 16)
        piece = await reader.readexactly(size + 2) if size else b""
        assert piece[size:] in (b"\r\n", b"")
        raw, body = raw + line + piece, body + piece[:size]
        if not size:
            break
    while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
        trailers.append(tuple(line[:-2].split(b": ", 1)))
        raw += line
    return raw + line, body, trailers


async def has_arrived_at_client(reader, one):
    hints = []
    while True:
        line, headers = await read_head(reader)
        if line == b"HTTP/1.1 100 Continue":
            assert one.expects
        elif line == b"HTTP/1.1 103 Early Hints":
            hints.append(headers)
        else:
            break
    assert hints == one.informational
    assert line == one.answer_head
    framing = [(name.lower(), value) for name, value in headers if name.lower() in FRAMING]
    assert [pair for pair in headers if pair[0].lower() not in OURS | FRAMING | {b"connection"}] == one.answer_headers
    assert {name for name, _ in headers if name in OURS} >= {b"x-request-id", b"x-concur-backend"}
    if (b"transfer-encoding", b"chunked") in framing:
        assert len(framing) == 1
        raw, body, trailers = await read_chunks(reader)
        assert trailers == one.trailers
        assert one.raw_chunks in (None, raw)
    elif one.head_only or line[9:12] in (b"204", b"304"):
        body = b""
    elif framing:
        ((_, length),) = framing
        body = await reader.readexactly(int(length))
    else:
        assert one.is_old
        body = await reader.read()
    assert body == one.answer_body


def has_arrived_at_engine(seen, one):
    assert seen.line == one.head.partition(b"\r\n")[0].replace(b"HTTP/1.0", b"HTTP/1.1")
    ignored = FRAMING | ADDED | {b"host", b"accept-encoding"}
    assert [pair for pair in seen.headers if pair[0].lower() not in ignored] == one.headers
    assert seen.values(b"transfer-encoding") == []
    assert seen.values(b"host") != [b"proxy.test"]
    assert all(seen.values(name) for name in ADDED - {b"traceparent"})
    assert seen.body == (b"{" + INSERTED + one.body[1:] if one.inserted else one.body)


def converse(conversation, patience_s=10, loop="uvloop"):
    turns, at_once, cuts, delays, down = conversation
    faults = []

    async def script(seen, wire):
        number = len(engine.seen) - 1
        one, _ = turns[number]
        try:
            has_arrived_at_engine(seen, one)
        except AssertionError as fault:
            faults.append(fault)
        await trickle(wire.send, one.answer, *down[number])
        return not one.closes

    async def talk(client):
        wires = [one.head + wire for one, wire in turns]
        async with asyncio.timeout(patience_s), asyncio.TaskGroup() as group:
            if at_once:
                group.create_task(trickle(client.send, b"".join(wires), cuts, delays))
            for wire, (one, _) in zip(wires, turns, strict=True):
                if not at_once:
                    group.create_task(trickle(client.send, wire, cuts, delays))
                await has_arrived_at_client(client.reader, one)
        if turns[-1][0].is_old:
            assert await client.at_end()

    async def main():
        nonlocal engine
        async with Engine(script) as engine, Proxy((engine,), settings=SETTINGS) as proxy:
            client = await proxy.client()
            try:
                await talk(client)
            finally:
                await client.close()
            if faults:
                raise faults[0]
            assert len(engine.seen) == len(turns)
            await until(proxy.idle)

    engine = None
    run(main(), loop)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(conversation=conversations())
def test_what_arrives_is_what_was_sent(conversation, loop):
    converse(conversation, loop=loop)


# the law notices


def short(pieces):
    return b"".join(pieces)[:-1]


def without_duplicates(original):
    return lambda head, **kwargs: list(dict.fromkeys(original(head, **kwargs)))


def in_lower_case(original):
    return lambda headers, *args, **kwargs: original([(n.lower(), v) for n, v in headers], *args, **kwargs)


def backwards(self):
    self.complete = True
    self.body = b"".join(reversed(self._pieces))
    self._pieces = []


def only_the_last(self, data):
    self.size += len(data)
    self._pieces[:] = [data]


def decoded(original):
    return lambda self, head, **_: original(self, head, whole=True)


def late(original):
    """Lose what comes with the head."""
    return lambda self, data: original(self, data) and b""


def without_trailers(original):
    return lambda self, raw, pieces, *, end, trailers: original(self, raw, pieces, end=end, trailers=[])


def one_too_many(original):
    return lambda self, raw: original(self, raw) + b"\r\n"


BROKEN = {
    "bodies lose their last byte": (relay, "one", lambda _: short),
    "chunks lose their last byte": (lines, "chunk", lambda chunk: lambda data: chunk(data[:-1])),
    "the last chunk is missing": (lines, "last_chunk", lambda _: lambda _trailers: b""),
    "trailers are lost": (Relay, "pass_on", without_trailers),
    "raw chunks are framed anew": (Relay, "_choose", decoded),
    "what comes with the head is lost": (UpstreamConnection, "_feed_head", late),
    "a blank line more": (UpstreamConnection, "_up_to_the_end", one_too_many),
    "the usage event stays": (UsageEventCutter, "feed", lambda _: lambda _self, data: data),
    "hints are lost": (Relay, "on_informational", lambda _: lambda _self, _head: None),
    "headers lose their case": (turn, "request_lines", in_lower_case),
    "answers lose duplicates": (lines, "response_lines", without_duplicates),
    "bodies arrive in the wrong order": (Exchange, "close_body", lambda _: backwards),
    "bodies arrive in part": (Exchange, "feed", lambda _: only_the_last),
    "hop-by-hop headers pass": (lines, "nominated", lambda _: lambda _headers: set()),
}


@pytest.mark.sources
@pytest.mark.parametrize("name", BROKEN)
def test_the_law_notices_a_broken_relay(name, monkeypatch):
    place, attribute, broken = BROKEN[name]
    monkeypatch.setattr(place, attribute, broken(getattr(place, attribute)))

    @settings(
        max_examples=200,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(conversations())
    def law(conversation):
        converse(conversation, patience_s=0.5)

    with pytest.raises(BaseException) as caught:  # noqa: PT011 - a wrong byte, a wait for a missing one, a wrong frame
        law()
    assert not isinstance(caught.value, KeyboardInterrupt)
