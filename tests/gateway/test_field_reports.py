"""Faults that users of other routers and gateways report, where no other test had them; FIELD_REPORTS.md lists all."""

import asyncio
import json
import tracemalloc

import pytest

from concur_proxy.config import UpstreamSettings
from concur_proxy.core.gate import GatePolicy
from concur_proxy.gateway.handler import HandlerSettings
from concur_proxy.model import Outcome
from tests.core.answers import USAGE_CHUNK, chunk, event
from tests.gateway.harness import CHAT, STREAMED, Engine, Proxy, chunked, ok, request, run, until
from tests.gateway.test_handler import EVENT, OPEN_STREAM, endless, piece, plain, scenario, silent

# client goes away, accounting leaks


async def half(_seen, wire):
    """Answer half of what was announced, then wait."""
    await wire.send(ok(b"x" * 1000)[:500])
    await wire.gone()
    return False


def test_leaving_in_the_middle_of_a_whole_answer_500_times(loop):
    async def test(proxy, engine):
        for _ in range(500):
            client = await proxy.client()
            await client.send(request())
            await client.reader.readuntil(b"\r\n\r\nx")
            client.leave()
            await until(lambda: not engine.open and proxy.idle())
        assert {(turn.status, turn.outcome) for turn in proxy.turns} == {(200, "cancelled")}

    scenario(test, half, loop=loop)


def test_leaving_at_every_moment_at_once_leaves_nothing(loop):
    """Held, opening a connection, waiting, reading: sixty clients go in the same turn of the loop, nine times."""

    async def some(seen, wire):
        await (endless if b"stream" in seen.body else silent)(seen, wire)
        return False

    async def test(proxy, engine):
        for _ in range(9):
            clients = [await proxy.client() for _ in range(60)]
            for number, client in enumerate(clients):
                session = b"x-session-id: s%d\r\n" % (number % 40)
                raw = request(STREAMED if number % 2 else CHAT, headers=session)
                await client.send(raw[:-1] if number % 7 == 0 else raw)
            await until(lambda: engine.seen and proxy.dispatcher.held)
            for client in clients:
                client.leave()
            await until(lambda: proxy.idle() and not proxy.state.connections)
            await until(lambda: engine.open == proxy.pools["b0"].idle_connections)
        assert {record.outcome for record in proxy.records} == {Outcome.CANCELLED}
        snapshot = proxy.dispatcher.snapshot()
        assert (snapshot.running, snapshot.held) == (0, 0)
        assert snapshot.arrived == snapshot.admitted + snapshot.abandoned == 9 * 51

    scenario(test, some, loop=loop, window=10)


def test_who_left_while_held_is_no_session():
    """A cancelled admission that left a place behind would keep everyone else out for as long as a lease lasts."""

    async def test(proxy, engine):
        first = await proxy.client()
        await first.send(request(CHAT, headers=b"x-session-id: first\r\n"))
        await until(lambda: engine.seen)
        for number in range(20):
            client = await proxy.client()
            await client.send(request(CHAT, headers=b"x-session-id: gone-%d\r\n" % number))
            await until(lambda: proxy.dispatcher.held == 1)
            client.leave()
            await until(lambda: not proxy.dispatcher.held)
        assert {told.key.id for told in proxy.gate.sessions(now=proxy.dispatcher.clock())} <= {"first"}
        first.leave()
        await until(proxy.idle)

    scenario(test, silent, window=1)


def test_a_stream_counts_until_its_end_and_not_until_its_headers(loop):
    async def streams(seen, wire):
        await wire.send(OPEN_STREAM, piece(EVENT))
        if len(seen_by_engine()) == 1:
            await release.wait()
        await wire.send(b"0\r\n\r\n")

    async def test(proxy, engine):
        nonlocal seen_by_engine
        seen_by_engine = lambda: engine.seen  # noqa: E731
        first, second = await proxy.client(), await proxy.client()
        await first.send(request(STREAMED))
        await first.reader.readuntil(b"data: ")
        await second.send(request(STREAMED))
        await until(lambda: proxy.dispatcher.held)
        assert proxy.dispatcher.snapshot().running == 1
        assert len(engine.seen) == 1
        release.set()
        assert (await second.answer()).body == EVENT
        await first.close()
        await second.close()

    seen_by_engine = None
    release = asyncio.Event()
    scenario(test, streams, loop=loop, window=1)


