"""Agents that start sub-agents and wait for them, played over real sockets: straight, and through a window of one."""

import asyncio

from concur_proxy.bench.families import Family
from concur_proxy.bench.player import PlayOptions, play
from concur_proxy.bench.proxy_process import QUIET, ProxyProcess
from concur_proxy.bench.workloads import SyntheticAgents
from concur_proxy.sim.server import EngineOptions, EngineServer
from concur_proxy.sim.workload import SessionScript, TurnScript
from tests.bench.servers import MODELS, chat, reply, served

PATIENCE_S = 60.0


def session(name, *outputs):
    return SessionScript(name, 20, tuple(TurnScript(20, tokens, 0.0) for tokens in outputs))


GRANDCHILD = Family(session("p/1/1", 6))
PARENT = Family(
    session("p", 1, 2, 3),
    {
        0: (Family(session("p/1", 4, 5), {0: (GRANDCHILD,)}), Family(session("p/2", 7))),
        2: (Family(session("p/3", 8)),),
    },
)


def played(agents, options=None, answer=lambda _: reply(chat())):
    """Play against a script that answers at once; return the report and, in their order, (session, parent, tokens)."""

    def all_answers(seen):
        return reply(MODELS) if seen.path == "/v1/models" else answer(seen)

    async def main():
        async with served(all_answers) as (url, script), asyncio.timeout(PATIENCE_S):
            report = await play(url, agents, options)
            return report, [told(seen) for seen in script.seen if seen.path != "/v1/models"]

    return asyncio.run(main())


def told(seen):
    names = (seen.headers.get(name) for name in ("x-session-id", "x-parent-session-id"))
    session_, parent = (name.partition("-")[2] if name else None for name in names)
    return session_, parent, seen.json["max_tokens"]


def test_a_turn_comes_after_the_sub_agents_of_the_one_before():
    report, turns = played((PARENT,))
    order = [tokens for _, _, tokens in turns]
    assert sorted(order) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [tokens for tokens in order if tokens in (1, 2, 3, 8)] == [1, 2, 3, 8]
    assert order[-3:] == [2, 3, 8]
    assert order.index(4) < order.index(6) < order.index(5)
    assert (report.turns, report.errors, list(report.session_s)) == (8, 0, ["p"])


def test_sub_agents_name_their_parent():
    _, turns = played((PARENT,))
    assert {(name, parent) for name, parent, _ in turns} == {
        ("p", None),
        ("p/1", "p"),
        ("p/2", "p"),
        ("p/3", "p"),
        ("p/1/1", "p/1"),
    }
    _, turns = played((PARENT,), PlayOptions(session_header=None))
    assert {(name, parent) for name, parent, _ in turns} == {(None, None)}


def test_the_parent_of_a_sub_agent_that_fails_goes_on():
    def answer(seen):
        return reply({"error": {"message": "no"}}, 400) if seen.json["max_tokens"] == 4 else reply(chat())

    report, turns = played((PARENT,), answer=answer)
    assert [tokens for _, _, tokens in turns if tokens in (1, 2, 3)] == [1, 2, 3]
    assert (report.turns, report.errors, report.failed_sessions) == (5, 1, 0)


def test_sub_agents_that_nobody_waits_for_run_beside_their_parent():
    beside = Family(session("p", 1, 2, 3), {0: (Family(session("p/1", *[4] * 20)),)}, waits=False)
    report, turns = played((beside,))
    order = [tokens for _, _, tokens in turns]
    assert order.index(3) < len(order) - 1
    assert report.turns == 23


def test_one_place_for_all_is_enough():
    families = tuple(
        Family(session(f"a{number}", 1, 1), {0: (Family(session(f"a{number}/1", 1, 1)),)}) for number in range(4)
    )
    report, turns = played(families, PlayOptions(concurrency=1, requests_at_once=1))
    assert (report.turns, report.errors, len(report.session_s)) == (16, 0, 4)
    assert [name[:2] for name, _, _ in turns] == [f"a{number}" for number in range(4) for _ in range(4)]


def test_the_last_turn_says_goodbye_where_it_is_asked_to():
    last = []

    def answer(seen):
        last.append((seen.json["max_tokens"], seen.headers.get("x-session-final")))
        return reply(chat())

    played((PARENT,), PlayOptions(says_goodbye=True), answer)
    assert {tokens for tokens, final in last if final == "true"} == {3, 5, 6, 7, 8}
    last.clear()
    played((PARENT,), answer=answer)
    assert {final for _, final in last} == {None}


def test_an_agent_begins_when_its_scenario_says():
    report, turns = played((Family(session("late", 2), start_s=0.05), Family(session("early", 1))))
    assert [name for name, _, _ in turns] == ["early", "late"]
    assert report.turns == 2


def test_everybody_gets_through_a_window_of_one():
    """A parent holds the only place while its sub-agents want one: they take it, and it comes back before others."""
    agents = SyntheticAgents(
        sessions=6,
        turns=6,
        first_tokens=200,
        new_tokens=50,
        output_tokens=10,
        think_s=0,
        sub_agents=2,
        sub_agents_after=0.4,
    )
    families = agents.families()
    turns = sum(len(script.turns) for whole in families for script in whole.members())
    assert turns > 6 * 6

    async def main(url):
        async with asyncio.timeout(PATIENCE_S):
            return await play(url, families, PlayOptions(stream=True, says_goodbye=True))

    with (
        EngineServer(EngineOptions(port=0, speed=1000, kv_tokens=100_000)) as engine,
        ProxyProcess([engine.url], flags=(*QUIET, "--window", "1")) as proxy,
    ):
        report = asyncio.run(main(proxy.url))
    assert (report.turns, report.errors, report.retries) == (turns, 0, 0)
    assert len(report.session_s) == 6
