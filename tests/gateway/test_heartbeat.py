"""Signs of life for held streams, and what becomes of the answer after them (invariant 8)."""

import asyncio
import contextlib
import json

import pytest

from concur_proxy.core.gate import GatePolicy
from concur_proxy.gateway.handler import HandlerSettings
from concur_proxy.gateway.heartbeat import COMMENT, PING, HeldStream
from concur_proxy.gateway.paths import Shape
from concur_proxy.gateway.rounds import Rounds
from concur_proxy.model import BackendId
from tests.gateway.harness import CHAT, STREAMED, chunked, ok, request, until
from tests.gateway.test_handler import scenario

BEAT_S = 0.02
ON = HandlerSettings(heartbeat_s=BEAT_S)
EVENTS = [b'data: {"choices":[{"index":0,"delta":{"content":"%d"}}]}\n\n' % number for number in range(5)]
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":5}}\n\n'
DONE = b"data: [DONE]\n\n"
PATHS = {
    b"/v1/chat/completions": (COMMENT, b""),
    b"/v1/completions": (COMMENT, b""),
    b"/v1/responses": (COMMENT, b"event: error\n"),
    b"/v1/messages": (PING, b"event: error\n"),
}
B0 = BackendId("b0")


def held(test, answer, *, path=b"/v1/chat/completions", body=STREAMED, head=b"", loop="uvloop", **options):
    """Hold a stream behind another turn; ``test(proxy, client, let_in)`` after its first sign of life."""

    async def script(seen, wire):
        if seen.body == CHAT:
            await wire.gone()
            return False
        return await answer(seen, wire)

    async def main(proxy, engine):
        first, client = await proxy.client(), await proxy.client()
        await first.send(request())
        await until(lambda: engine.seen)
        await client.send(head or request(body, path=path, headers=b"accept-encoding: gzip\r\n"))
        await until(lambda: proxy.dispatcher.held)
        await test(proxy, client, first.leave)
        await client.close()
        first.leave()
        await until(proxy.idle)
        assert len(proxy.handler.heartbeats or ()) == 0

    scenario(main, script, loop=loop, window=1, **{"settings": ON, **options})


async def stream(_seen, wire):
    await wire.send(chunked(*EVENTS, USAGE, DONE, trailers=b"X-T: 1\r\n"))


async def never(_seen, wire):
    await wire.gone()
    return False


async def opened(client, sign):
    """Read the head and two signs of life."""
    raw = await client.reader.readuntil(b"\r\n\r\n")
    for _ in range(2):
        assert await client.reader.readexactly(len(sign) + len(b"%x" % len(sign)) + 4)
    return raw.lower()


async def rest(client):
    """Read the chunks that are left; return them and whether the end came."""
    body, whole = b"", False
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while size := int((await client.reader.readuntil(b"\r\n"))[:-2], 16):
            body += (await client.reader.readexactly(size + 2))[:-2]
        while await client.reader.readuntil(b"\r\n") != b"\r\n":
            pass
        whole = True
    return body, whole


def without(sign, body):
    while body.startswith(sign):
        body = body[len(sign) :]
    return body


@pytest.mark.parametrize("path", PATHS)
def test_a_held_stream_lives_and_goes_on_as_the_engines(path, loop):
    sign, _ = PATHS[path]

    async def test(proxy, client, let_in):
        head = await opened(client, sign)
        assert head.startswith(b"http/1.1 200 ok\r\n")
        assert head.count(b"content-type: text/event-stream") == 1
        assert b"x-request-id: " in head
        let_in()
        answer = without(sign, await read_to_end(client))
        told = b"".join(EVENTS) + DONE if b"completions" in path else b"".join(EVENTS) + USAGE + DONE
        assert answer == told
        assert [(turn.status, turn.outcome) for turn in proxy.turns[1:]] == [(200, "completed")]
        assert proxy.turns[1].usage.completion_tokens == 5
        assert proxy.turns[1].first_token_s is not None
        await client.send(request(b"", method=b"GET"))
        assert (await client.answer()).status == 405

    async def read_to_end(client):
        body = b""
        while size := int((await client.reader.readuntil(b"\r\n"))[:-2], 16):
            body += (await client.reader.readexactly(size + 2))[:-2]
        assert await client.reader.readuntil(b"\r\n\r\n") == b"X-T: 1\r\n\r\n"
        return body

    held(test, stream, path=path, loop=loop)


