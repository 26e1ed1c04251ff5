"""Background responses keep their lease until they end, however their end becomes known (invariant 2)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.gateway.background import StateReader
from concur_proxy.gateway.handler import HandlerSettings
from concur_proxy.model import BackendId, Outcome
from tests.gateway.harness import chunked, ok, request, until
from tests.gateway.test_handler import scenario

B0 = BackendId("b0")
BACKGROUND = b'{"model":"m","background":true,"input":"hi"}'
STREAMED = b'{"model":"m","background":true,"stream":true,"input":"hi"}'
CREATED = b'event: response.created\ndata: {"type":"response.created","response":{"id":"resp_1","status":"queued"}}\n\n'
PATH = b"/v1/responses/resp_1"


def response(status, **more):
    item = {"type": "message", "status": "completed", "content": [{"type": "output_text", "text": '"status":"failed"'}]}
    return json.dumps({"id": "resp_1", "output": [item], **more, "status": status}).encode()


def ended(status):
    told = {"type": f"response.{status}", "response": {"id": "resp_1", "status": status}}
    return f"event: response.{status}\ndata: {json.dumps(told)}\n\n".encode()


class Api:
    """An engine's Responses API with one response, in the state that the test gives it."""

    def __init__(self):
        self.state, self.more, self.known = "queued", {}, True

    async def __call__(self, seen, wire):
        if seen.line.startswith(b"DELETE"):
            await wire.send(ok(b'{"id":"resp_1","object":"response","deleted":true}'))
        elif not self.known:
            await wire.send(ok(b'{"error":{"message":"no such response"}}', status=b"404 Not Found"))
        else:
            self.state = "cancelled" if seen.target.endswith(b"/cancel") else self.state
            await wire.send(ok(response(self.state, **self.more)))


def kept(test, *, loop="uvloop", **options):
    """Run ``test(proxy, engine, api)`` with one background response under way."""
    api = Api()

    async def main(proxy, engine):
        answer = await proxy.ask(BACKGROUND, path=b"/v1/responses", headers=b"accept-encoding: gzip\r\n")
        assert json.loads(answer.body)["status"] == "queued"
        assert engine.seen[0].values(b"accept-encoding") == [b"identity"]
        assert proxy.dispatcher.in_flight(B0) == proxy.dispatcher.snapshot().running == 1
        assert not proxy.records
        assert [(turn.status, turn.outcome) for turn in proxy.turns] == [(200, "completed")]
        await test(proxy, engine, api)
        assert not proxy.handler.background

    scenario(main, api, loop=loop, **options)


async def look(proxy, method=b"GET", path=PATH):
    return await proxy.ask(b"", path=path, method=method)


USAGE = {"usage": {"input_tokens": 7, "output_tokens": 9}}
ENDS = {
    "completed": Outcome.COMPLETED,
    "incomplete": Outcome.COMPLETED,
    "failed": Outcome.ENGINE_ERROR,
    "cancelled": Outcome.CANCELLED,
}


@pytest.mark.parametrize(("state", "outcome"), ENDS.items())
def test_a_client_that_looks_tells_of_the_end(state, outcome, loop):
    async def test(proxy, _engine, api):
        for state_before in ("queued", "in_progress"):
            api.state = state_before
            assert json.loads((await look(proxy)).body)["status"] == state_before
            assert not proxy.records
        api.state, api.more = state, USAGE
        for _ in range(2):
            assert json.loads((await look(proxy)).body)["status"] == state
            assert [record.outcome for record in proxy.records] == [outcome]
        assert proxy.records[0].usage.completion_tokens == 9

    kept(test, loop=loop)


def test_cancelling_ends_it():
    async def test(proxy, _engine, _api):
        assert (await look(proxy, b"POST", PATH + b"/cancel")).status == 200
        assert [record.outcome for record in proxy.records] == [Outcome.CANCELLED]

    kept(test)


def test_deleting_ends_it():
    async def test(proxy, _engine, _api):
        assert (await look(proxy, b"DELETE")).status == 200
        assert [record.outcome for record in proxy.records] == [Outcome.CANCELLED]

    kept(test)


def test_an_engine_that_does_not_know_it_any_more_has_lost_it():
    async def test(proxy, _engine, api):
        api.known = False
        assert (await look(proxy)).status == 404
        assert [record.outcome for record in proxy.records] == [Outcome.BACKEND_LOST]

    kept(test)


