"""Streams whose engine dies in the middle: another one goes on where that is possible, else an error says so."""

import asyncio

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.config import UpstreamSettings
from concur_proxy.core.gate import GatePolicy
from concur_proxy.gateway.handler import HandlerSettings
from concur_proxy.gateway.paths import Kind
from concur_proxy.gateway.resume import StreamRecord, may_resume, split
from concur_proxy.model import Outcome
from tests.gateway.harness import Engine, Proxy, request, run, until

ON = HandlerSettings(resume_streams=True)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
PATHS = {Kind.CHAT: b"/v1/chat/completions", Kind.COMPLETIONS: b"/v1/completions"}
SPENT = {
    "prompt_tokens": 14,
    "completion_tokens": 2,
    "total_tokens": 16,
    "prompt_tokens_details": {"cached_tokens": 12},
}


def chunk(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(choices, name="first", **more):
    body = {"id": name, "object": "chat.completion.chunk", "created": len(name), "model": "m", "choices": choices}
    return b"data: %b\n\n" % orjson.dumps({**body, **more})


def said(text, name="first", *, kind=Kind.CHAT, finish=None, **delta):
    choice = {"delta": {"content": text, **delta}} if kind is Kind.CHAT else {"text": text}
    return event([{"index": 0, **choice, "logprobs": None, "finish_reason": finish}], name)


def opening(name="first"):
    return event([{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}], name)


def body_of(kind=Kind.CHAT, **more):
    asked = {"messages": [{"role": "user", "content": "count"}]} if kind is Kind.CHAT else {"prompt": "count"}
    return orjson.dumps({"model": "m", "stream": True, **asked, **more})


class Duo:
    """Two engines: who is asked first says ``first`` and dies, who is asked next answers with ``second``."""

    def __init__(self, first, second, *, framed=True):
        self.first, self.second, self.framed = first, second, framed
        self.asked = []

    async def script(self, seen, wire):
        self.asked.append(orjson.loads(seen.body))
        if len(self.asked) == 1:
            await wire.send(HEAD, *(chunk(one) if self.framed else one for one in self.first))
            return False
        await wire.send(HEAD, *(chunk(one) for one in self.second), b"0\r\n\r\n")
        return None


def play(duo, body, *, kind=Kind.CHAT, settings=ON, engines=2, **proxy_settings):
    """Return the answer, and the proxy after it."""
    result = []

    async def main():
        async with Engine(duo.script) as one, Engine(duo.script) as two:  # noqa: SIM117 - the proxy ends first
            async with Proxy((one, two)[:engines], settings=settings, **proxy_settings) as proxy:
                client = await proxy.client()
                await client.send(request(body, path=PATHS[kind], headers=b"x-session-id: s\r\n"))
                answer = await client.answer()
                await until(proxy.idle)
                result.extend([answer, proxy])
                await client.close()

    run(main())
    return result


def events(answer):
    found, rest = split(answer.body)
    assert rest == b""
    lines = [one.removeprefix(b"data: ").strip() for one in found]
    return [line if line == b"[DONE]" else orjson.loads(line) for line in lines]


def text(answer):
    choices = [one["choices"][0] for one in events(answer) if one != b"[DONE]" and one.get("choices")]
    return "".join(choice["text"] if "text" in choice else choice["delta"].get("content") or "" for choice in choices)


def test_a_chat_goes_on_as_one_stream_with_one_id_and_the_usage_of_both():
    usage = event([], "second", usage=SPENT)
    duo = Duo(
        [opening(), said("one "), said("two ")],
        [
            opening("second"),
            said("three", "second"),
            said(" four", "second", finish="stop"),
            usage,
            b"data: [DONE]\n\n",
        ],
    )
    asked = body_of(stream_options={"include_usage": True}, max_tokens=10, min_tokens=3, tools=[{"type": "function"}])
    answer, proxy = play(duo, asked)
    assert (answer.status, answer.whole) == (200, True)
    told = events(answer)
    assert told.pop() == b"[DONE]"
    assert {(one["id"], one["created"]) for one in told} == {("first", 5)}
    assert text(answer) == "one two three four"
    assert sum("role" in one["choices"][0]["delta"] for one in told if one["choices"]) == 1
    assert told[-1]["usage"] == {
        "prompt_tokens": 12,
        "completion_tokens": 4,
        "total_tokens": 16,
        "prompt_tokens_details": {"cached_tokens": 12},
    }
    first, second = duo.asked
    assert second.pop("messages") == [*first.pop("messages"), {"role": "assistant", "content": "one two "}]
    assert second.pop("continue_final_message") is True
    assert second.pop("add_generation_prompt") is False
    assert (second.pop("max_tokens"), second.pop("min_tokens")) == (8, 1)
    assert (first.pop("max_tokens"), first.pop("min_tokens")) == (10, 3)
    assert first == second
    (record,) = proxy.records
    assert (record.outcome, record.usage.prompt_tokens, record.usage.completion_tokens) == (Outcome.COMPLETED, 12, 4)
    assert record.backend == "b1"
    assert proxy.lost == ["b0"]
    assert proxy.turns[0].outcome == "completed"
    assert proxy.handler.retries.counts() == {"sent_again": 0, "resumed": 1, "over_budget": 0}


def test_the_usage_that_the_proxy_asked_for_itself_stays_its_own():
    usage = event([], "second", usage=SPENT)
    duo = Duo([opening(), said("one ")], [said("two", "second", finish="stop"), usage, b"data: [DONE]\n\n"])
    answer, proxy = play(duo, body_of())
    assert text(answer) == "one two"
    assert b'"usage"' not in answer.body
    assert proxy.records[0].usage.completion_tokens == 3


def test_a_text_completion_goes_on_from_a_longer_prompt():
    kind = Kind.COMPLETIONS
    duo = Duo([said("one ", kind=kind)], [said("two", "second", kind=kind, finish="length"), b"data: [DONE]\n\n"])
    answer, proxy = play(duo, body_of(kind), kind=kind)
    assert text(answer) == "one two"
    assert duo.asked[1]["prompt"] == "countone "
    assert "continue_final_message" not in duo.asked[1]
    assert {one["id"] for one in events(answer)[:-1]} == {"first"}
    assert proxy.records[0].finish_reason.value == "length"


def test_a_stream_that_had_said_nothing_is_asked_for_again_as_it_was():
    duo = Duo([opening()], [opening("second"), said("all", "second", finish="stop"), b"data: [DONE]\n\n"])
    answer, _ = play(duo, body_of())
    assert text(answer) == "all"
    first, second = duo.asked
    assert first == second
    assert {one["id"] for one in events(answer)[:-1]} == {"first"}


def test_events_may_be_cut_anywhere_in_the_second_stream():
    whole = b"".join([said("two", "second"), said(" three", "second", finish="stop"), b"data: [DONE]\n\n"])
    pieces = [whole[at : at + 7] for at in range(0, len(whole), 7)]
    answer, _ = play(Duo([said("one ")], pieces), body_of())
    assert text(answer) == "one two three"


TOOL = {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}]}