def test_the_engine_is_asked_for_what_the_head_has_promised():
    async def script(seen, wire):
        asked.extend(seen.values(b"accept-encoding"))
        await stream(seen, wire)

    async def test(_proxy, client, let_in):
        await opened(client, PING)
        let_in()
        assert (await rest(client))[1]
        assert asked == [b"identity"]

    asked = []
    held(test, script, path=b"/v1/messages")


def test_signs_go_on_until_the_engine_says_something(loop):
    async def slow(seen, wire):
        await asked.put(wire)
        await never(seen, wire)

    async def test(_proxy, client, let_in):
        await opened(client, COMMENT)
        let_in()
        wire = await asked.get()
        for _ in range(3):
            await client.reader.readuntil(COMMENT)
        await wire.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        await client.reader.readuntil(COMMENT)
        await wire.send(b"%x\r\n%b\r\n" % (len(EVENTS[0]), EVENTS[0]))
        await client.reader.readuntil(EVENTS[0])
        await asyncio.sleep(3 * BEAT_S)
        await wire.send(b"0\r\n\r\n")
        assert await client.reader.readuntil(b"0\r\n\r\n") == b"\r\n" + b"0\r\n\r\n"

    asked = asyncio.Queue()
    held(test, slow, loop=loop)


def test_one_who_is_let_in_before_the_first_sign_gets_the_engines_own_answer():
    async def test(_proxy, client, let_in):
        let_in()
        answer = await client.answer()
        assert answer.body == b"".join(EVENTS) + DONE
        assert answer.value(b"x-accel-buffering") is None

    held(test, stream, settings=HandlerSettings(heartbeat_s=60))


@pytest.mark.parametrize(
    ("body", "settings"),
    [(b'{"stream":false}', ON), (STREAMED, HandlerSettings())],
    ids=["not a stream", "switched off"],
)
def test_others_wait_in_silence(body, settings):
    async def test(_proxy, client, let_in):
        await asyncio.sleep(4 * BEAT_S)
        assert not client.reader._buffer
        let_in()
        assert (await client.answer()).body == b'{"ok":true}'

    async def plain(_seen, wire):
        await wire.send(ok())

    held(test, plain, body=body, settings=settings)


# what goes wrong afterwards


def told_in(body, name):
    assert body.startswith(name + b"data: {")
    assert body.endswith(b"}\n\n")
    return json.loads(body.removeprefix(name).removeprefix(b"data: "))


@pytest.mark.parametrize("path", PATHS)
def test_a_refusal_is_an_event_and_the_connection_goes_on(path, loop):
    sign, name = PATHS[path]

    async def test(proxy, client, _let_in):
        await opened(client, sign)
        body, whole = await rest(client)
        assert whole
        assert "as long as it may" in told_in(without(sign, body), name)["error"]["message"]
        assert [(turn.status, turn.outcome) for turn in proxy.turns] == [(503, "queue_timeout")]
        await client.send(request(b"", method=b"GET"))
        assert (await client.answer()).status == 405

    held(test, never, path=path, loop=loop, policy=GatePolicy(max_wait_s=0.3))


@pytest.mark.parametrize("path", PATHS)
def test_an_engine_that_refuses_is_quoted_in_an_event(path):
    sign, name = PATHS[path]

    async def refuses(_seen, wire):
        text = b'{"error":{"message":"too long","type":"BadRequestError","param":null,"code":400}}'
        await wire.send(ok(text, status=b"400 Bad Request"))

    async def test(proxy, client, let_in):
        await opened(client, sign)
        let_in()
        body, whole = await rest(client)
        assert whole
        error = told_in(without(sign, body), name)["error"]
        assert (error["message"], error["type"]) == ("too long", "BadRequestError")
        assert [(turn.status, turn.outcome) for turn in proxy.turns[1:]] == [(400, "client_error")]

    held(test, refuses, path=path)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (ok(b'{"choices":[]}'), "status 200 and not with a stream"),
        (ok(b"", status=b"204 No Content"), "status 204"),
        (ok(b"x" * 200_000, status=b"500 Oops", kind=b"text/plain"), "xxx"),
        (chunked(b"data: 1\n\n", extra=b"content-encoding: gzip\r\n"), "status 200"),
    ],
    ids=["json", "nothing", "large", "compressed"],
)
def test_what_is_no_stream_of_events_is_an_error(answer, words):
    async def script(_seen, wire):
        await wire.send(answer)

    async def test(_proxy, client, let_in):
        await opened(client, COMMENT)
        let_in()
        body, whole = await rest(client)
        assert whole
        assert len(body) < 5000
        assert words in told_in(without(COMMENT, body), b"")["error"]["message"]

    held(test, script)