def test_a_stream_that_outlasts_every_lease_keeps_its_place():
    """Nobody reaps what still runs: leases are for sessions whose agent is away."""

    async def streams(_seen, wire):
        await wire.send(OPEN_STREAM, piece(EVENT))
        await release.wait()
        await wire.send(b"0\r\n\r\n")

    async def test(proxy, engine):
        first, second = await proxy.client(), await proxy.client()
        await first.send(request(STREAMED, headers=b"x-session-id: first\r\n"))
        await first.reader.readuntil(b"data: ")
        await second.send(request(STREAMED, headers=b"x-session-id: second\r\n"))
        await until(lambda: proxy.dispatcher.held)
        end = asyncio.get_running_loop().time() + 0.3  # thirty times the longest lease
        await until(lambda: asyncio.get_running_loop().time() > end)
        assert (len(engine.seen), proxy.dispatcher.snapshot().running, proxy.dispatcher.held) == (1, 1, 1)
        release.set()
        assert (await second.answer()).body == EVENT
        await first.close()
        await second.close()

    release = asyncio.Event()
    policy = GatePolicy(lease_min_s=0.01, lease_max_s=0.01)
    scenario(test, streams, window=1, policy=policy)


@pytest.mark.parametrize("fault", ["close", "reset", "garbage", "half", "500", "refused"])
def test_nothing_is_left_of_turns_that_fail(fault):
    async def fails(_seen, wire):
        if fault == "reset":
            wire.reset()
        elif fault == "garbage":
            await wire.send(b"GARBAGE\r\n\r\n")
        elif fault == "half":
            await wire.send(OPEN_STREAM, piece(EVENT), b"ff\r\nhalf")
        elif fault == "500":
            await wire.send(ok(status=b"500 Internal Server Error"))
        return False

    async def test(proxy, engine):
        if fault == "refused":
            engine._server.close()
        for _ in range(50):
            await proxy.ask(STREAMED)
        assert proxy.idle()
        snapshot = proxy.dispatcher.snapshot()
        assert (snapshot.admitted, snapshot.running, snapshot.held) == (50, 0, 0)

    scenario(test, fails)


# hangs and restarts


def test_a_thousand_in_flight_to_one_engine_and_the_probe_answers(loop):
    """No hidden limit of a hundred connections, and liveness does not stand in line."""
    many = 1000

    async def waits(_seen, wire):
        await release.wait()
        await wire.send(ok())

    async def test(proxy, engine):
        clients = [await proxy.client() for _ in range(many)]
        for client in clients:
            await client.send(request())
        await until(lambda: len(engine.seen) == many)
        for path in (b"/livez", b"/readyz"):
            assert (await proxy.ask(b"", path=path, method=b"GET")).status == 200
        assert proxy.dispatcher.snapshot().running == many
        release.set()
        for client in clients:
            assert (await client.answer()).status == 200
            client.leave()

    release = asyncio.Event()
    scenario(test, waits, loop=loop)


def test_one_engine_that_hangs_keeps_no_turn_of_the_other_waiting():
    async def test(proxy, bad, good):
        clients = [await proxy.client() for _ in range(40)]
        for client in clients:
            await client.send(request())
        await until(lambda: len(bad.seen) + len(good.seen) == len(clients))
        assert bad.seen
        assert good.seen
        await until(lambda: len(proxy.turns) == len(good.seen))
        assert {turn.backend for turn in proxy.turns} == {"b1"}
        for client in clients:
            client.leave()
        await until(proxy.idle)

    scenario(test, silent, plain)