@pytest.mark.parametrize(
    ("first", "more"),
    [
        ([opening(), said(None, **TOOL)], {}),
        ([opening(), said(None, reasoning_content="hm")], {}),
        ([opening(), said(None, reasoning="hm")], {}),
        ([said("x")], {"n": 2}),
        ([said("x")], {"logprobs": True}),
        ([said("x")], {"seed": 0}),
        ([said("x")], {"response_format": {"type": "json_object"}}),
        ([said("x")], {"guided_json": {"type": "object"}}),
        ([said("x")], {"tool_choice": "required"}),
        ([said("x")], {"max_tokens": 1}),
        ([said("x", finish="stop")], {}),
        ([event([{"index": 1, "delta": {"content": "x"}}])], {}),
    ],
    ids=[
        "tool",
        "reasoning_content",
        "reasoning",
        "n",
        "logprobs",
        "seed",
        "json",
        "guided",
        "forced",
        "at-its-end",
        "finished",
        "other-choice",
    ],
)
def test_all_else_ends_with_an_error_that_says_so(first, more):
    duo = Duo(first, [said("never", "second")])
    answer, proxy = play(duo, body_of(**more))
    assert (answer.status, answer.whole) == (200, False)
    assert events(answer)[-1]["error"]["code"] == "backend_lost"
    assert len(duo.asked) == 1
    assert proxy.records[0].outcome is Outcome.BACKEND_LOST


def test_without_the_option_every_broken_stream_ends_with_the_error():
    duo = Duo([said("one ")], [said("never", "second")])
    answer, _ = play(duo, body_of(), settings=HandlerSettings())
    assert events(answer)[-1]["error"]["code"] == "backend_lost"
    assert events(answer)[-1]["error"]["type"] == "server_error"
    assert len(duo.asked) == 1


def test_a_client_that_has_half_an_event_can_only_be_cut_off():
    duo = Duo([said("one "), said("two")[:9]], [said("never", "second")])
    answer, _ = play(duo, body_of(stream_options={"include_usage": True}))
    assert not answer.whole
    assert answer.body.endswith(said("two")[:9])
    assert len(duo.asked) == 1


def test_a_second_death_is_the_end():
    class Both(Duo):
        async def script(self, seen, wire):
            self.asked.append(orjson.loads(seen.body))
            await wire.send(HEAD, chunk(said("one " if len(self.asked) == 1 else "two ")))
            return False

    duo = Both([], [])
    answer, proxy = play(duo, body_of())
    assert text(answer) == "one two "
    assert events(answer)[-1]["error"]["code"] == "backend_lost"
    assert len(duo.asked) == 2
    assert [record.outcome for record in proxy.records] == [Outcome.BACKEND_LOST]


def test_where_nobody_else_is_the_same_engine_is_asked_again():
    duo = Duo([said("one ")], [said("two", "second", finish="stop"), b"data: [DONE]\n\n"])
    answer, _ = play(duo, body_of(), engines=1)
    assert text(answer) == "one two"


