"""A turn's way: what it becomes where, and that its lease comes back whatever happens (invariant 2)."""

import asyncio
import json

import pytest

from concur_proxy.config import UpstreamSettings
from concur_proxy.core.gate import GatePolicy
from concur_proxy.gateway.handler import HandlerSettings
from concur_proxy.gateway.turn import MAX_TRIES
from concur_proxy.model import BackendEvent, BackendId, Outcome, SessionKey
from tests.gateway.harness import CHAT, STREAMED, Engine, Proxy, chunked, ok, request, run, until

EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
OPEN_STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
RAW_STREAM = b'{"stream":true,"stream_options":{"include_usage":true}}'


def piece(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


def scenario(test, *scripts, loop="uvloop", **options):
    """Run ``test(proxy, *engines)``; afterwards nothing may be left of any turn."""

    async def main():
        engines = [Engine(script) for script in scripts]
        for engine in engines:
            await engine.__aenter__()
        try:
            async with Proxy(tuple(engines), **options) as proxy:
                await test(proxy, *engines)
                assert proxy.idle()
        finally:
            for engine in engines:
                await engine.__aexit__(None, None, None)

    run(main(), loop)


async def silent(_seen, wire):
    """Take a request and never answer; end when the proxy hangs up."""
    await wire.gone()
    return False


async def endless(_seen, wire):
    await wire.send(OPEN_STREAM, piece(EVENT))
    await wire.gone()
    return False


async def plain(_seen, wire):
    await wire.send(ok())


# the client leaves


def test_leaving_while_held(loop):
    async def test(proxy, engine):
        first = await proxy.client()
        await first.send(request(CHAT, headers=b"x-session-id: a\r\n"))
        await until(lambda: engine.seen)
        for _ in range(500):
            client = await proxy.client()
            await client.send(request(CHAT, headers=b"x-session-id: b\r\n"))
            await until(lambda: proxy.dispatcher.held)
            client.leave()
            await until(lambda: not proxy.dispatcher.held)
        assert len(engine.seen) == 1
        assert {(turn.status, turn.outcome) for turn in proxy.turns} == {(499, "abandoned")}
        first.leave()
        await until(proxy.idle)

    scenario(test, silent, loop=loop, window=1)


@pytest.mark.parametrize("body", [CHAT, STREAMED], ids=["whole", "streamed"])
def test_leaving_before_the_first_byte(body, loop):
    async def test(proxy, engine):
        for number in range(500):
            client = await proxy.client()
            await client.send(request(body))
            await until(lambda count=number: len(engine.seen) == count + 1)
            client.leave()
            await until(lambda: not engine.open and proxy.idle())
        assert {record.outcome for record in proxy.records} == {Outcome.CANCELLED}
        assert {(turn.status, turn.outcome) for turn in proxy.turns} == {(499, "cancelled")}

    scenario(test, silent, loop=loop)


@pytest.mark.parametrize("body", [RAW_STREAM, STREAMED], ids=["as it is", "event taken out"])
def test_leaving_in_the_middle_of_a_stream(body, loop):
    async def test(proxy, engine):
        for _ in range(500):
            client = await proxy.client()
            await client.send(request(body))
            await client.reader.readuntil(b"data: ")
            client.leave()
            await until(lambda: not engine.open and proxy.idle())
        assert {(turn.status, turn.outcome) for turn in proxy.turns} == {(200, "cancelled")}

    scenario(test, endless, loop=loop)


def test_leaving_in_the_middle_of_a_whole_answer():
    async def half(_seen, wire):
        await wire.send(ok(b"x" * 1000)[:500])
        await wire.gone()
        return False

    async def test(proxy, engine):
        client = await proxy.client()
        await client.send(request())
        await client.reader.readuntil(b"\r\n\r\nx")
        client.leave()
        await until(lambda: not engine.open and proxy.idle())

    scenario(test, half)


def test_leaving_while_the_connection_to_the_engine_opens():
    async def test(proxy, engine):
        await engine._server.start_serving()
        for _ in range(50):
            client = await proxy.client()
            await client.send(request())
            await until(lambda: proxy.handler.turns)
            client.leave()
            await until(proxy.idle)
        await until(lambda: not engine.open or proxy.pools["b0"].idle_connections)

    scenario(test, silent)


def test_leaving_a_call_that_does_not_pass_the_gate():
    async def test(proxy, engine):
        client = await proxy.client()
        await client.send(request(path=b"/v1/embeddings"))
        await until(lambda: engine.seen)
        assert proxy.dispatcher.in_flight(BackendId("b0")) == 1
        assert proxy.dispatcher.snapshot().arrived == 0
        client.leave()
        await until(lambda: not engine.open and proxy.idle())

    scenario(test, silent)


def test_the_place_of_one_who_leaves_goes_to_the_next():
    async def test(proxy, engine):
        first, second = await proxy.client(), await proxy.client()
        await first.send(request())
        await until(lambda: engine.seen)
        await second.send(request())
        await until(lambda: proxy.dispatcher.held)
        first.leave()
        await until(lambda: len(engine.seen) == 2)
        second.leave()
        await until(proxy.idle)

    scenario(test, silent, window=1)


def test_a_held_turn_keeps_its_bytes_and_not_what_was_parsed():
    async def test(proxy, engine):
        first, second = await proxy.client(), await proxy.client()
        await first.send(request())
        await until(lambda: engine.seen)
        await second.send(request(STREAMED))
        await until(lambda: proxy.dispatcher.held)
        assert all(turn._told.fields is None for turn in proxy.handler.turns)
        first.leave()
        second.leave()
        await until(proxy.idle)

    scenario(test, silent, window=1)


# the engine fails


def test_an_engine_that_dies_before_its_answer_is_a_502(loop):
    async def dies(_seen, _wire):
        return False

    async def test(proxy, _engine):
        answer = await proxy.ask()
        assert answer.status == 502
        assert answer.value(b"x-should-retry") == b"true"
        assert answer.value(b"x-concur-backend") == b"b0"
        assert json.loads(answer.body)["error"]["code"] == "backend_error"
        assert [record.outcome for record in proxy.records] == [Outcome.BACKEND_LOST]
        assert proxy.lost == ["b0", "b0"]  # there was no other to try

    scenario(test, dies, loop=loop)


def test_an_engine_that_cannot_be_reached_is_a_502():
    async def test(proxy, engine):
        engine._server.close()
        assert (await proxy.ask()).status == 502

    scenario(test, plain)


@pytest.mark.parametrize("end", ["hang up", "reset"])
@pytest.mark.parametrize("body", [RAW_STREAM, STREAMED], ids=["as it is", "event taken out"])
def test_a_stream_that_breaks_ends_with_an_error_and_without_an_end(body, end, loop):
    async def breaks(_seen, wire):
        await wire.send(OPEN_STREAM, piece(EVENT), piece(EVENT))
        await received.wait()
        if end == "reset":
            wire.reset()
        return False

    async def test(proxy, _engine):
        client = await proxy.client()
        await client.send(request(body))
        line = await client.reader.readuntil(b"\r\n\r\n")
        assert b"200" in line
        text = b""
        while text.count(EVENT) < 2:
            text += await client.reader.read(4096)
        received.set()
        text += await client.reader.read()
        assert text.startswith(piece(EVENT)) or body == STREAMED
        error = text.partition(EVENT + b"\r\n" if body == RAW_STREAM else b"")[2] if body == RAW_STREAM else text
        assert b'data: {"error":{"message":"The engine failed' in error
        assert not text.endswith(b"0\r\n\r\n")
        assert [record.outcome for record in proxy.records] == [Outcome.BACKEND_LOST]
        assert [(turn.status, turn.outcome) for turn in proxy.turns] == [(200, "backend_lost")]
        await client.close()

    received = asyncio.Event()
    scenario(test, breaks, loop=loop)


def test_a_stream_that_breaks_within_an_event_just_stops():
    async def breaks(_seen, wire):
        await wire.send(OPEN_STREAM, piece(EVENT), b"20\r\ndata: half")
        return False

    async def test(proxy, _engine):
        answer = await proxy.ask(RAW_STREAM)
        assert not answer.whole
        assert answer.body == EVENT + b"data: half"

    scenario(test, breaks)


@pytest.mark.parametrize("framing", [b"content-length: 100\r\n", b"transfer-encoding: chunked\r\n"])
def test_a_whole_answer_that_breaks_is_not_taken_for_whole(framing):
    async def breaks(_seen, wire):
        await wire.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n" + framing + b"\r\n")
        await wire.send(piece(b"{}") if b"chunked" in framing else b"{}")
        return False

    async def test(proxy, _engine):
        answer = await proxy.ask()
        assert (answer.status, answer.body, answer.whole) == (200, b"{}", False)

    scenario(test, breaks)


def test_a_broken_answer_to_http_1_0_is_a_reset():
    async def breaks(_seen, wire):
        await wire.send(OPEN_STREAM, piece(EVENT))
        await received.wait()
        return False

    async def test(proxy, _engine):
        client = await proxy.client()
        await client.send(b"POST /v1/chat/completions HTTP/1.0\r\ncontent-length: 15\r\n\r\n" + b'{"stream":true}')
        await client.reader.readuntil(EVENT)
        received.set()
        with pytest.raises(ConnectionResetError):
            await client.reader.read()
        client.leave()

    received = asyncio.Event()
    scenario(test, breaks)


@pytest.mark.parametrize(
    "raw",
    [
        b"GARBAGE\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\nx: 1\n\n",
        b"\r\n\r\n" + chunked(b"abc"),
        b"HTTP/1.1 200 OK\r\nx: " + b"x" * (1 << 19),
    ],
    ids=["garbage", "both framings", "other coding", "upgrade", "bare line feeds", "blank lines first", "endless head"],
)
def test_an_answer_that_is_not_http_is_a_502(raw):
    async def script(_seen, wire):
        await wire.send(raw)
        await wire.gone()
        return False

    async def test(proxy, _engine):
        assert (await proxy.ask()).status == 502
        assert [record.outcome for record in proxy.records] == [Outcome.ENGINE_ERROR]

    scenario(test, script)


def test_a_second_answer_behind_the_first_never_reaches_a_client():
    async def twice(_seen, wire):
        await wire.send(ok() + ok(b"forged"))

    async def test(proxy, engine):
        client = await proxy.client()
        for _ in range(2):
            await client.send(request())
            assert (await client.answer()).body == b'{"ok":true}'
        await client.close()
        assert engine.connections == 2

    scenario(test, twice)


def test_a_second_answer_behind_chunks_never_reaches_a_client():
    async def twice(_seen, wire):
        raw = chunked(b"abc", kind=b"text/plain") + ok(b"forged")
        await wire.send(raw[:start])
        await received.wait()
        await wire.send(raw[start:])

    async def test(proxy, _engine):
        answer = await proxy.ask()
        assert answer.status == 502

        nonlocal start
        start = 80
        received.clear()
        client = await proxy.client()
        await client.send(request())
        text = await client.reader.readuntil(b"\r\n\r\n")
        received.set()
        text += await client.reader.read()
        assert text.startswith(b"HTTP/1.1 200")
        assert b"forged" not in text
        assert not text.endswith(b"0\r\n\r\n")
        await client.close()

    start = 0
    received = asyncio.Event()
    received.set()
    scenario(test, twice)


def test_time_limits_of_the_engine_can_be_set(loop):
    async def test(proxy, engine):
        answer = await proxy.ask()
        assert answer.status == 504
        assert json.loads(answer.body)["error"]["code"] == "backend_timeout"
        assert [record.outcome for record in proxy.records] == [Outcome.TIMED_OUT]
        await until(lambda: not engine.open)

    scenario(test, silent, loop=loop, upstream=UpstreamSettings(first_byte_timeout_s=0.05))


def test_silence_within_a_stream_can_be_limited(loop):
    async def test(proxy, engine):
        answer = await proxy.ask(RAW_STREAM)
        assert not answer.whole
        assert b"sent nothing for 0.05 s" in answer.body
        await until(lambda: not engine.open)

    scenario(test, endless, loop=loop, upstream=UpstreamSettings(idle_timeout_s=0.05))


# two engines


def test_a_turn_that_one_engine_lost_early_runs_on_the_other(loop):
    async def dies(_seen, _wire):
        return False

    async def test(proxy, first, second):
        for _ in range(4):
            answer = await proxy.ask()
            assert (answer.status, answer.value(b"x-concur-backend")) == (200, b"b1")
        assert first.seen
        assert len(second.seen) == 4

    scenario(test, dies, plain, loop=loop)


def test_a_turn_during_which_two_engines_died_is_refused():
    async def dies(_seen, _wire):
        return False

    async def test(proxy, *engines):
        assert (await proxy.ask()).status == 502
        assert sum(len(engine.seen) for engine in engines) == 2

    scenario(test, dies, dies, dies)


def test_a_call_outside_the_gate_tries_the_other_engine_too():
    async def dies(_seen, _wire):
        return False

    async def test(proxy, _first, second):
        answer = await proxy.ask(path=b"/v1/embeddings")
        assert (answer.status, answer.value(b"x-concur-backend")) == (200, b"b1")
        assert len(second.seen) == 1

    scenario(test, dies, plain)


def test_calls_outside_the_gate_go_to_the_least_busy():
    async def test(proxy, *engines):
        clients = [await proxy.client() for _ in range(4)]
        for number, client in enumerate(clients):
            await client.send(request(path=b"/v1/embeddings"))
            await until(lambda count=number: sum(len(engine.seen) for engine in engines) == count + 1)
        assert [len(engine.seen) for engine in engines] == [2, 2]
        for client in clients:
            client.leave()
        await until(proxy.idle)

    scenario(test, silent, silent)


def test_a_response_is_asked_for_where_it_was_made():
    async def makes(_seen, wire):
        await wire.send(ok(b'{"id":"resp_%d","object":"response"}' % len(made)))
        made.append(1)

    async def test(proxy, *_engines):
        for home in (BackendId("b0"), BackendId("b1")):
            other = BackendId("b0") if home == "b1" else BackendId("b1")
            proxy.dispatcher.backend_event(other, BackendEvent.DRAINING)
            answer = await proxy.ask(path=b"/v1/responses")
            proxy.dispatcher.backend_event(other, BackendEvent.UP)
            name = json.loads(answer.body)["id"].encode()
            for path, method, body in (
                (b"/v1/responses/" + name, b"GET", b""),
                (b"/v1/responses/" + name + b"/cancel", b"POST", b""),
                (b"/v1/responses", b"POST", b'{"previous_response_id":"%b"}' % name),
            ):
                again = await proxy.ask(body, path=path, method=method)
                assert again.value(b"x-concur-backend") == home.encode()
            proxy.dispatcher.backend_event(home, BackendEvent.LOST)
            elsewhere = await proxy.ask(b"", path=b"/v1/responses/" + name, method=b"GET")
            assert elsewhere.value(b"x-concur-backend") == other.encode()
            proxy.dispatcher.backend_event(home, BackendEvent.UP)

    made = []
    scenario(test, makes, makes)


def test_a_streamed_response_is_known_while_it_streams():
    async def streams(seen, wire):
        if b"GET" in seen.line:
            await wire.send(ok())
            return
        created = b'event: response.created\ndata: {"type":"response.created","response":{"id":"resp_9"}}\n\n'
        delta = b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":"a"}\n\n'
        await wire.send(OPEN_STREAM, piece(created), piece(delta))
        await asked.wait()
        await wire.send(b"0\r\n\r\n")

    async def test(proxy, *_engines):
        proxy.dispatcher.backend_event(BackendId("b0"), BackendEvent.DRAINING)
        client = await proxy.client()
        await client.send(request(b'{"stream":true}', path=b"/v1/responses"))
        await client.reader.readuntil(b'"delta":"a"')
        proxy.dispatcher.backend_event(BackendId("b0"), BackendEvent.UP)
        answer = await proxy.ask(b"", path=b"/v1/responses/resp_9", method=b"GET")
        assert answer.value(b"x-concur-backend") == b"b1"
        asked.set()
        await until(proxy.idle)
        await client.close()

    asked = asyncio.Event()
    scenario(test, streams, streams)


# an engine that is full


def test_a_full_engine_is_asked_again_and_the_client_sees_nothing(loop):
    async def full_at_first(seen, wire):
        if len(counted) < 2:
            counted.append(seen)
            await wire.send(ok(b"full", status=b"503 Service Unavailable", extra=b"retry-after: 0\r\n"))
        else:
            await wire.send(ok())

    async def test(proxy, engine):
        answer = await proxy.ask()
        assert (answer.status, answer.body) == (200, b'{"ok":true}')
        assert len(engine.seen) == 3
        assert proxy.overloaded == ["b0", "b0"]
        assert proxy.dispatcher.snapshot().requeued == 2

    counted = []
    scenario(test, full_at_first, loop=loop)


def test_the_answer_of_an_engine_that_stays_full_reaches_the_client():
    async def full(_seen, wire):
        await wire.send(ok(b"full", status=b"429 Too Many Requests", extra=b"retry-after: 0\r\n"))

    async def test(proxy, engine):
        answer = await proxy.ask()
        assert (answer.status, answer.body, answer.value(b"retry-after")) == (429, b"full", b"0")
        assert len(engine.seen) == MAX_TRIES
        assert [record.outcome for record in proxy.records] == [Outcome.OVERLOADED]

    scenario(test, full)


def test_a_client_may_leave_while_its_turn_waits_for_a_full_engine():
    async def full(_seen, wire):
        await wire.send(ok(b"full", status=b"503 Service Unavailable", extra=b"retry-after: 60\r\n"))

    async def test(proxy, _engine):
        client = await proxy.client()
        await client.send(request())
        await until(lambda: proxy.dispatcher.held)
        client.leave()
        await until(proxy.idle)

    scenario(test, full)


def test_a_long_answer_of_a_full_engine_is_not_kept():
    body = b"x" * (200 << 10)

    async def full(_seen, wire):
        await wire.send(ok(body, status=b"503 Service Unavailable"))

    async def test(proxy, _engine):
        answer = await proxy.ask()
        assert (answer.status, answer.body) == (503, body)

    scenario(test, full)


def test_a_full_engine_does_not_hold_calls_outside_the_gate():
    async def full(_seen, wire):
        await wire.send(ok(b"full", status=b"503 Service Unavailable"))

    async def test(proxy, _engine):
        assert (await proxy.ask(path=b"/v1/embeddings")).status == 503
        assert proxy.overloaded == ["b0"]

    scenario(test, full)


# what the engine answers is counted


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(b"200 OK", "completed"), (b"400 Bad Request", "client_error"), (b"500 Internal Server Error", "engine_error")],
)
def test_outcomes_follow_the_engines_status(status, outcome):
    async def script(_seen, wire):
        await wire.send(ok(status=status))

    async def test(proxy, _engine):
        assert (await proxy.ask()).status == int(status[:3])
        assert [record.outcome.value for record in proxy.records] == [outcome]
        assert [turn.outcome for turn in proxy.turns] == [outcome]

    scenario(test, script)


