"""Engines that send the head of a stream long before its first token, as vLLM does, and fail or fall asleep then."""

import asyncio
import contextlib

import pytest

from concur_proxy.gateway.handler import HandlerSettings
from concur_proxy.model import BackendEvent, BackendId
from tests.gateway.harness import STREAMED, Engine, Proxy, ok, request, run, until

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
WHOLE = HEAD + b"%x\r\n%b\r\n0\r\n\r\n" % (len(EVENT), EVENT)
FIRST, SECOND = BackendId("b0"), BackendId("b1")


class Lazy:
    """Sends a head, if one is wanted, and then whatever the test tells it: more, or nothing and the end."""

    def __init__(self, head=HEAD):
        self.head, self.go, self.rest, self.gone = head, asyncio.Event(), None, 0

    async def __call__(self, _seen, wire):
        await wire.send(self.head)
        waiting = asyncio.create_task(wire.gone())
        going = asyncio.create_task(self.go.wait())
        await asyncio.wait({waiting, going}, return_when=asyncio.FIRST_COMPLETED)
        self.gone += waiting.done()
        for task in (waiting, going):
            task.cancel()
        if self.rest is None:
            return False
        await wire.send(self.rest)
        return None


async def answers(_seen, wire):
    await wire.send(WHOLE)


@contextlib.asynccontextmanager
async def broken_before_its_first_event(settings):
    """Ask one engine, which ends after the head, while another is there: the answer, that one, and the proxy."""
    script = Lazy()
    async with Engine(script) as one, Engine(answers) as two, Proxy((one,), settings=settings) as proxy:
        asked = asyncio.create_task(proxy.ask(STREAMED))
        await until(lambda: one.seen)
        proxy.add(SECOND, two.url)
        script.go.set()
        yield await asked, two, proxy


def test_the_head_of_a_stream_leaves_with_its_first_event():
    async def body():
        script = Lazy()
        async with Engine(script) as engine, Proxy((engine,)) as proxy:
            client = await proxy.client()
            await client.send(request(STREAMED))
            await until(lambda: engine.seen and any(turn._relay.head for turn in proxy.handler.turns))
            assert not client.reader._buffer
            script.rest = WHOLE[len(HEAD) :]
            script.go.set()
            answer = await client.answer()
            assert (answer.status, answer.body, answer.whole) == (200, EVENT, True)
            await client.close()

    run(body())


@pytest.mark.parametrize("heartbeat_s", [0.0, 30.0])
def test_a_stream_that_breaks_before_its_first_event_is_answered_by_another_engine(heartbeat_s):
    async def body():
        async with broken_before_its_first_event(HandlerSettings(heartbeat_s=heartbeat_s)) as (answer, _, proxy):
            assert (answer.status, answer.whole, answer.body) == (200, True, EVENT)
            assert answer.value(b"x-concur-backend") == b"b1"
            assert proxy.lost == ["b0"]
            assert proxy.idle()

    run(body())


def test_where_generation_is_not_repeated_the_client_gets_a_plain_error():
    async def body():
        async with broken_before_its_first_event(HandlerSettings(retry_generation=False)) as (answer, two, proxy):
            assert answer.status == 502
            assert b"backend_lost" in answer.body
            assert not two.seen
            assert proxy.idle()

    run(body())


@pytest.mark.parametrize("head", [b"", HEAD], ids=["nothing", "head"])
@pytest.mark.parametrize("path", [b"/v1/chat/completions", b"/v1/embeddings"])
def test_what_an_engine_that_falls_asleep_has_not_begun_to_answer_goes_elsewhere(head, path):
    async def body():
        script = Lazy(head)
        async with Engine(script) as one, Engine(answers) as two, Proxy((one,)) as proxy:
            asked = asyncio.create_task(proxy.ask(STREAMED, path=path))
            await until(lambda: one.seen)
            proxy.handler.leave(FIRST)  # nobody else is there
            assert not script.gone
            proxy.add(SECOND, two.url)
            proxy.dispatcher.backend_event(FIRST, BackendEvent.DRAINING)
            proxy.handler.leave(SECOND)
            assert not two.seen
            proxy.handler.leave(FIRST)
            answer = await asked
            assert (answer.status, answer.body, answer.value(b"x-concur-backend")) == (200, EVENT, b"b1")
            await until(lambda: script.gone == 1)
            assert not proxy.lost  # it is no failure
            assert proxy.idle()

    run(body())


def test_what_it_has_begun_to_answer_stays():
    async def body():
        script = Lazy(HEAD + b"%x\r\n%b\r\n" % (len(EVENT), EVENT))
        async with Engine(script) as one, Engine() as two, Proxy((one,)) as proxy:
            client = await proxy.client()
            await client.send(request(STREAMED))
            await until(lambda: client.reader._buffer)
            proxy.add(SECOND, two.url)
            proxy.dispatcher.backend_event(FIRST, BackendEvent.DRAINING)
            proxy.handler.leave(FIRST)
            script.rest = b"0\r\n\r\n"
            script.go.set()
            answer = await client.answer()
            assert (answer.body, answer.whole) == (EVENT, True)
            assert not two.seen
            await client.close()

    run(body())


def test_a_refusal_that_breaks_off_is_no_reason_to_give_up():
    async def body():
        cut = ok(b"x" * 100, status=b"503 Service Unavailable")[:-50]
        script = Lazy(cut)
        script.go.set()
        async with Engine(script) as one, Engine(answers) as two, Proxy((one, two)) as proxy:
            answer = await proxy.ask(STREAMED)
            assert answer.status == 200
            assert proxy.idle()

    run(body())
