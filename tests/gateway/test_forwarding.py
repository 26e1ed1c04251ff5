"""What passes through, byte for byte."""

import asyncio
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from concur_proxy.gateway.handler import HandlerSettings
from tests.gateway.harness import CHAT, STREAMED, Engine, Proxy, chunked, ok, request, run


def through(script, *requests, loop="uvloop", **options):
    """Send requests, each on the same connection; return the answers and what the engine saw."""
    answers = []

    async def main():
        async with Engine(script) as engine, Proxy((engine,), **options) as proxy:
            client = await proxy.client()
            for one in requests:
                await client.send(one)
                answers.append(await client.answer(head_only=one.startswith(b"HEAD")))
            await client.close()
            seen.extend(engine.seen)

    seen = []
    run(main(), loop)
    return answers, seen


def answering(raw, *, close=False):
    async def script(_seen, wire):
        await wire.send(raw)
        return not close

    return script


def test_a_plain_turn_goes_through(loop):
    (answer,), (seen,) = through(None, request(CHAT), loop=loop)
    assert (answer.status, answer.body) == (200, b'{"ok":true}')
    assert seen.line == b"POST /v1/chat/completions HTTP/1.1"
    assert seen.body == CHAT
    assert seen.values(b"content-length") == [b"%d" % len(CHAT)]


def test_answers_say_what_the_proxy_did():
    (answer,), _ = through(None, request(CHAT, headers=b"x-session-id: agent-7\r\n"))
    assert answer.value(b"x-concur-session") == b"agent-7"
    assert answer.value(b"x-concur-backend") == b"b0"
    assert answer.value(b"x-concur-queued-ms") == b"0"
    assert len(answer.value(b"x-request-id")) == 32


def test_a_request_id_is_kept_both_ways():
    (answer,), (seen,) = through(None, request(headers=b"X-Request-Id: mine\r\n"))
    assert answer.value(b"x-request-id") == b"mine"
    assert seen.values(b"x-request-id") == [b"mine"]


def test_the_engines_own_request_id_is_the_only_one():
    (answer,), _ = through(answering(ok(extra=b"X-Request-Id: engine\r\n")), request())
    assert answer.value(b"x-request-id") == b"engine"