def test_one_turn_is_logged_with_all_that_is_known():
    usage = b'{"choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":2}}'

    async def script(_seen, wire):
        await wire.send(ok(usage))

    async def test(proxy, _engine):
        await proxy.ask(
            headers=b"x-session-id: s\r\nx-request-id: r\r\nauthorization: Bearer k\r\n", path=b"/v1/completions?a=1"
        )
        (turn,) = proxy.turns
        assert (turn.request_id, turn.method, turn.path, turn.kind) == ("r", "POST", "/v1/completions", "completions")
        assert (turn.status, turn.outcome, turn.backend, turn.rule) == (200, "completed", "b0", "operator")
        assert turn.session.id == "s"
        assert turn.session.namespace not in ("", "-")
        assert "k" not in turn.session.namespace or len(turn.session.namespace) > 8
        assert (turn.usage.prompt_tokens, turn.usage.completion_tokens) == (7, 2)
        assert 0 <= turn.queued_s <= turn.total_s

    scenario(test, script)


def test_one_id_under_two_keys_is_two_sessions():
    async def test(proxy, _engine):
        for key in (b"one", b"two", b"one"):
            await proxy.ask(headers=b"x-session-id: s\r\nauthorization: Bearer " + key + b"\r\n")
        names = [turn.session for turn in proxy.turns]
        assert names[0] == names[2] != names[1]
        await proxy.ask(headers=b"x-session-id: s\r\nx-api-key: one\r\n")
        assert proxy.turns[3].session == names[0]
        for key in set(names):
            proxy.dispatcher.end_session(key)

    scenario(test, plain)