def test_looking_at_another_response_tells_nothing():
    async def test(proxy, _engine, api):
        api.state = "completed"
        await look(proxy, path=b"/v1/responses/resp_2")
        assert not proxy.records
        await look(proxy)

    kept(test)


def test_its_limit_ends_it():
    async def test(proxy, _engine, _api):
        await until(lambda: proxy.records)
        assert [record.outcome for record in proxy.records] == [Outcome.CANCELLED]

    kept(test, settings=HandlerSettings(background_lease_s=0.05))


def test_a_lost_engine_ends_its_own():
    async def test(proxy, _engine, _api):
        proxy.handler.background.lost(BackendId("other"))
        assert not proxy.records
        proxy.handler.background.lost(B0)
        assert [record.outcome for record in proxy.records] == [Outcome.BACKEND_LOST]

    kept(test)


def test_the_end_of_the_proxy_ends_it():
    async def test(proxy, _engine, _api):
        proxy.handler.abort_all()
        assert [record.outcome for record in proxy.records] == [Outcome.SHUTDOWN]

    kept(test)


def test_its_place_is_taken_until_then():
    async def test(proxy, engine, api):
        waiting = await proxy.client()
        await waiting.send(request(path=b"/v1/responses"))
        await until(lambda: proxy.dispatcher.held)
        assert len(engine.seen) == 1
        api.state = "completed"
        await look(proxy)
        assert (await waiting.answer()).status == 200
        await waiting.close()

    kept(test, window=1)


@pytest.mark.parametrize("answer", [ok(response("completed")), ok(b"{}", status=b"400 Bad"), ok(b"not json")])
def test_an_answer_that_tells_of_nothing_that_goes_on_keeps_nothing(answer):
    async def script(_seen, wire):
        await wire.send(answer)

    async def test(proxy, _engine):
        await proxy.ask(BACKGROUND, path=b"/v1/responses")
        assert len(proxy.records) == 1

    scenario(test, script)


def test_the_field_means_nothing_to_other_apis():
    async def script(_seen, wire):
        await wire.send(ok(response("queued")))

    async def test(proxy, _engine):
        await proxy.ask(BACKGROUND)
        assert len(proxy.records) == 1

    scenario(test, script)


# streams of background responses


def test_a_stream_that_comes_to_its_end_keeps_nothing():
    async def script(_seen, wire):
        await wire.send(chunked(CREATED, ended("completed")))

    async def test(proxy, _engine):
        await proxy.ask(STREAMED, path=b"/v1/responses")
        assert [record.outcome for record in proxy.records] == [Outcome.COMPLETED]

    scenario(test, script)


def test_leaving_a_stream_does_not_end_its_response(loop):
    async def script(seen, wire):
        if seen.target == PATH + b"?stream=true":
            await wire.send(chunked(CREATED, ended("completed")))
            return True
        await wire.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        await wire.send(b"%x\r\n%b\r\n" % (len(CREATED), CREATED))
        await wire.gone()
        return False

    async def test(proxy, engine):
        client = await proxy.client()
        await client.send(request(STREAMED, path=b"/v1/responses"))
        await client.reader.readuntil(CREATED)
        client.leave()
        await until(lambda: not engine.open and not proxy.handler.turns)
        assert [(turn.status, turn.outcome) for turn in proxy.turns] == [(200, "cancelled")]
        assert not proxy.records
        answer = await look(proxy, path=PATH + b"?stream=true")
        assert answer.body == CREATED + ended("completed")
        assert [record.outcome for record in proxy.records] == [Outcome.COMPLETED]

    scenario(test, script, loop=loop)


# the reader


@given(st.data())
def test_the_state_is_found_however_an_answer_is_cut(data):
    streamed = data.draw(st.booleans())
    state = data.draw(st.sampled_from([*ENDS, "in_progress"]))
    events = CREATED if state == "in_progress" else CREATED + ended(state)
    text = events if streamed else response(state)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    reader = StateReader(streamed=streamed)
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        assert reader.feed(text[start:end]) == text[start:end]
    assert reader.state == state
    assert reader.response_id == "resp_1"


def test_answers_too_large_to_be_read_tell_nothing():
    reader = StateReader(streamed=False)
    for _ in range(9):
        reader.feed(b" " * (1 << 20))
    reader.feed(response("completed"))
    assert reader.state is None
    assert sum(map(len, reader._kept)) < 6 << 20


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b'{"status":1}'])
def test_answers_without_a_state(text):
    reader = StateReader(streamed=False)
    reader.feed(text)
    assert reader.state is None