def test_the_rest_waits_for_a_place_and_says_so_where_none_comes():
    async def main():
        release = asyncio.Event()

        async def script(seen, wire):
            asked = orjson.loads(seen.body)
            if asked["messages"][-1]["content"] == "long":
                await wire.send(HEAD, chunk(said("x")))
                await release.wait()
                await wire.send(b"0\r\n\r\n")
                return None
            await wire.send(HEAD, chunk(said("one ")))
            return False

        policy = GatePolicy(max_wait_s=0.2)
        async with Engine(script) as one, Engine(script) as two:  # noqa: SIM117
            async with Proxy((one, two), settings=ON, window=1, policy=policy) as proxy:
                client = await proxy.client()
                long = body_of(messages=[{"role": "user", "content": "long"}])
                await client.send(request(long, headers=b"x-session-id: long\r\n"))
                await client.reader.readuntil(b"data: ")
                answer = await proxy.ask(body_of(), headers=b"x-session-id: s\r\n")
                assert text(answer) == "one "
                assert events(answer)[-1]["error"]["code"] == "backend_lost"
                assert answer.whole  # the stream ends in order, with the error as its last event
                release.set()
                await until(proxy.idle)
                await client.close()

    run(main())


def test_the_budget_bounds_what_is_resumed():
    duo = Duo([said("one ")], [said("never", "second")])
    answer, _ = play(duo, body_of(), settings=HandlerSettings(resume_streams=True, retry_budget=0.0))
    assert events(answer)[-1]["error"]["code"] == "backend_lost"
    assert len(duo.asked) == 1


@pytest.mark.parametrize("engines", [1, 2])
def test_a_stream_that_falls_silent_goes_on_elsewhere_where_there_is_another(engines):
    """The one that is silent is not asked again: it would be as silent."""
    asked, answers = [], []

    async def script(_seen, wire):
        asked.append(wire)
        if len(asked) > 1:
            await wire.send(HEAD, chunk(said("two", "second", finish="stop")), chunk(b"data: [DONE]\n\n"), b"0\r\n\r\n")
            return
        await wire.send(HEAD, chunk(opening()), chunk(said("one ")))
        await asyncio.Event().wait()

    async def main():
        async with Engine(script) as one, Engine(script) as two:
            upstream = UpstreamSettings(idle_timeout_s=0.2)
            async with Proxy((one, two)[:engines], settings=ON, upstream=upstream) as proxy:
                answers.append(await proxy.ask(body_of(), headers=b"x-session-id: s\r\n"))
                await until(proxy.idle)

    run(main())
    (answer,) = answers
    assert len(asked) == engines
    if engines == 2:
        assert (text(answer), events(answer)[-1]) == ("one two", b"[DONE]")
    else:
        assert (text(answer), events(answer)[-1]["error"]["code"]) == ("one ", "backend_timeout")


def test_a_client_that_leaves_while_the_rest_waits_leaves_nothing_behind():
    async def main():
        async def script(seen, wire):
            await wire.send(HEAD, chunk(said("one ")))
            return False

        async with Engine(script) as one, Proxy((one,), settings=ON) as proxy:
            client = await proxy.client()
            await client.send(request(body_of()))
            await client.reader.readuntil(b"one ")
            client.leave()
            await until(proxy.idle)

    run(main())


@given(st.lists(st.text(max_size=5), max_size=8), st.data())
def test_the_record_hears_the_same_however_the_bytes_are_cut(texts, data):
    stream = b"".join([opening(), b": ping\n\n", *(said(one) for one in texts)])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    record = StreamRecord(Kind.CHAT, wants_usage=False)
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        record.feed(stream[start:stop])
    assert record.is_plain
    assert (record.text, record.tokens) == ("".join(texts), len(texts))


@given(st.lists(st.sampled_from([b"data: x\n\n", b"\r\n", b"a\r\n\r\n", b"b", b"\n\r\n", b": c\n\n"]), max_size=12))
def test_events_and_rest_are_what_there_was(parts):
    stream = b"".join(parts)
    found, rest = split(stream)
    assert b"".join(found) + rest == stream
    assert b"\n\n" not in rest
    assert all(one.endswith((b"\n\n", b"\n\r\n")) for one in found)


@pytest.mark.parametrize(
    ("kind", "fields", "may"),
    [
        (Kind.CHAT, {"messages": []}, True),
        (Kind.CHAT, {"messages": [], "response_format": {"type": "text"}, "n": 1, "logprobs": False}, True),
        (Kind.CHAT, {"messages": [], "stream": False}, False),
        (Kind.CHAT, {"messages": [], "continue_final_message": True}, False),
        (Kind.COMPLETIONS, {"prompt": "x"}, True),
        (Kind.COMPLETIONS, {"prompt": "x", "logprobs": 1}, False),
        (Kind.COMPLETIONS, {"prompt": "x", "best_of": 2}, False),
        (Kind.COMPLETIONS, {"prompt": ["x"]}, False),
        (Kind.COMPLETIONS, {"prompt": [1, 2]}, False),
        (Kind.MESSAGES, {"messages": []}, False),
        (Kind.RESPONSES, {"input": "x"}, False),
    ],
)
def test_what_is_resumed_and_what_is_not(kind, fields, may):
    assert may_resume(kind, {"stream": True, **fields}) is may