def test_an_engine_restarted_on_its_port_serves_the_next_turn(loop):
    """The kept connections are dead; that is found out and costs no turn."""

    async def main():
        async with Engine() as first:
            proxy = Proxy((first,), upstream=UpstreamSettings(keepalive_s=60))
            await proxy.__aenter__()
            answers = await asyncio.gather(*(proxy.ask() for _ in range(5)))
        try:
            second = Engine()
            second.host_port = first.port
            server = await asyncio.start_server(second._serve, "127.0.0.1", first.port)
            second._tasks, second._server = set(), server
            answers += await asyncio.gather(*(proxy.ask() for _ in range(5)))
            assert [answer.status for answer in answers] == [200] * 10
            assert len(second.seen) == 5
            assert not proxy.lost
        finally:
            await proxy.__aexit__(None, None, None)
            await second.__aexit__(None, None, None)

    run(main(), loop)


def test_what_one_client_does_wrong_is_no_fault_of_the_engine():
    async def refuses(seen, wire):
        await wire.send(ok(status=b"200 OK" if b"good" in seen.body else b"400 Bad Request"))

    async def test(proxy, _engine):
        for _ in range(50):
            assert (await proxy.ask(b'{"messages":"bad"}')).status == 400
            assert (await proxy.ask(b'{"messages":"good"}')).status == 200
        assert not proxy.lost
        assert not proxy.overloaded

    scenario(test, refuses)


# timeouts


@pytest.mark.parametrize("where", ["before the first byte", "in a stream"])
def test_nothing_by_default_limits_how_long_an_engine_is_silent(where):
    async def script(seen, wire):
        await (silent if where == "before the first byte" else endless)(seen, wire)
        return False

    async def test(proxy, engine):
        client = await proxy.client()
        await client.send(request(STREAMED))
        await until(lambda: engine.seen)
        if where == "in a stream":
            await client.reader.readuntil(b"data: ")
        (connection,) = proxy.pools["b0"]._connections
        assert connection._timer is None
        (held,) = proxy.state.connections
        assert held.due() == float("inf") or held.due() > held.wheel.tick + 10**6
        client.leave()
        await until(proxy.idle)

    scenario(test, script)


# SSE


LARGE = 8 << 20