@pytest.mark.parametrize("session", [b"x" * 5000, b"a\tb", b"\xff\x00".replace(b"\x00", b"")])
def test_session_ids_that_cannot_be_used_make_one_turn_sessions(session):
    async def test(proxy, _engine):
        answer = await proxy.ask(headers=b"x-session-id: " + session + b"\r\n")
        assert answer.status == 200
        if session != b"\xff":
            assert answer.value(b"x-concur-session").startswith(b"turn-")
            assert proxy.turns[0].session_rejected

    scenario(test, plain)


def test_a_session_id_beyond_ascii_is_escaped_in_the_answer():
    async def test(proxy, _engine):
        answer = await proxy.ask('{"session_id":"agent-\u00e9"}'.encode())
        assert answer.value(b"x-concur-session") == b"agent-%C3%A9"
        proxy.dispatcher.end_session(SessionKey("-", "agent-\u00e9"))

    scenario(test, plain)


# the gate refuses


def test_a_turn_that_waits_too_long_is_told_when_to_retry(loop):
    async def test(proxy, engine):
        first = await proxy.client()
        await first.send(request())
        await until(lambda: engine.seen)
        answer = await proxy.ask()
        assert answer.status == 503
        assert answer.value(b"retry-after") == b"2"
        assert answer.value(b"retry-after-ms") == b"1500"
        assert answer.value(b"x-should-retry") == b"true"
        assert int(answer.value(b"x-concur-queued-ms")) >= 50
        assert json.loads(answer.body)["error"]["code"] == "queue_timeout"
        assert [(turn.status, turn.outcome) for turn in proxy.turns] == [(503, "queue_timeout")]
        first.leave()
        await until(proxy.idle)

    scenario(test, silent, loop=loop, window=1, policy=GatePolicy(max_wait_s=0.05, retry_after_s=1.5))


