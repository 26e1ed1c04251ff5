"""Whatever a body or an answer says, in whatever type, it passes as it came and nothing of the proxy fails over it."""

import asyncio
import json
import logging

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from concur_proxy.core.gate import GatePolicy
from concur_proxy.gateway.handler import HandlerSettings
from tests.gateway.harness import Engine, Proxy, chunked, ok, request, run, until

INSERTED = b'"stream_options":{"include_usage":true}'
PATHS = [b"/v1/chat/completions", b"/v1/completions", b"/v1/responses", b"/v1/messages", b"/v1/embeddings"]

TEXTS = st.one_of(
    st.sampled_from(
        ["", "\0", "a\r\nset-cookie: b", "x" * 300, "\u65e5\u672c", "_session_", "user_1_session_2", "-1", "1e999"]
    ),
    st.text(max_size=12),
)
NUMBERS = st.one_of(
    st.sampled_from([0, -1, 1 << 31, 1 << 63, -(1 << 63), 1 << 64, 10**30, 1e308, -1e308, 1e-320, -0.0, True, False]),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
)
KEYS = st.sampled_from(
    [
        *(
            "model",
            "stream",
            "stream_options",
            "include_usage",
            "messages",
            "input",
            "prompt",
            "system",
            "instructions",
        ),
        *("role", "content", "type", "text", "tools", "function", "name", "parameters", "properties", "tool_calls"),
        *(
            "session_id",
            "vllm_xargs",
            "agentic_context",
            "program_id",
            "agent_hint",
            "session_params",
            "id",
            "metadata",
        ),
        *("conversation", "user_id", "user", "extra_body", "prompt_cache_key", "previous_response_id", "background"),
        *("priority", "nvext", "agent_hints", "osl", "deadline_seconds", "kv_retention_ttl_seconds", "n", "max_tokens"),
        *(
            "max_completion_tokens",
            "max_output_tokens",
            "image_url",
            "source",
            "url",
            "data",
            "input_audio",
            "lora_path",
        ),
        *("cache_salt", "url", "input_schema", "tool_use_id", "output", "call_id", "arguments", "usage", "choices"),
        *(
            "prompt_tokens",
            "completion_tokens",
            "input_tokens",
            "output_tokens",
            "prompt_tokens_details",
            "cached_tokens",
        ),
        *("finish_reason", "stop_reason", "delta", "response", "message", "error", "status", "incomplete_details"),
    ]
)
JSON = st.recursive(
    st.one_of(st.none(), TEXTS, NUMBERS, st.just("data:image/png;base64,AAAA")),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=6)),
    max_leaves=25,
)
OBJECTS = st.dictionaries(KEYS, JSON, max_size=10)
HEADERS = st.dictionaries(
    st.sampled_from(
        [
            *(b"x-session-id", b"x-claude-code-session-id", b"x-claude-code-agent-id", b"session-id", b"thread-id"),
            *(b"x-session-affinity", b"x-parent-session-id", b"x-dynamo-session-final", b"x-session-final"),
            *(b"x-litellm-session-id", b"x-vllm-priority", b"x-smg-priority", b"x-stainless-read-timeout"),
            *(b"x-stainless-retry-count", b"x-request-id", b"traceparent", b"authorization", b"x-api-key", b"expect"),
        ]
    ),
    st.sampled_from(
        [
            b"",
            b" ",
            b"0",
            b"-1",
            b"1e999",
            b"nan",
            b"9" * 400,
            b"true",
            b"a,b",
            b"\xff\xfe",
            b"\xe6\x97\xa5",
            b"x" * 5000,
            b"\t",
        ]
    ),
    max_size=4,
)
HARD = [
    b'{"messages":' + b"[" * 900 + b"]" * 900 + b"}",
    b'{"messages":' + b'[{"content":' * 300 + b"1" + b"}]" * 300 + b"}",
    b'{"session_id":"\\ud800","messages":[]}',
    b'{"session_id":"a","session_id":"b"}',
    b'{"model":"\\u0000"}',
    b'{"a":1e400}',
    b"\xef\xbb\xbf{}",
    b"{}{}",
    b'{"stream":true}  \n',
    b' \n{ "stream" : true }',
    b'{"stream":true,"stream_options":null}',
    b'{"stream":true,"stream_options":{"include_usage":false,"x":1}}',
]
RELAXED = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
ALL = HandlerSettings(lineage_bytes=1 << 20)


