import asyncio
import json

import pytest

from concur_proxy.bench import asking
from concur_proxy.bench.asking import answer_text
from concur_proxy.bench.client import Reply
from concur_proxy.bench.conversation import History
from concur_proxy.bench.player import PlayOptions, _Run, play
from concur_proxy.bench.workloads import SyntheticAgents
from concur_proxy.errors import BackendError
from concur_proxy.sim.server import EngineOptions, EngineServer
from concur_proxy.sim.workload import SessionScript, TurnScript
from tests.bench.servers import CLOSE, MODELS, chat, reply, served

TURN = TurnScript(20, 5, 0.0)
ONE = (SessionScript("a", 10, (TURN, TURN)),)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch):
    monkeypatch.setattr(asking, "LONGEST_PAUSE_S", 0.0)


def played(answer, scripts=ONE, options=None, **more):
    """Play against ``answer``, which need not know about models; return the report and the turns that came."""

    def all_answers(seen):
        return reply(MODELS) if seen.path == "/v1/models" else answer(seen)

    async def main():
        async with served(all_answers) as (url, script):
            report = await play(url, scripts, options, **more)
            return report, [seen for seen in script.seen if seen.path != "/v1/models"]

    return asyncio.run(main())


def test_a_session_is_one_growing_conversation_under_one_name():
    report, turns = played(lambda _: reply(chat(" said", prompt=30, completion=5, cached=0)))
    first, second = (seen.json for seen in turns)
    assert second["messages"][: len(first["messages"])] == first["messages"]
    assert second["messages"][-2] == {"role": "assistant", "content": " said"}
    assert (first["model"], first["max_tokens"], first["ignore_eos"], first["stream"]) == ("m", 5, True, False)
    names = {seen.headers["x-session-id"] for seen in turns}
    assert len(names) == 1
    assert (report.turns, report.errors, report.prompt_tokens, report.output_tokens) == (2, 0, 60, 10)
    assert list(report.session_s) == ["a"]


def test_two_runs_are_different_agents():
    names = {played(lambda _: reply(chat()))[1][0].headers["x-session-id"] for _ in range(2)}
    assert len(names) == 2


def test_a_client_may_say_less():
    options = PlayOptions(model="x", session_header=None, ignore_eos=False, api_key="k")
    report, turns = played(lambda _: reply(chat()), options=options)
    assert "x-session-id" not in turns[0].headers
    assert turns[0].headers["authorization"] == "Bearer k"
    assert turns[0].json["model"] == "x"
    assert "ignore_eos" not in turns[0].json
    assert report.errors == 0


@pytest.mark.parametrize(("history", "recomputed"), [(History.FULL, 1000), (History.WITHOUT_GENERATED, 900)])
def test_what_was_in_the_engine_and_had_to_be_computed_again(history, recomputed):
    answers = iter([chat(prompt=900, completion=100, cached=0), chat(prompt=2000, completion=5, cached=0)])
    report, _ = played(lambda _: reply(next(answers)), options=PlayOptions(history=history))
    assert report.recomputed_tokens == recomputed
    assert report.new_tokens == 2900 - recomputed


def test_a_rewritten_context_was_never_in_the_engine():
    scripts = (SessionScript("a", 10, (TURN, TurnScript(20, 5, 0.0, rewrites=True))),)
    report, _ = played(lambda _: reply(chat(prompt=900, completion=100, cached=0)), scripts)
    assert report.recomputed_tokens == 0


@pytest.mark.parametrize("status", [429, 503])
def test_a_full_server_is_asked_again(status):
    refusals = iter([reply({"error": {"message": "full"}}, status, "retry-after: 7\r\n")] * 3)
    report, turns = played(lambda _: next(refusals, reply(chat())))
    assert (report.turns, report.errors, report.retries) == (2, 0, 3)
    assert turns[0].body == turns[3].body


@pytest.mark.parametrize(
    ("headers", "tries", "pause"),
    [
        ({"retry-after-ms": "1500", "retry-after": "7"}, 0, 1.5),
        ({"retry-after": "7"}, 0, 7.0),
        ({"retry-after": "-1"}, 0, 0.0),
        ({"retry-after": "900"}, 0, 60.0),
        ({"retry-after": "soon"}, 2, 1.0),
        ({}, 3, 2.0),
        ({}, 99, 60.0),
    ],
)
def test_a_server_says_when_to_come_back(monkeypatch, headers, tries, pause):
    monkeypatch.setattr(asking, "LONGEST_PAUSE_S", 60.0)
    assert asking._pause(Reply(503, headers, b""), tries) == pause


def test_a_connection_that_died_before_an_answer_is_made_again():
    lost = iter([CLOSE, CLOSE])
    report, _ = played(lambda _: next(lost, reply(chat())), (SessionScript("a", 1, (TURN,)),))
    assert (report.turns, report.errors) == (1, 0)


def test_a_server_that_is_never_there(monkeypatch):
    options = PlayOptions(model="m", max_tries=3)
    report = asyncio.run(play("http://127.0.0.1:1", ONE, options))
    assert (report.turns, report.errors, report.retries) == (0, 1, 2)
    assert report.session_s == {}