def test_a_full_queue_is_a_429_in_the_shape_of_the_api():
    async def test(proxy, engine):
        first = await proxy.client()
        await first.send(request())
        await until(lambda: engine.seen)
        answer = await proxy.ask(path=b"/v1/messages")
        assert answer.status == 429
        told = json.loads(answer.body)
        assert (told["type"], told["error"]["type"]) == ("error", "rate_limit_error")
        first.leave()
        await until(proxy.idle)

    scenario(test, silent, window=1, policy=GatePolicy(max_held=0))


def test_without_a_healthy_backend(loop):
    async def test(proxy, engine):
        proxy.dispatcher.backend_event(BackendId("b0"), BackendEvent.LOST)
        for path in (b"/v1/chat/completions", b"/v1/embeddings"):
            answer = await proxy.ask(path=path)
            assert (answer.status, answer.value(b"retry-after")) == (503, b"2")
            assert json.loads(answer.body)["error"]["code"] == "no_backend"
        assert not engine.seen

    scenario(test, plain, loop=loop)


def test_an_unknown_model():
    async def test(proxy, engine):
        answer = await proxy.ask(b'{"model":"other"}')
        assert answer.status == 404
        told = json.loads(answer.body)["error"]
        assert (told["code"], told["param"]) == ("model_not_found", "model")
        assert not engine.seen
        assert proxy.turns[0].outcome == "client_error"

    scenario(test, plain, resolve=lambda model: None if model == "other" else "default")


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff\xfe", b"null", b"", b'{"model":7}', b'{"messages":[]}'])
def test_bodies_that_tell_nothing_are_forwarded_as_they_are(body):
    async def test(proxy, engine):
        assert (await proxy.ask(body)).status == 400
        assert engine.seen[0].body == body

    async def refuses(_seen, wire):
        await wire.send(ok(status=b"400 Bad Request"))

    scenario(test, refuses)