@pytest.mark.parametrize("how", ["one event", "many events"])
@pytest.mark.parametrize("body", [STREAMED, b'{"stream":true,"stream_options":{"include_usage":true}}'])
def test_eight_megabytes_of_tool_call_arguments(how, body):
    def call(arguments):
        return event(chunk({"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]}))

    argument = 'a"\u00e9\\' * 64
    events = [call(argument) for _ in range(LARGE // 512)] if how == "many events" else [call("x" * LARGE)]
    events += [event(chunk({}, "tool_calls")), event(USAGE_CHUNK), event("[DONE]")]
    sent = b"".join(events)

    async def streams(_seen, wire):
        raw = chunked(*(sent[start : start + 50_000] for start in range(0, len(sent), 50_000)))
        await wire.send(*(raw[start : start + 30_000] for start in range(0, len(raw), 30_000)))

    async def test(proxy, _engine):
        answer = await proxy.ask(body)
        assert answer.whole
        assert len(sent) > LARGE
        assert answer.body == (sent if body != STREAMED else sent.replace(event(USAGE_CHUNK), b""))
        assert proxy.records[0].usage.completion_tokens == 7

    scenario(test, streams)


@pytest.mark.parametrize("end", [b"0\r\n\r\n", b""], ids=["proper end", "connection closed"])
def test_a_stream_without_done_ends_as_the_engine_ends_it(end):
    async def streams(_seen, wire):
        head = OPEN_STREAM if end else OPEN_STREAM.replace(b"transfer-encoding: chunked\r\n", b"")
        await wire.send(head, piece(EVENT) if end else EVENT, end)
        return bool(end)

    async def test(proxy, _engine):
        answer = await proxy.ask(STREAMED)
        assert (answer.body, answer.whole) == (EVENT, True)
        assert [record.outcome for record in proxy.records] == [Outcome.COMPLETED]

    scenario(test, streams)


def test_every_event_arrives_before_the_next_is_made(loop):
    """A proxy that buffers anything, be it the first chunk, would wait here for ever."""
    events = [
        b": ping\n\n",
        EVENT,
        "data: \u65e5".encode()[:-1],
        "data: \u65e5".encode()[-1:] + b"\r\n\r\n",
        b"data: [DONE]\n\n",
    ]

    async def streams(_seen, wire):
        await wire.send(OPEN_STREAM)
        for one in events:
            await wire.send(piece(one))
            await arrived.acquire()
        await wire.send(b"0\r\n\r\n")

    async def test(proxy, _engine):
        client = await proxy.client()
        await client.send(request(b'{"stream":true,"stream_options":{"include_usage":true}}'))
        await client.reader.readuntil(b"\r\n\r\n")
        for one in events:
            assert await client.reader.readexactly(len(piece(one))) == piece(one)
            arrived.release()
        assert await client.reader.readexactly(5) == b"0\r\n\r\n"
        await client.close()

    arrived = asyncio.Semaphore(0)
    scenario(test, streams, loop=loop)


# bodies


@pytest.mark.parametrize("size", [200_000, 2_000_000, 20_000_000])
def test_long_prompts_pass(size):
    async def test(proxy, engine):
        body = json.dumps(
            {"model": "m", "messages": [{"role": "user", "content": "w\u00f6rd " * (size // 10)}]}
        ).encode()
        answer = await proxy.ask(body, headers=b"x-session-id: long\r\n")
        assert answer.status == 200
        assert engine.seen[0].body == body
        assert proxy.turns[0].session.id == "long"
        proxy.dispatcher.end_session(proxy.turns[0].session)

    scenario(test, plain)


@pytest.mark.parametrize("in_chunks", [False, True], ids=["length", "chunks"])
def test_multipart_audio_neither_hangs_nor_is_cut(in_chunks, loop):
    audio = bytes(range(256)) * 20_000
    form = b'--B\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper\r\n'
    form += b'--B\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n' + audio + b"\r\n--B--\r\n"

    async def test(proxy, engine):
        client = await proxy.client()
        headers = b"content-type: multipart/form-data; boundary=B\r\n"
        cuts = range(0, len(form), 50_001)
        body = form
        if in_chunks:
            headers += b"transfer-encoding: chunked\r\n"
            pieces = [form[start : start + 50_001] for start in cuts]
            body = b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in pieces) + b"0\r\n\r\n"
        raw = request(body, path=b"/v1/audio/transcriptions", headers=headers, length=not in_chunks)
        await client.send(*(raw[start : start + 40_000] for start in range(0, len(raw), 40_000)))
        assert (await client.answer()).status == 200
        assert engine.seen[0].body == form
        assert engine.seen[0].values(b"content-length") == [b"%d" % len(form)]
        await client.close()

    scenario(test, plain, loop=loop)


def test_a_body_is_in_memory_once_while_its_turn_is_held():
    """And not at all any more once it is answered."""
    count, size = 24, 1 << 20
    body = b'{"model":"m","messages":"' + b"x" * size + b'"}'

    async def test(proxy, engine):
        first = await proxy.client()
        await first.send(request())
        await until(lambda: engine.seen)
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            clients = [await proxy.client() for _ in range(count)]
            for client in clients:
                await client.send(request(body))
            await until(lambda: proxy.dispatcher.held == count)
            assert tracemalloc.get_traced_memory()[0] - before < 1.3 * count * size
            release.set()
            for client in clients:
                assert (await client.answer()).status == 200
            engine.seen.clear()
            assert tracemalloc.get_traced_memory()[0] - before < 0.2 * count * size
        finally:
            tracemalloc.stop()
        for client in [first, *clients]:
            client.leave()

    async def waits(_seen, wire):
        await release.wait()
        await wire.send(ok())

    release = asyncio.Event()
    scenario(test, waits, window=1)


def test_the_limit_of_a_body_is_said_and_the_next_request_served():
    async def test(proxy, engine):
        for _ in range(20):
            answer = await proxy.ask(b"x" * (1 << 20))
            assert (answer.status, json.loads(answer.body)["error"]["code"]) == (413, "body_too_large")
        assert (await proxy.ask()).status == 200
        assert len(engine.seen) == 1

    scenario(test, plain, settings=HandlerSettings(max_body_bytes=1 << 16))
