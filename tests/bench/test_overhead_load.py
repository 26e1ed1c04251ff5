"""The processes of the benchmark of the data path, over loopback: load, engine, relay, and whoever stands between."""

import asyncio
import json
import os
import sys
from contextlib import contextmanager

import pytest

from bench.held_turns import ENVIRONMENT
from bench.overhead import children, crowd, kernel, rounds
from bench.overhead.children import BenchError, Engine, Load, Server
from bench.overhead.load import Job, play
from bench.overhead.rounds import P50, P99, RATE, RSS_LOAD, RSS_REST, STEPS, Bench, Plan, cpu_key
from bench.overhead.upstream import CHUNKS
from bench.overhead.ways import NO_PROXY, OURS, RELAY, Way, all_ways
from concur_proxy.bench.client import Client
from concur_proxy.bench.proxy_process import ProxyProcess
from tests.bench.servers import CLOSE, reply, served
from tests.ports import free_port

TINY = Plan(warm_s=0.05, idle_s=0.05, closed_s=0.05, streams_s=0.0, paced_s=0.1)
EVENTS = CHUNKS + 3
"""With the role's, the one that ends it, and [DONE]."""


@pytest.fixture(scope="module")
def engine():
    with Engine() as running:
        yield running


def job(kind, port, **more):
    return Job(**{"kind": kind, "host": "127.0.0.1", "port": port, "connections": 2, "seconds": 0.05, **more})


def ask(port, path, body=None):
    async def main():
        client = Client(f"http://127.0.0.1:{port}")
        try:
            return await client.request(
                "POST" if body else "GET", path, body=json.dumps(body).encode() if body else None
            )
        finally:
            await client.aclose()

    return asyncio.run(main())


@pytest.mark.parametrize("size", [1 << 10, 1 << 20])
def test_every_connection_sends_again_when_it_is_answered(engine, size):
    result = asyncio.run(play(job("closed", engine.port, body_bytes=size)))
    assert result.problems == {}
    assert result.requests > 2
    assert result.wall_s >= 0.05


def test_streams_are_read_to_their_end(engine):
    result = asyncio.run(play(job("streams", engine.port, connections=3, seconds=0)))
    assert (result.requests, result.events, result.problems) == (3, 3 * EVENTS, {})


def test_a_paced_request_that_waits_for_a_connection_counts_from_when_it_was_due():
    """Both are due at once, and there is one connection: the second one's time is that of both."""
    result, _ = run_at(lambda _: reply(b"{}"), "paced", connections=1, rate=2e6, for_s=1e-6)
    first, second = result.latencies_s
    assert second > first