def test_the_model_of_a_form_is_found():
    async def test(proxy, _engine):
        form = b'--B\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper\r\n--B--\r\n'
        await proxy.ask(
            form, path=b"/v1/audio/transcriptions", headers=b"content-type: multipart/form-data; boundary=B\r\n"
        )
        assert asked == ["whisper"]

    def resolve(model):
        asked.append(model)
        return "default"

    asked = []
    scenario(test, plain, resolve=resolve)


def test_a_compressed_body_is_not_read():
    async def test(proxy, engine):
        await proxy.ask(STREAMED, headers=b"content-encoding: identity-of-ours\r\n")
        assert engine.seen[0].body == STREAMED

    scenario(test, plain)


# the end


def test_shutdown_refuses_held_and_new_turns_and_lets_running_ones_end(loop):
    async def waits(_seen, wire):
        await release.wait()
        await wire.send(ok())

    async def test(proxy, engine):
        running, held, new = [await proxy.client() for _ in range(3)]
        await running.send(request())
        await until(lambda: engine.seen)
        await held.send(request())
        await until(lambda: proxy.dispatcher.held)
        proxy.handler.begin_shutdown()
        for client in (held, new):
            if client is new:
                await client.send(request())
            answer = await client.answer()
            assert (answer.status, answer.value(b"retry-after"), answer.value(b"connection")) == (503, b"2", b"close")
            assert json.loads(answer.body)["error"]["code"] == "shutting_down"
            assert await client.at_end()
            await client.close()
        release.set()
        assert (await running.answer()).status == 200
        await running.close()

    release = asyncio.Event()
    scenario(test, waits, loop=loop, window=1)


