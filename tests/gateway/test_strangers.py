"""Backends of one pool that do not all serve the same models, as where an adapter is loaded on some of them only."""

import asyncio

import orjson
import pytest

from concur_proxy.model import BackendId
from tests.gateway.harness import Engine, Proxy, ok, run, until

FIRST, SECOND, THIRD = (BackendId(f"b{number}") for number in range(3))
ONLY_SECOND = {"adapter": frozenset({FIRST, THIRD})}


def chat(model, session="s"):
    body = orjson.dumps({"model": model, "messages": [{"role": "user", "content": session}]})
    return {"body": body, "headers": b"x-session-id: %b\r\n" % session.encode()}


@pytest.mark.parametrize("path", [b"/v1/chat/completions", b"/v1/responses", b"/tokenize"])
def test_a_turn_goes_to_those_that_serve_its_model_whatever_its_session_ran_on_before(path):
    async def body():
        async with Engine() as one, Engine() as two, Engine() as three, Proxy((one, two, three)) as proxy:
            proxy.handler.strangers = ONLY_SECOND
            asked = [(model, f"s{number}") for model in ("base", "adapter") for number in range(6)]
            answers = [await proxy.ask(path=path, **chat(*one)) for one in asked]
            assert {answer.status for answer in answers} == {200}
            assert {answer.value(b"x-concur-backend") for answer in answers[6:]} == {b"b1"}
            if path != b"/tokenize":
                assert {answer.value(b"x-concur-backend") for answer in answers[:6]} == {b"b0", b"b1", b"b2"}
            assert proxy.idle()

    run(body())


@pytest.mark.parametrize("problem", [b"503 Service Unavailable", None], ids=["full", "dies"])
def test_a_turn_that_is_sent_again_stays_with_those_that_serve_its_model(problem):
    tries = []

    async def fails_once(_seen, wire):
        tries.append(1)
        if len(tries) == 1 and problem is None:
            return False
        await wire.send(ok(status=problem, extra=b"retry-after: 0\r\n") if len(tries) == 1 else ok())
        return None

    async def body():
        async with Engine() as one, Engine(fails_once) as two, Engine() as three, Proxy((one, two, three)) as proxy:
            proxy.handler.strangers = ONLY_SECOND
            answer = await proxy.ask(**chat("adapter"))
            assert (answer.status, answer.value(b"x-concur-backend")) == (200, b"b1")
            assert len(two.seen) == 2
            assert not one.seen
            assert not three.seen
            assert proxy.idle()

    run(body())


def test_a_turn_that_waited_does_not_go_to_a_backend_that_came_meanwhile_without_its_model():
    go = asyncio.Event()

    async def waits(_seen, wire):
        await go.wait()
        await wire.send(ok())

    async def body():
        async with Engine(waits) as one, Engine() as two, Proxy((one,), window=1) as proxy:
            running = asyncio.create_task(proxy.ask(**chat("adapter", "first")))
            await until(lambda: one.seen)
            held = asyncio.create_task(proxy.ask(**chat("adapter", "second")))
            await until(lambda: proxy.dispatcher.held)
            proxy.handler.strangers = {"adapter": frozenset({SECOND})}
            proxy.add(SECOND, two.url)
            await asyncio.sleep(0)
            assert proxy.dispatcher.held == 1
            go.set()
            assert (await running).status == 200
            proxy.dispatcher.end_session(proxy.records[0].session)
            assert (await held).value(b"x-concur-backend") == b"b0"
            assert not two.seen
            assert proxy.idle()

    run(body())


def test_a_turn_whose_model_nobody_who_is_up_serves_is_refused():
    async def body():
        async with Engine() as one, Engine() as two, Proxy((one, two)) as proxy:
            proxy.handler.strangers = {"adapter": frozenset({FIRST, SECOND})}
            for path in (b"/v1/chat/completions", b"/tokenize"):
                answer = await proxy.ask(path=path, **chat("adapter"))
                assert answer.status == 503
            assert proxy.idle()

    run(body())


def test_a_stored_response_is_no_reason_to_go_where_the_model_is_not_served():
    async def answers(_seen, wire):
        await wire.send(ok(b'{"id":"resp_1","object":"response","status":"completed"}'))

    async def body():
        async with Engine(answers) as one, Engine(answers) as two, Proxy((one, two)) as proxy:
            first = await proxy.ask(b'{"model":"base","input":"x"}', path=b"/v1/responses")
            home = BackendId(first.value(b"x-concur-backend").decode())
            proxy.handler.strangers = {"adapter": frozenset({home})}
            asked = b'{"model":"%b","input":"x","previous_response_id":"resp_1"}'
            for model, is_home in ((b"base", True), (b"adapter", False)):
                answer = await proxy.ask(asked % model, path=b"/v1/responses")
                assert answer.status == 200
                assert (answer.value(b"x-concur-backend") == home.encode()) is is_home
            assert proxy.idle()

    run(body())