def test_request_headers_are_kept_but_for_this_hop():
    headers = (
        b"Authorization: Bearer k\r\nX-Twice: 1\r\nx-twice: 2\r\n"
        b"X-Latin: caf\xe9\r\nConnection: keep-alive, X-Private\r\nX-Private: p\r\nKeep-Alive: timeout=5\r\n"
        b"TE: trailers\r\nProxy-Authorization: secret\r\nX-Concur-Backend: forged\r\nAccept-Encoding: br\r\n"
    )
    _, (seen,) = through(None, request(headers=headers))
    ours = (b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host", b"x-request-id", b"host")
    rest = [pair for pair in seen.headers if pair[0] not in (*ours, b"content-length")]
    assert rest == [
        (b"Authorization", b"Bearer k"),
        (b"X-Twice", b"1"),
        (b"x-twice", b"2"),
        (b"X-Latin", b"caf\xe9"),
        (b"Accept-Encoding", b"br"),
    ]


def test_the_engine_hears_where_a_request_comes_from():
    _, (seen,) = through(None, request())
    assert seen.values(b"x-forwarded-for") == [b"127.0.0.1"]
    assert seen.values(b"x-forwarded-proto") == [b"http"]
    assert seen.values(b"x-forwarded-host") == [b"proxy.test"]
    assert len(seen.values(b"x-request-id")[0]) == 32


def test_no_trace_is_made_up_where_nobody_traces():
    """Its flag would have the engine trace every request, whatever ratio it samples by."""
    _, (seen,) = through(None, request())
    assert seen.values(b"traceparent") == []


def test_what_earlier_proxies_said_is_kept():
    told = (
        b"X-Forwarded-For: 10.0.0.1\r\nX-Forwarded-For: 10.0.0.2\r\nX-Forwarded-Proto: https\r\n"
        b"X-Forwarded-Host: \xe2\x82\xac.test\r\ntraceparent: 00-aa-bb-01\r\n"
    )
    _, (seen,) = through(None, request(headers=told))
    assert seen.values(b"x-forwarded-for") == [b"10.0.0.1, 10.0.0.2, 127.0.0.1"]
    assert seen.values(b"x-forwarded-proto") == [b"https"]
    assert seen.values(b"x-forwarded-host") == [b"\xe2\x82\xac.test"]
    assert seen.values(b"traceparent") == [b"00-aa-bb-01"]


def test_response_headers_are_kept_but_for_this_hop():
    extra = (
        b"Set-Cookie: a=1\r\nSet-Cookie: b=2\r\nX-Latin: caf\xe9\r\nConnection: X-Private\r\nX-Private: p\r\n"
        b"Keep-Alive: timeout=5\r\nX-Concur-Session: forged\r\nContent-Encoding: zstd\r\nX-Empty:  \r\n"
    )
    (answer,), _ = through(answering(ok(b"\x28\xb5", extra=extra)), request())
    ours = (b"x-request-id", b"x-concur-session", b"x-concur-backend", b"x-concur-queued-ms")
    assert [pair for pair in answer.headers if pair[0] not in ours] == [
        (b"content-type", b"application/json"),
        (b"content-length", b"2"),
        (b"Set-Cookie", b"a=1"),
        (b"Set-Cookie", b"b=2"),
        (b"X-Latin", b"caf\xe9"),
        (b"Content-Encoding", b"zstd"),
        (b"X-Empty", b""),
    ]
    assert answer.value(b"x-concur-session") != b"forged"
    assert answer.body == b"\x28\xb5"


def test_a_body_in_chunks_is_forwarded_whole():
    head = b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: p\r\nTransfer-Encoding: chunked\r\n"
    head += b"Content-Type: multipart/form-data; boundary=B\r\n\r\n"
    part = b'--B\r\nContent-Disposition: form-data; name="file"\r\n\r\n\x00\xff\r\n--B--\r\n'
    body = b"%x\r\n%b\r\n3\r\nabc\r\n0\r\nX-Trailer: t\r\n\r\n" % (len(part), part)
    _, (seen,) = through(None, head + body)
    assert seen.body == part + b"abc"
    assert seen.values(b"transfer-encoding") == []
    assert seen.values(b"content-type") == [b"multipart/form-data; boundary=B"]
    assert seen.values(b"x-trailer") == []


def test_query_strings_and_targets_are_kept():
    _, (seen,) = through(None, request(path=b"/v1/responses/resp_1?include[]=a%20b&x", method=b"GET", body=b""))
    assert seen.line == b"GET /v1/responses/resp_1?include[]=a%20b&x HTTP/1.1"
    assert seen.values(b"content-length") == []


def test_a_path_prefix_of_the_backend_stands_before_the_target():
    _, (seen,) = through(None, request(), prefix="/base/")
    assert seen.target == b"/base/v1/chat/completions"


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
def test_answers_without_a_body(status, loop):
    raw = b"HTTP/1.1 %b\r\nx-a: 1\r\n\r\n" % status
    answers, _ = through(answering(raw), request(), request(), loop=loop)
    assert [(answer.status, answer.body) for answer in answers] == [(int(status[:3]), b"")] * 2
    assert answers[0].value(b"transfer-encoding") is None
    assert answers[0].value(b"content-length") is None


def test_a_204_has_no_length():
    raw = b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n"
    (answer, _), _ = through(answering(raw), request(), request())
    assert answer.value(b"content-length") is None


def test_a_304_keeps_the_length_that_it_tells_of():
    (first, second), _ = through(
        answering(b"HTTP/1.1 304 Not Modified\r\ncontent-length: 77\r\n\r\n"), request(), request()
    )
    assert first.value(b"content-length") == b"77"
    assert second.status == 304


def test_head_has_the_headers_and_no_body(loop):
    raw = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"
    head = request(b"", path=b"/extra", method=b"HEAD")
    answers, _ = through(answering(raw), head, head, loop=loop, settings=HandlerSettings(extra_paths=("/extra",)))
    assert [answer.value(b"content-length") for answer in answers] == [b"5", b"5"]


def test_early_hints_pass_and_continue_does_not(loop):
    raw = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n" + ok()

    async def main():
        async with Engine(answering(raw)) as engine, Proxy((engine,)) as proxy:
            client = await proxy.client()
            for _ in range(2):
                await client.send(request())
                hints = await client.answer()
                assert (hints.status, hints.values(b"link")) == (103, [b"a"])
                assert (await client.answer()).body == b'{"ok":true}'
            await client.close()
            assert engine.connections == 1

    run(main(), loop)


def test_trailers_pass(loop):
    raw = chunked(b"abc", kind=b"text/plain", trailers=b"X-Sum: 1\r\nx-two: 2\r\n", extra=b"Trailer: X-Sum\r\n")
    answers, _ = through(answering(raw), request(), request(), loop=loop)
    assert [answer.trailers for answer in answers] == [[(b"X-Sum", b"1"), (b"x-two", b"2")]] * 2
    assert answers[0].value(b"trailer") == b"X-Sum"


def test_trailers_pass_where_an_event_is_taken_out():
    raw = chunked(b"data: 1\n\n", trailers=b"X-Sum: 1\r\n")
    (answer,), _ = through(answering(raw), request(STREAMED))
    assert answer.trailers == [(b"X-Sum", b"1")]


def test_a_body_that_ends_with_the_connection_becomes_chunks(loop):
    raw = b"HTTP/1.0 200 OK\r\ncontent-type: text/plain\r\n\r\nabcdef"
    answers, seen = through(answering(raw, close=True), request(), request(), loop=loop)
    assert [(answer.body, answer.whole) for answer in answers] == [(b"abcdef", True)] * 2
    assert answers[0].value(b"transfer-encoding") == b"chunked"
    assert [one.connection for one in seen] == [1, 2]


def test_a_client_of_http_1_0_gets_no_chunks(loop):
    hint = b"HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n"
    raw = hint + chunked(b"abc", b"def", kind=b"text/plain")

    async def main():
        async with Engine(answering(raw)) as engine, Proxy((engine,)) as proxy:
            client = await proxy.client()
            await client.send(b"POST /v1/chat/completions HTTP/1.0\r\ncontent-length: 2\r\n\r\n{}")
            answer = await client.answer()
            assert answer.value(b"transfer-encoding") is None
            assert answer.value(b"connection") == b"close"
            assert answer.body == b"abcdef"
            await client.close()

    run(main(), loop)


def test_the_usage_event_that_we_asked_for_is_taken_out_and_nothing_else():
    events = [
        b": ping\n\n",
        'data: {"choices":[{"delta":{"content":"h\u00e9\U0001f600"}}]}\r\n\r\n'.encode(),
        b'event: x\nid: 1\ndata: {"choices":[{"delta":{"tool_calls":[1],"reasoning":"r"}}],"usage":null}\n\n',
        b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}}\n\n',
        b"data: [DONE]\n\n",
    ]

    async def main():
        async with Engine(answering(chunked(*events))) as engine, Proxy((engine,)) as proxy:
            answer = await proxy.ask(STREAMED)
            assert answer.body == b"".join(events[:3]) + events[4]
            (seen,) = engine.seen
            assert seen.body == b'{"stream_options":{"include_usage":true},' + STREAMED[1:]
            assert seen.values(b"accept-encoding") == [b"identity"]
            (record,) = proxy.records
            assert (record.usage.prompt_tokens, record.usage.completion_tokens) == (7, 2)
            assert proxy.turns[0].usage == record.usage
            assert proxy.turns[0].first_token_s is not None

    run(main())