def test_a_full_engine_puts_the_stream_back_in_line():
    async def full_at_first(seen, wire):
        if not answered:
            answered.append(1)
            await wire.send(ok(b"{}", status=b"503 Full", extra=b"retry-after: 0\r\n"))
        else:
            await stream(seen, wire)

    async def test(proxy, client, let_in):
        await opened(client, COMMENT)
        let_in()
        body, whole = await rest(client)
        assert whole
        assert without(COMMENT, body) == b"".join(EVENTS) + DONE
        assert proxy.overloaded == ["b0"]

    answered = []
    held(test, full_at_first)


def test_a_full_engine_is_quoted_when_the_proxy_ends():
    async def full(_seen, wire):
        await wire.send(ok(b'{"error":{"message":"full"}}', status=b"503 Full", extra=b"retry-after: 60\r\n"))

    async def test(proxy, client, let_in):
        await opened(client, COMMENT)
        let_in()
        await until(lambda: proxy.overloaded and proxy.dispatcher.held)
        proxy.handler.begin_shutdown()
        body, whole = await rest(client)
        assert whole
        assert "shutting down" in told_in(without(COMMENT, body), b"")["error"]["message"]

    held(test, full)


def test_an_engine_that_dies_before_its_answer_is_an_event(loop):
    async def dies(_seen, _wire):
        return False

    async def test(proxy, client, let_in):
        await opened(client, COMMENT)
        let_in()
        body, whole = await rest(client)
        assert whole
        assert told_in(without(COMMENT, body), b"")["error"]["code"] == "backend_error"
        assert [(turn.status, turn.outcome) for turn in proxy.turns[1:]] == [(502, "backend_lost")]

    held(test, dies, loop=loop)


@pytest.mark.parametrize("cut", [None, 10], ids=["between events", "within one"])
def test_an_engine_that_dies_in_the_middle_leaves_the_stream_without_an_end(cut, loop):
    async def dies(_seen, wire):
        part = EVENTS[0][:cut]
        await wire.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        await wire.send(b"%x\r\n%b\r\n" % (len(part), part))
        await received.wait()
        return False

    async def test(_proxy, client, let_in):
        await opened(client, COMMENT)
        let_in()
        await client.reader.readuntil(EVENTS[0][:cut] + b"\r\n")
        received.set()
        body, whole = await rest(client)
        assert not whole
        assert (b'"code":"backend_lost"' in body) is (cut is None)

    received = asyncio.Event()
    # a stream that has its own usage event passes piece by piece
    held(test, dies, loop=loop, body=b'{"stream":true,"stream_options":{"include_usage":true}}')


def test_leaving_ends_it_all(loop):
    async def test(proxy, client, _let_in):
        await opened(client, COMMENT)
        client.leave()
        await until(lambda: not proxy.dispatcher.held)
        assert [(turn.status, turn.outcome) for turn in proxy.turns] == [(200, "abandoned")]
        assert len(proxy.handler.heartbeats) == 0

    held(test, never, loop=loop)


def test_the_end_of_the_proxy_is_an_event():
    async def test(proxy, client, _let_in):
        await opened(client, COMMENT)
        proxy.handler.begin_shutdown()
        body, whole = await rest(client)
        assert whole
        assert "shutting down" in told_in(without(COMMENT, body), b"")["error"]["message"]

    held(test, never)


def test_a_client_of_http_1_0_gets_no_chunks():
    async def test(_proxy, client, let_in):
        head = await client.reader.readuntil(b"\r\n\r\n")
        assert b"transfer-encoding" not in head
        assert await client.reader.readexactly(len(COMMENT)) == COMMENT
        let_in()
        assert without(COMMENT, await client.reader.read()) == b"".join(EVENTS) + DONE

    raw = b"POST /v1/chat/completions HTTP/1.0\r\ncontent-length: %d\r\n\r\n%b" % (len(STREAMED), STREAMED)
    held(test, stream, head=raw)


# the parts


class Exchange:
    http11, keep_alive, server_headers, write_paused = True, True, [], False

    def __init__(self):
        self.written = []

    def write(self, data):
        self.written.append(data)


@pytest.mark.sources
def test_signs_do_not_pile_up_before_a_client_that_does_not_read():
    exchange = Exchange()
    stream = HeldStream(exchange, Rounds(1), [], Shape.OPENAI)
    stream.on_round()
    exchange.write_paused = True
    stream.on_round()
    assert len(exchange.written) == 1
    exchange.write_paused = False
    stream.on_round()
    assert len(exchange.written) == 2
