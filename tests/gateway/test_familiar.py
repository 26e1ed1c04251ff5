"""Heads that come again pass by the parser, and nothing else about them may change."""

import asyncio
import string

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from concur_proxy.gateway import protocol, upstream
from concur_proxy.gateway.connection import UpstreamConnection
from concur_proxy.gateway.familiar import NO_FIT, mould_of
from concur_proxy.gateway.handler import HandlerSettings
from concur_proxy.gateway.protocol import FastLaneProtocol
from tests.gateway.harness import CHAT, Engine, Proxy, ok, request, run, until
from tests.gateway.test_wire_identity import pieces_of

NAMES = st.text(string.ascii_letters + "-", min_size=1, max_size=8).map(str.encode)
VALUES = st.text(string.ascii_letters + string.digits + "; =\t\xe9", max_size=12).map(
    lambda text: text.strip().encode("latin-1")
)
SPACES = st.sampled_from([b"", b" ", b"\t"])
LENGTHS = st.integers(0, 10**8)


@st.composite
def heads(draw):
    """Draw a first line, headers, and a head that is made of them but for the digits of its length."""
    first = draw(st.sampled_from([b"POST /v1/chat/completions HTTP/1.1", b"HTTP/1.1 200 OK"]))
    lines = draw(st.lists(st.tuples(NAMES, SPACES, VALUES), max_size=5))
    assume(all(name.lower() != b"content-length" for name, _, _ in lines))
    place = draw(st.integers(0, len(lines)))
    length = (draw(st.sampled_from([b"content-length", b"Content-Length"])), draw(SPACES), None)
    return first, [*lines[:place], length, *lines[place:]]


def head_of(first, lines, length):
    written = [b"%b:%b%b" % (name, space, b"%d" % length if value is None else value) for name, space, value in lines]
    return b"\r\n".join([first, *written, b"", b""])


def headers_of(lines, length):
    return [(name, b"%d" % length if value is None else value) for name, _, value in lines]


@settings(deadline=None)
@given(heads(), LENGTHS, LENGTHS, st.binary(max_size=30))
def test_a_head_with_another_length_fits(drawn, first, second, body):
    mould = mould_of(head_of(*drawn, first) + body, drawn[0], headers_of(drawn[1], first))
    head = head_of(*drawn, second)
    assert mould.fit(head + body) == (len(head), second)
    assert mould.digits == b"%d" % second
    assert mould.fit(head[:-1]) == NO_FIT


@settings(deadline=None)
@given(heads(), LENGTHS, st.data())
def test_a_head_with_any_other_difference_does_not_fit(drawn, length, data):
    head = head_of(*drawn, length)
    mould = mould_of(head, drawn[0], headers_of(drawn[1], length))
    digits = len(head_of(*drawn, length).partition(b"ontent-")[0])  # somewhere before them
    end = head.index(b"\r\n", digits)
    start = end - len(b"%d" % length)
    place = data.draw(st.integers(0, len(head) - 1).filter(lambda place: not start <= place < end))
    byte = data.draw(st.integers(0, 255).filter(lambda byte: byte != head[place]))
    assert mould.fit(head[:place] + bytes([byte]) + head[place + 1 :]) == NO_FIT
    for odd in (b"", b"-1", b"+1", b" 1", b"1_0", b"1 0", b"0x1", b"1" * 13, "\u0661".encode()):
        assert mould.fit(head[:start] + odd + head[end:]) == NO_FIT


@pytest.mark.parametrize(
    "head",
    [
        b"POST /x HTTP/1.1\r\nHost: a\r\n b\r\nContent-Length: 3\r\n\r\n",
        b"POST /x HTTP/1.1\r\nHost: a b\r\nContent-Length: 3 \r\n\r\n",
        b"POST /x HTTP/1.1\nHost: a b\r\nContent-Length: 3\r\n\r\n",
        b"\r\nPOST /x HTTP/1.1\r\nHost: a b\r\nContent-Length: 3\r\n\r\n",
        b"POST /x HTTP/1.1\r\nHost: a b\r\nContent-Length: 3\r\nX: y\r\n\r\n",
        b"POST /x HTTP/1.1\r\nHost: a b\r\nContent-Length: 3\r\n",
    ],
)
def test_a_head_that_is_not_written_as_it_was_read_is_not_kept(head):
    assert mould_of(head, b"POST /x HTTP/1.1", [(b"Host", b"a b"), (b"Content-Length", b"3")]) is None