ENDINGS = [
    (reply({"error": {"message": "too long"}}, 400), "status 400: too long"),
    (reply(b"oops", 500), "status 500: oops"),
    (reply({"choices": []}), "an answer without text"),
    (
        [b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{", CLOSE],
        "the connection was closed in the middle of an answer",
    ),
]


@pytest.mark.parametrize(("answer", "problem"), ENDINGS)
def test_what_ends_a_session(answer, problem):
    report, turns = played(lambda _: answer)
    assert (report.errors, report.turns, len(turns)) == (1, 0, 1)
    assert report.problems == {problem: 1}


def test_a_server_that_does_not_name_a_model():
    async def main():
        async with served(lambda _: reply({"data": []})) as (url, _):
            await play(url, ONE)

    with pytest.raises(BackendError, match=r"does not tell a model \(status 200\): is this the address"):
        asyncio.run(main())


def test_a_server_that_wants_another_key():
    async def main():
        async with served(lambda _: reply({"error": "no"}, 401)) as (url, _):
            await play(url, ONE)

    with pytest.raises(BackendError, match="answers 401: it wants another API key"):
        asyncio.run(main())


def test_nobody_answers_where_nobody_is():
    with pytest.raises(BackendError, match=r"http://127.0.0.1:1 does not answer: .*; is a server running there\?"):
        asyncio.run(play("http://127.0.0.1:1", ONE))


def test_a_server_that_is_gone_ends_the_run_though_agents_would_try_on():
    """Half of the turns are answered; then every connection is closed for good."""
    answers = iter([reply(chat())])
    options = PlayOptions(max_tries=10**6, gone_after_s=0.02)
    scripts = tuple(SessionScript(f"s{number}", 1, (TURN, TURN)) for number in range(3))
    report, _ = played(lambda _: next(answers, CLOSE), scripts, options)
    assert report.turns == 1
    assert report.ended_early.startswith("no answer for 0.02 s: the connection was closed")


def test_a_server_that_refuses_is_there():
    refusals = iter([CLOSE, reply({}, 503), CLOSE, reply({}, 503)] * 20)
    options = PlayOptions(max_tries=10**6, gone_after_s=1e9)
    report, _ = played(lambda _: next(refusals, reply(chat())), options=options)
    assert (report.turns, report.ended_early) == (2, None)


def test_only_so_many_agents_at_once():
    scripts = tuple(SessionScript(f"s{n}", 1, (TURN, TURN)) for n in range(6))
    seen = []
    _, turns = played(lambda _: reply(chat()), scripts, PlayOptions(concurrency=2), on_progress=seen.append)
    order = [turn.headers["x-session-id"][9:] for turn in turns]
    for position, name in enumerate(order):
        begun = dict.fromkeys(order[: position + 1])
        ended = [other for other in begun if order[: position + 1].count(other) == 2 and other != name]
        assert len(begun) - len(ended) <= 2
    assert max(progress.active for progress in seen) <= 2
    assert seen[-1].turns_done == 12


STREAM = b"".join(
    b"data: " + json.dumps(chunk).encode() + b"\n\n"
    for chunk in [
        {"choices": [{"delta": {"role": "assistant", "content": ""}}]},
        {"choices": [{"delta": {"content": " one"}}]},
        {"choices": [{"delta": {"content": " two"}, "finish_reason": "stop"}]},
        {"choices": [], "usage": {"prompt_tokens": 30, "completion_tokens": 2}},
    ]
)


def test_a_stream_is_put_together():
    report, turns = played(lambda _: reply(STREAM + b"data: [DONE]\n\n"), options=PlayOptions(stream=True))
    assert turns[0].json["stream_options"] == {"include_usage": True}
    assert turns[1].json["messages"][-2]["content"] == " one two"
    assert (report.prompt_tokens, report.output_tokens) == (60, 4)
    assert report.ttft_p50_s <= report.turn_p50_s


def test_a_stream_without_its_end_is_no_answer():
    report, _ = played(lambda _: reply(STREAM), options=PlayOptions(stream=True))
    assert report.problems == {"an answer without text": 1}


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"choices":[{"message":null}]}', b'{"choices":[{}]}'])
def test_bodies_without_an_answer(body):
    assert answer_text(body, stream=False) is None


def test_a_call_of_a_tool_is_an_answer():
    assert answer_text(b'{"choices":[{"message":{"content":null,"tool_calls":[{}]}}]}', stream=False) == ""


@pytest.fixture(scope="module")
def engine():
    with EngineServer(EngineOptions(port=0, speed=1000, kv_tokens=200_000)) as server:
        yield server


@pytest.mark.parametrize("stream", [True, False])
def test_agents_whose_contexts_fit_find_all_of_them_again(engine, stream):
    agents = SyntheticAgents(sessions=4, turns=5, first_tokens=300, new_tokens=100, output_tokens=20, think_s=0)
    scripts = agents.scripts()
    report = asyncio.run(play(engine.url, scripts, PlayOptions(stream=stream, seed=int(stream))))
    assert (report.turns, report.errors) == (20, 0)
    assert report.prompt_tokens == sum(sum(script.prompts()) for script in scripts)
    assert report.output_tokens == 20 * 20
    assert report.recomputed_tokens == 0
    assert report.hit_rate > 0.6
    assert (report.ttft_p50_s is not None) is stream


def test_an_impatient_client_gives_up_and_its_session_fails():
    report, turns = played(lambda _: [], options=PlayOptions(timeout_s=0.05, max_tries=3))
    assert len(turns) == 3
    assert (report.turns, report.errors, report.retries, report.failed_sessions) == (0, 1, 2, 1)
    assert report.problems == {"no answer in time": 1}


def test_agents_may_come_one_after_another():
    delays = _Run(None, ONE * 200, PlayOptions(arrivals_per_s=4.0, seed=3), "m")._delays()
    assert delays == sorted(delays)
    assert delays[-1] / len(delays) == pytest.approx(0.25, rel=0.2)
    assert _Run(None, ONE, PlayOptions(), "m")._delays() == [0.0]