def test_a_usage_event_that_the_client_asked_for_stays():
    events = [b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}\n\n', b"data: [DONE]\n\n"]
    body = b'{"stream":true,"stream_options":{"include_usage":true}}'
    (answer,), (seen,) = through(answering(chunked(*events)), request(body, headers=b"Accept-Encoding: br\r\n"))
    assert answer.body == b"".join(events)
    assert seen.body == body
    assert seen.values(b"accept-encoding") == [b"br"]


def test_usage_is_not_asked_for_where_that_is_switched_off():
    _, (seen,) = through(None, request(STREAMED), settings=HandlerSettings(request_usage=False))
    assert seen.body == STREAMED


def test_an_error_in_answer_to_a_stream_keeps_its_length():
    error = b'{"error":{"message":"bad"}}'
    (answer,), _ = through(answering(ok(error, status=b"400 Bad Request")), request(STREAMED))
    assert (answer.status, answer.body) == (400, error)
    assert answer.value(b"content-length") == b"%d" % len(error)


BODIES = st.binary(max_size=3000)


def split(data, cuts):
    """Cut data at the given places, which need not be in order."""
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    return [data[start:end] for start, end in itertools.pairwise(places)]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_bytes_are_the_same_however_they_are_cut(data):
    """Invariant 8, over all framings in both directions, several requests on one connection."""
    cuts = st.lists(st.integers(0, 4000), max_size=8)
    turns = [
        (
            data.draw(BODIES),
            data.draw(st.booleans()),
            data.draw(BODIES),
            data.draw(st.sampled_from(["length", "chunks", "close"])),
            data.draw(cuts),
            data.draw(cuts),
        )
        for _ in range(data.draw(st.integers(1, 3)))
    ]

    async def script(seen, wire):
        up, _, down, framing, _, down_cuts = turns[len(engine.seen) - 1]
        assert seen.body == up
        if framing == "length":
            raw = ok(down, kind=b"application/octet-stream")
        elif framing == "chunks":
            raw = chunked(*[piece for piece in split(down, down_cuts) if piece], kind=b"text/plain")
        else:
            raw = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + down
        for piece in split(raw, down_cuts):
            await wire.send(piece)
            await asyncio.sleep(0)
        return framing != "close"

    async def main():
        nonlocal engine
        async with Engine(script) as engine, Proxy((engine,)) as proxy:
            client = await proxy.client()
            for up, in_chunks, down, _, up_cuts, _ in turns:
                if in_chunks:
                    pieces = [piece for piece in split(up, up_cuts) if piece]
                    body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
                    raw = request(body, headers=b"transfer-encoding: chunked\r\n", length=False)
                else:
                    raw = request(up)
                for piece in split(raw, up_cuts):
                    await client.send(piece)
                    await asyncio.sleep(0)
                answer = await client.answer()
                assert answer.body == down
                assert answer.whole
            await client.close()
            assert proxy.idle()

    engine = None
    run(main())