# on the wire

PLAIN = b"Authorization: Bearer k\r\nX-Session-ID: a\r\nContent-Type: application/json\r\n"
VARIANTS = [
    *[PLAIN] * 5,
    b"X-Session-ID: b\r\n" + PLAIN[:25],
    PLAIN + b"X-Request-ID: mine\r\n",
    PLAIN + b"Connection: keep-alive\r\nX-Forwarded-For: 10.1.1.1\r\nTE: trailers\r\n",
    PLAIN + b"Connection: keep-alive, X-Private\r\nX-Private: p\r\n",
    PLAIN + b"Accept-Encoding: gzip\r\nCookie: a\r\nCookie: b\r\n",
    PLAIN + b"Expect: 100-continue\r\n",
]
BODIES = st.sampled_from(
    [
        CHAT,
        b'{"model":"m","stream":true,"messages":[]}',
        b'{"model":"m","messages":[{"role":"user","content":"%b"}]}' % (b"x" * 3000),
        b"not json",
        b"",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: proxy.test\r\n\r\n",
    ]
)
ANSWERS = st.tuples(
    st.sampled_from(
        [b"", b"", b"", b"x-a: 1\r\n", b"date: now\r\nx-a: 2\r\n", b"x-concur-secret: s\r\nkeep-alive: 5\r\n"]
    ),
    st.sampled_from([b'{"ok":true}', b"{}", b'{"a":"%b"}' % (b"y" * 5000), b""]),
)
CUTS = st.lists(st.integers(0, 9000), max_size=5)
TALKS = st.lists(st.tuples(st.sampled_from(VARIANTS), BODIES, ANSWERS, CUTS, CUTS), min_size=2, max_size=7)
HOPS = {b"connection", b"x-private", b"te", b"expect"}


def told(raw):
    return [tuple(line.split(b": ", 1)) for line in raw.split(b"\r\n") if line]