def with_proxy(test, script):
    """Run ``test(ask, proxy, engine)``; no exception of the proxy may come as far as the log."""
    records = []

    class Listener(logging.Handler):
        def emit(self, record):
            records.append(record.getMessage())

    async def main():
        async with Engine(script) as engine, Proxy((engine,), settings=ALL, policy=GatePolicy(lease_max_s=30)) as proxy:
            await test(proxy, engine)
            await until(proxy.idle)

    listener, logger = Listener(logging.WARNING), logging.getLogger("concur_proxy")
    logger.addHandler(listener)
    try:
        run(main())
    finally:
        logger.removeHandler(listener)
    assert not records


async def plain(_seen, wire):
    await wire.send(ok())


def passed(seen, body):
    """Tell whether a body arrived as it was, but for the usage that the proxy asks for."""
    if seen == body:
        return True
    if b"stream_options" in body:
        told = json.loads(body)
        options = told["stream_options"] if isinstance(told["stream_options"], dict) else {}
        return json.loads(seen) == told | {"stream_options": options | {"include_usage": True}}
    return seen in (body.replace(b"{", b"{" + INSERTED + b",", 1), body.replace(b"{", b"{" + INSERTED, 1))


@RELAXED
@given(st.lists(st.tuples(st.sampled_from(PATHS), OBJECTS, HEADERS), min_size=1, max_size=6))
def test_any_json_passes_whatever_its_fields_say(requests):
    async def test(proxy, engine):
        for path, fields, headers in requests:
            body = json.dumps(fields).encode()
            lines = b"".join(b"%b: %b\r\n" % header for header in headers.items())
            answer = await proxy.ask(body, path=path, headers=lines)
            assert answer.status == 200
            assert answer.values(b"set-cookie") == []
            assert passed(engine.seen[-1].body, body)

    with_proxy(test, plain)


@pytest.mark.parametrize("body", HARD)
def test_hard_bodies_pass(body):
    async def test(proxy, engine):
        assert (await proxy.ask(body)).status == 200
        assert passed(engine.seen[-1].body, body)

    with_proxy(test, plain)


@RELAXED
@given(
    st.lists(st.tuples(st.sampled_from(PATHS[:4]), OBJECTS, st.booleans()), min_size=1, max_size=6), st.integers(1, 60)
)
def test_any_answer_passes_whatever_it_says_of_its_usage(answers, size):
    def stream_of(fields):
        return b"".join(
            b"data: %b\n\n" % json.dumps(one).encode() for one in (fields, {"choices": [fields]}, {"response": fields})
        )

    async def script(_seen, wire):
        _, fields, streamed = answers[len(engine.seen) - 1]
        if not streamed:
            await wire.send(ok(json.dumps(fields).encode()))
            return
        raw = chunked(stream_of(fields))
        for start in range(0, len(raw), 50 * size):
            await wire.send(raw[start : start + 50 * size])

    async def test(proxy, running):
        nonlocal engine
        engine = running
        for path, fields, streamed in answers:
            body = b'{"stream":true,"stream_options":{"include_usage":true}}' if streamed else b"{}"
            answer = await proxy.ask(body, path=path)
            assert answer.body == (stream_of(fields) if streamed else json.dumps(fields).encode())

    engine = None
    with_proxy(test, script)


def test_a_session_named_in_a_body_is_no_header():
    async def test(proxy, _engine):
        for name in ("a\r\nset-cookie: b", "a\nb", "\0", "a\u2028b", "a%0d%0ab", "\u0130"):
            client = await proxy.client()
            await client.send(request(json.dumps({"session_id": name}).encode()))
            head = await client.reader.readuntil(b"\r\n\r\n")
            assert b"set-cookie" not in head.replace(b"%", b"")[: head.find(b"x-concur-session")]
            assert all(b": " in line for line in head.split(b"\r\n")[1:-2])
            assert not any(byte < 32 or byte > 126 for byte in head.replace(b"\r\n", b""))
            await client.close()

    with_proxy(test, plain)


def test_hostile_models_are_quoted_in_errors():
    async def test(proxy, engine):
        proxy.handler.resolve_pool = lambda _model: None
        for name in ("a\r\nset-cookie: b", "\u65e5" * 2000, "\0", '"}', ""):
            answer = await proxy.ask(json.dumps({"model": name}).encode())
            assert answer.status == 404
            assert json.loads(answer.body)["error"]["code"] == "model_not_found"
        assert not engine.seen

    with_proxy(test, plain)


def test_a_body_that_says_it_is_compressed_passes_unread():
    async def test(proxy, engine):
        await asyncio.gather(
            *(proxy.ask(b"\x1f\x8b\x08" + bytes(50), headers=b"content-encoding: gzip\r\n") for _ in range(3))
        )
        assert {seen.body for seen in engine.seen} == {b"\x1f\x8b\x08" + bytes(50)}

    with_proxy(test, plain)
