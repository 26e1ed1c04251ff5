"""Agents that send no id, through the data path: their turns are recognised by what they say."""

import asyncio
import json

import pytest

from concur_proxy.core.lineage import BRANCH, COMPACTED, CONTINUED, NEW
from concur_proxy.gateway.handler import HandlerSettings
from tests.gateway.harness import Engine, Proxy, chunked, ok, request, run, until

ON = HandlerSettings(lineage_bytes=1 << 20)
TOOLS = [{"type": "function", "function": {"name": "run", "parameters": {}}}]
TASK = {"role": "user", "content": "Do it."}


def body(*messages, **fields):
    return json.dumps({"model": "m", "messages": list(messages), "tools": TOOLS, **fields}).encode()


def called(call):
    return {"role": "assistant", "content": None, "tool_calls": [{"id": call, "type": "function", "function": {}}]}


def result(call):
    return {"role": "tool", "tool_call_id": call, "content": "done"}


class Model:
    """Calls a tool in each answer, with a new id each time; whole or as a stream, as the client wants it."""

    def __init__(self):
        self.count = 0

    async def __call__(self, seen, wire):
        self.count += 1
        call = {"index": 0, "id": f"call-{self.count}", "type": "function", "function": {"name": "run"}}
        fields = json.loads(seen.body)
        if "previous_response_id" in fields or "input" in fields:
            await wire.send(ok(b'{"id":"resp_%d","object":"response","usage":{"input_tokens":9}}' % self.count))
        elif fields.get("stream"):
            first = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}
            told = {"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}
            end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
            await wire.send(chunked(*(b"data: %b\n\n" % json.dumps(event).encode() for event in (first, told, end))))
        else:
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
            answer = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
            await wire.send(ok(json.dumps(answer).encode()))


def scenario(test, script=None, *, settings=ON, **options):
    async def main():
        async with (
            Engine(script or Model()) as engine,
            Proxy((engine,), settings=settings, **options) as proxy,
        ):
            await test(proxy, engine)
            await until(proxy.idle)

    run(main())


async def ask(proxy, *messages, headers=b"", path=b"/v1/chat/completions", **fields):
    """Return the session of a turn, the rule that named it, and its answer."""
    answer = await proxy.ask(body(*messages, **fields), headers=headers, path=path)
    return (answer.value(b"x-concur-session") or b"").decode(), proxy.turns[-1].rule, answer


def test_the_turns_of_an_agent_are_one_session():
    async def test(proxy, engine):
        history, sessions = [TASK], []
        for number in range(5):
            session, rule, answer = await ask(proxy, *history)
            assert rule == (CONTINUED if number else NEW)
            sessions.append(session)
            call = json.loads(answer.body)["choices"][0]["message"]
            history += [call, result(call["tool_calls"][0]["id"])]
        assert len(set(sessions)) == 1
        assert sessions[0].startswith("lineage-")
        assert proxy.dispatcher.snapshot().sessions == 1

    scenario(test)


def test_a_body_passes_as_it_came():
    async def test(proxy, engine):
        sent = body(TASK)
        await proxy.ask(sent)
        assert engine.seen[0].body == sent

    scenario(test)


@pytest.mark.parametrize("stream", [True, False])
def test_siblings_are_told_apart_by_the_tools_they_were_told_to_call(stream):
    """All eight begin before the first answer ends; they go on in another order."""
    gate, model = asyncio.Event(), Model()

    async def together(seen, wire):
        if len(json.loads(seen.body)["messages"]) == 1:
            await gate.wait()
        await model(seen, wire)

    async def test(proxy, engine):
        asked = [asyncio.create_task(ask(proxy, TASK, stream=stream)) for _ in range(8)]
        await until(lambda: len(engine.seen) == 8)
        gate.set()
        sessions = {}
        for session, _, answer in await asyncio.gather(*asked):
            call = answer.body.partition(b'"call-')[2].partition(b'"')[0].decode()
            sessions[f"call-{call}"] = session
        assert len(set(sessions.values())) == 8
        for call in sorted(sessions, reverse=True):
            assert (await ask(proxy, TASK, called(call), result(call), stream=stream))[0] == sessions[call]

    scenario(test)


def test_two_keys_are_two_sessions():
    async def test(proxy, _engine):
        first, _, _ = await ask(proxy, TASK, headers=b"authorization: Bearer one\r\n")
        other, rule, _ = await ask(proxy, TASK, called("a"), result("a"), headers=b"authorization: Bearer two\r\n")
        assert (rule, other != first) == (NEW, True)

    scenario(test)


def test_a_session_that_is_named_is_not_looked_for():
    async def test(proxy, _engine):
        assert (await ask(proxy, TASK, headers=b"x-session-id: mine\r\n"))[:2] == ("mine", "operator")
        assert (await ask(proxy, TASK, called("a"), result("a")))[1] == NEW
        assert len(proxy.handler.lineage) == 1

    scenario(test)


def test_what_is_refused_or_fails_is_the_same_turn_when_it_comes_again():
    async def failing(seen, wire):
        failures.append(seen)
        await wire.send(ok(b"{}", status=b"500 Internal Server Error") if len(failures) == 1 else ok())

    failures = []

    async def test(proxy, _engine):
        first, rule, answer = await ask(proxy, TASK)
        assert (answer.status, rule) == (500, NEW)
        again, rule, answer = await ask(proxy, TASK)
        assert (answer.status, rule, again) == (200, CONTINUED, first)

    scenario(test, failing)


def test_a_turn_whose_client_leaves_is_the_same_when_it_comes_again():
    async def slow(seen, wire):
        if len(proxies[0].turns) == 0:
            await wire.gone()
            return False
        await wire.send(ok())
        return True

    proxies = []

    async def test(proxy, engine):
        proxies.append(proxy)
        client = await proxy.client()
        await client.send(request(body(TASK)))
        await until(lambda: engine.seen)
        client.leave()
        await until(proxy.idle)
        assert (await ask(proxy, TASK))[1] == CONTINUED

    scenario(test, slow)


def test_a_compacted_history_ends_the_old_session():
    async def test(proxy, _engine):
        history = [TASK, called("a"), result("a")]
        await ask(proxy, *history[:1])
        old, _, _ = await ask(proxy, *history)
        assert proxy.dispatcher.snapshot().sessions == 1
        summary = {"role": "user", "content": "What was done so far."}
        new, rule, _ = await ask(proxy, summary, *history[1:], called("b"), result("b"))
        assert (rule, new != old) == (COMPACTED, True)
        assert proxy.dispatcher.snapshot().sessions == 1, "the old one has gone"

    scenario(test)


def test_an_edit_is_a_child_of_the_session_that_it_edits():
    async def test(proxy, _engine):
        history = [TASK, called("a"), result("a"), called("b"), result("b")]
        for count in (1, 3, 5):
            first, _, _ = await ask(proxy, *history[:count])
        branch, rule, _ = await ask(proxy, *history[:4], {**result("b"), "content": "edited"})
        assert (rule, branch != first) == (BRANCH, True)

    scenario(test)


def test_without_tools_a_first_turn_ends_its_session_and_a_second_one_keeps_it():
    async def test(proxy, _engine):
        first, rule, _ = await ask(proxy, TASK, tools=[])
        assert (rule, proxy.dispatcher.snapshot().sessions) == (NEW, 0)
        more = [TASK, {"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]
        assert (await ask(proxy, *more, tools=[]))[:2] == (first, CONTINUED)
        assert proxy.dispatcher.snapshot().sessions == 1

    scenario(test)


def test_a_session_may_say_goodbye():
    async def test(proxy, _engine):
        await ask(proxy, TASK)
        await ask(proxy, TASK, called("a"), result("a"), headers=b"x-session-final: true\r\n")
        assert proxy.dispatcher.snapshot().sessions == 0

    scenario(test)


def test_a_response_is_gone_on_from_by_its_id():
    async def test(proxy, _engine):
        async def respond(**fields):
            answer = await proxy.ask(json.dumps({"model": "m", **fields}).encode(), path=b"/v1/responses")
            return answer.value(b"x-concur-session"), proxy.turns[-1].rule, json.loads(answer.body)["id"]

        first, rule, response = await respond(input="Do it.", tools=TOOLS)
        assert rule == NEW
        for _ in range(3):
            session, rule, response = await respond(input="Go on.", previous_response_id=response)
            assert (session, rule) == (first, CONTINUED)

    scenario(test)


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        (b"/v1/embeddings", b'{"model":"m","input":"a"}'),
        (b"/v1/chat/completions", b"no json"),
        (b"/v1/chat/completions", b'{"model":"m","messages":[]}'),
        (b"/v1/completions", b'{"model":"m","prompt":["a","b"]}'),
    ],
)
def test_what_nobody_can_go_on_from_is_anonymous(path, sent):
    async def test(proxy, _engine):
        await proxy.ask(sent, path=path)
        assert proxy.turns[-1].rule == "anonymous"
        assert len(proxy.handler.lineage) == 0

    async def fine(_seen, wire):
        await wire.send(ok())

    scenario(test, fine)


def test_it_can_be_switched_off():
    async def test(proxy, _engine):
        assert proxy.handler.lineage is None
        await ask(proxy, TASK)
        assert (await ask(proxy, TASK, called("a"), result("a")))[1] == "anonymous"

    scenario(test, settings=HandlerSettings())