def test_answers_that_do_not_come_are_a_problem():
    result, _ = run_at(lambda _: b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{", patience_s=0.05)
    assert (result.requests, result.problems) == (0, {"no answer in time": 1})


def test_events_that_come_together_are_read_at_once():
    result, _ = run_at(lambda _: reply(b"data: 1\n\n" * EVENTS), "streams", connections=1)
    assert (result.events, result.reads) == (EVENTS, 1)


def test_paced_requests_are_as_many_as_the_time_takes(engine):
    result = asyncio.run(play(job("paced", engine.port, seconds=0.2, rate=200.0, connections=40)))
    assert (result.requests, len(result.latencies_s), result.problems) == (40, 40, {})


def run_at(answer, kind="closed", for_s=0.0, **more):
    async def main():
        async with served(answer) as (url, script):
            return await play(job(kind, int(url.rpartition(":")[2]), seconds=for_s, **more)), script

    return asyncio.run(main())


def test_an_answer_that_is_not_200_is_a_problem():
    result, _ = run_at(lambda _: reply(b"busy", 503))
    assert (result.requests, result.problems) == (0, {"status 503": 2})


def test_a_connection_that_is_lost_is_a_problem():
    result, _ = run_at(lambda _: CLOSE, connections=1)
    assert result.problems == {"the connection was lost": 1}


def test_a_stream_that_is_too_short_is_a_problem():
    result, _ = run_at(lambda _: reply(b"data: 1\n\ndata: 2\n\n"), "streams", connections=1)
    assert result.problems == {"a stream of 2 events": 1}


def test_an_event_in_two_pieces_counts_once():
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    halves = [b"9\r\ndata: 10\n\r\n", b"1\r\n\n\r\n"] * EVENTS
    result, _ = run_at(lambda _: [head, *halves, b"0\r\n\r\n"], "streams", connections=1)
    assert (result.events, result.problems) == (EVENTS, {})


def test_sessions_have_names_and_no_two_turns_are_alike():
    _, script = run_at(lambda _: reply(b"{}"), "paced", rate=100.0, for_s=0.04)
    turns = {(seen.headers["X-Session-ID"], seen.body) for seen in script.seen}
    assert {session for session, _ in turns} == {"agent-0", "agent-1"}
    assert len(turns) == len(script.seen) == 4


def test_the_engine_answers_what_routers_ask(engine):
    for path in ("/health", "/v1/models", "/get_server_info", "/metrics"):
        assert ask(engine.port, path).status == 200
    assert ask(engine.port, "/no/such/page").status == 404


def test_the_engine_tells_usage_in_a_stream_only_where_it_is_asked(engine):
    chat = {"messages": [], "stream": True}
    plain = ask(engine.port, "/v1/chat/completions", chat)
    asked = ask(engine.port, "/v1/chat/completions", {**chat, "stream_options": {"include_usage": True}})
    assert b'"usage"' not in plain.body
    assert asked.body.count(b'"usage"') == 1
    assert plain.body.count(b"\n\n") == asked.body.count(b"\n\n") - 1 == EVENTS


def test_the_engine_s_metrics_count_its_requests():
    with Engine() as engine:
        ask(engine.port, "/v1/chat/completions", {"messages": []})
        page = ask(engine.port, "/metrics").body.decode()
    assert 'finished_reason="stop"} 1\n' in page


def test_the_load_as_a_process_gives_the_same_figures_and_says_what_it_cannot_reach(engine):
    with Load() as load:
        result = load.play(job("closed", engine.port, pids=(engine.pid,)))
        assert result.requests > 2
        assert result.cpu_s > 0
        with pytest.raises(BenchError, match="refused"):
            load.play(job("closed", free_port()))


@pytest.mark.parametrize("name", [NO_PROXY, RELAY, OURS, "nginx"])
def test_a_round_has_every_figure(engine, name, monkeypatch, tmp_path):
    (way,) = [way for way in all_ways(law="aimd", cache=tmp_path) if way.name == name]
    if way.version is None:
        pytest.skip(f"{name} is not installed: apt-get install {name}")
    monkeypatch.setattr(rounds, "COMFORT", 0.0)  # however slow this machine is just now
    monkeypatch.setitem(rounds.SIZES, "1 MB", 1 << 17)
    cores = kernel.Cores(*[frozenset(os.sched_getaffinity(0))] * 2)
    steps = []
    with Load() as load:
        figures = Bench(engine, load, cores, TINY, steps.append).measure(way)
    assert figures.problems == {}
    assert len(steps) == STEPS
    wanted = {P50, P99, RATE} | ({cpu_key("1 MB", 64), "chunk", RSS_REST, RSS_LOAD} if name != NO_PROXY else set())
    assert wanted <= figures.values.keys()


def test_a_proxy_that_does_not_start_is_a_problem_and_what_it_printed_is_for_the_screen(engine, capsys):
    @contextmanager
    def start(_, folder):
        command = [sys.executable, "-c", "raise SystemExit('no such flag')"]
        with children.served(command, free_port(), folder / "log") as server:
            yield server

    cores = kernel.Cores(*[frozenset(os.sched_getaffinity(0))] * 2)
    with Load() as load:
        figures = Bench(engine, load, cores, TINY, lambda _: None).measure(Way("broken", "1", "", start))
    assert figures == rounds.Figures(problems={"start": "it does not listen"})
    assert "no such flag" in capsys.readouterr().err


def test_a_crowd_is_held_while_others_are_served(engine):
    shape = crowd.Shape(turns=30, body_bytes=2048, active_s=0.1)
    flags = ("--window", str(crowd.PLACES))
    with (
        ProxyProcess([f"http://127.0.0.1:{engine.port}"], flags=flags, env=ENVIRONMENT) as proxy,
        Load() as load,
    ):
        held = asyncio.run(crowd.hold(Server(proxy.port, proxy.pid), load, shape))
    assert held.rss_bytes > 1 << 20
    assert min(held.quiet_p50_s, held.crowded_p50_s, held.quiet_cpu_s, held.crowded_cpu_s) > 0


def test_a_proxy_that_holds_nothing_is_noticed(engine, monkeypatch):
    monkeypatch.setattr(crowd, "PATIENCE_S", 0.2)
    shape = crowd.Shape(turns=30, body_bytes=2048, active_s=0.1)
    with (
        ProxyProcess([f"http://127.0.0.1:{engine.port}"], flags=("--law", "unlimited")) as proxy,
        Load() as load,
        pytest.raises(BenchError, match="held sessions, not 30"),
    ):
        asyncio.run(crowd.hold(Server(proxy.port, proxy.pid), load, shape))


def test_more_open_files_than_the_machine_allows():
    with pytest.raises(BenchError, match="ulimit"):
        crowd.allow_files(1 << 40)