def test_what_still_runs_at_the_very_end_gives_its_lease_back():
    async def test(proxy, engine):
        client = await proxy.client()
        await client.send(request())
        await until(lambda: engine.seen)
        proxy.handler.abort_all()
        await until(lambda: proxy.idle() and not engine.open)
        assert [record.outcome for record in proxy.records] == [Outcome.SHUTDOWN]
        client.leave()

    scenario(test, silent)


def test_a_bug_ends_the_request_and_leaves_nothing(caplog):
    async def test(proxy, _engine):
        assert (await proxy.ask()).status == 500
        assert message in caplog.text

    class Pools(dict):
        def get(self, _key):
            raise ZeroDivisionError

    def broken(_model):
        raise ZeroDivisionError

    message = "could not be started"
    scenario(test, plain, resolve=broken)

    async def no_pools(proxy, _engine):
        proxy.handler.pools = Pools()
        await test(proxy, _engine)

    message = "could not be sent"
    scenario(no_pools, plain)


def test_observing_holds_nothing():
    async def test(proxy, engine):
        clients = [await proxy.client() for _ in range(3)]
        for client in clients:
            await client.send(request())
        await until(lambda: len(engine.seen) == 3)
        for client in clients:
            client.leave()
        await until(proxy.idle)

    scenario(test, silent, window=1, policy=GatePolicy(mode="observe"))


def test_extra_paths_are_forwarded():
    async def test(proxy, engine):
        assert (await proxy.ask(b"", path=b"/custom/thing", method=b"GET")).status == 200
        assert (await proxy.ask(b"", path=b"/custom/reset_prefix_cache")).status == 404
        assert len(engine.seen) == 1
        assert proxy.turns[0].kind == "other"

    scenario(test, plain, settings=HandlerSettings(extra_paths=("/custom/*",)))