def reached(seen, variant, body):
    sent = told(variant)
    streams = b'"stream":true' in body
    dropped = HOPS | {b"x-forwarded-for"} | ({b"accept-encoding"} if streams else set())
    added = {b"host", b"content-length", b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host"}
    added |= {b"x-request-id"} - {name.lower() for name, _ in sent} | ({b"accept-encoding"} if streams else set())
    kept = [pair for pair in sent if pair[0].lower() not in dropped]
    assert [pair for pair in seen.headers if pair[0].lower() not in added] == kept
    chain = b"10.1.1.1, 127.0.0.1" if b"X-Forwarded-For" in dict(sent) else b"127.0.0.1"
    assert seen.values(b"x-forwarded-for") == [chain]
    assert seen.values(b"x-forwarded-host") == [b"proxy.test"]
    assert seen.values(b"x-forwarded-proto") == [b"http"]
    assert len(seen.values(b"x-request-id")) == 1
    assert seen.values(b"content-length") == [b"%d" % len(seen.body)]
    asked = b'{"stream_options":{"include_usage":true},' + body[1:]
    assert seen.body == (asked if streams else body)


def answered(answer, extra, body):
    headers = [pair for pair in answer.headers if not pair[0].startswith(b"x-concur-") and pair[0] != b"x-request-id"]
    passing = [pair for pair in told(extra) if pair[0] not in (b"x-concur-secret", b"keep-alive")]
    assert headers == [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *passing]
    assert answer.body == body
    assert answer.value(b"x-concur-backend") == b"b0"


@pytest.mark.parametrize("at_once", [False, True])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(talk=TALKS)
def test_what_follows_on_a_connection_arrives_as_it_was_sent(talk, at_once):
    async def script(seen, wire):
        extra, body = talk[len(engine.seen) - 1][2]
        for piece in pieces_of(ok(body, extra=extra), talk[len(engine.seen) - 1][4]):
            await wire.send(piece)
            await asyncio.sleep(0)

    async def trickle(client, data, cuts):
        for piece in pieces_of(data, cuts):
            await client.send(piece)
            await asyncio.sleep(0)

    async def main():
        nonlocal engine
        async with Engine(script) as engine, Proxy((engine,)) as proxy, asyncio.TaskGroup() as group:
            client = await proxy.client()
            wires = [request(body, headers=variant) for variant, body, _, _, _ in talk]
            if at_once:
                group.create_task(trickle(client, b"".join(wires), [cut for one in talk for cut in one[3]]))
            ids = set()
            for wire, (variant, body, (extra, says), cuts, _) in zip(wires, talk, strict=True):
                if not at_once:
                    group.create_task(trickle(client, wire, cuts))
                answer = await client.answer()
                if answer.status == 100:
                    answer = await client.answer()
                answered(answer, extra, says)
                reached(engine.seen[-1], variant, body)
                if b"X-Request-ID" not in variant:
                    ids.add(answer.value(b"x-request-id"))
            assert len(ids) == sum(b"X-Request-ID" not in variant for variant, *_ in talk)
            assert len(engine.seen) == len(talk)
            await client.close()
            await until(proxy.idle)

    engine = None
    run(main())


def counting(monkeypatch, place, name):
    """Count the calls of a method."""
    calls, original = [], getattr(place, name)
    monkeypatch.setattr(place, name, lambda *args: (calls.append(name), original(*args))[1])
    return calls


@pytest.mark.sources
def test_only_the_first_two_requests_and_the_first_answer_are_parsed(monkeypatch):
    requests = counting(monkeypatch, FastLaneProtocol, "on_headers_complete")
    answers = counting(monkeypatch, UpstreamConnection, "on_headers_complete")

    async def main():
        async with Engine() as engine, Proxy((engine,)) as proxy:
            client = await proxy.client()
            for number in range(6):
                await client.send(request(b"x" * number * 100, headers=PLAIN))
                assert (await client.answer()).status == 200
            await client.close()

    run(main())
    assert (len(requests), len(answers)) == (2, 1)


@pytest.mark.sources
def test_heads_that_never_come_again_are_not_kept_for_ever(monkeypatch):
    kept = []
    monkeypatch.setattr(protocol, "familiar_request", lambda *args: kept.append(args))
    monkeypatch.setattr(upstream, "familiar_response", lambda *args: kept.append(args))

    async def script(seen, wire):
        await wire.send(ok(extra=b"x-n: %d\r\n" % len(engine.seen)))

    async def main():
        nonlocal engine
        async with Engine(script) as engine, Proxy((engine,)) as proxy:
            client = await proxy.client()
            for number in range(40):
                await client.send(request(headers=b"X-N: %d\r\n" % number))
                assert (await client.answer()).status == 200
            await client.close()

    engine = None
    run(main())
    assert len(kept) <= protocol.PATIENCE + 6


def test_a_body_may_come_later_than_its_head_and_be_too_much():
    async def main():
        async with Engine() as engine, Proxy((engine,), settings=HandlerSettings(max_body_bytes=5000)) as proxy:
            client = await proxy.client()
            for size in (10, 20, 3000, 4000, 5001):
                raw = request(b"x" * size)
                await client.send(raw[:-size])
                await until(lambda: client.reader.at_eof() or not proxy.handler.turns)
                await client.send(raw[-size : -size // 2], raw[-size // 2 :])
                assert (await client.answer()).status == (200 if size <= 5000 else 413)
            assert [len(seen.body) for seen in engine.seen] == [10, 20, 3000, 4000]
            await client.close()

    run(main())


def test_a_new_setting_counts_at_once():
    async def main():
        async with Engine() as engine, Proxy((engine,)) as proxy:
            client = await proxy.client()
            for _ in range(4):
                await client.send(request(headers=b"X-Session-ID: a\r\nX-Other: b\r\n"))
                assert (await client.answer()).value(b"x-concur-session") == b"a"
            proxy.handler.settings = HandlerSettings(session_headers=("X-Other",))
            await client.send(request(headers=b"X-Session-ID: a\r\nX-Other: b\r\n"))
            assert (await client.answer()).value(b"x-concur-session") == b"b"
            await client.close()

    run(main())


def test_a_client_that_leaves_in_the_middle_of_a_body_leaves_nothing():
    async def main():
        async with Engine() as engine, Proxy((engine,)) as proxy:
            client = await proxy.client()
            for _ in range(3):
                await client.send(request())
                await client.answer()
            await client.send(request()[:-5])
            await client.close()
            await until(lambda: not proxy.state.connections)
            assert len(engine.seen) == 3
            await until(proxy.idle)

    run(main())
