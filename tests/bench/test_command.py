"""``concur-proxy bench`` as a newcomer meets it: hundreds of agents, Ctrl-C, an engine that dies, files at the end."""

import asyncio
import io
import json
import os
import signal
import threading

import pytest
from rich.console import Console

from concur_proxy.bench import command
from concur_proxy.bench.command import BenchOptions, run_bench
from concur_proxy.bench.compare import CompareOptions, Target
from concur_proxy.bench.families import Family
from concur_proxy.bench.player import PlayOptions
from concur_proxy.bench.vocabulary import Vocabulary
from concur_proxy.bench.workloads import SyntheticAgents
from concur_proxy.errors import BackendError, ConfigError
from concur_proxy.sim.server import EngineOptions, EngineServer
from concur_proxy.sim.workload import SessionScript, TurnScript
from tests.bench.servers import CLOSE, MODELS, chat, reply, served

TURN = TurnScript(20, 5, 0.0)
AGENTS = tuple(Family(SessionScript(f"a{number}", 10, (TURN, TURN))) for number in range(3))
WORDS = Vocabulary(("bak", "lek"))


def options(*targets, rounds=1, vocabulary=WORDS, play=None, **more):
    chosen = CompareOptions(
        tuple(Target.parse(target) for target in targets), rounds=rounds, play=play or PlayOptions()
    )
    return BenchOptions(chosen, vocabulary=vocabulary, **more)


class Served:
    """A scripted server in a thread of its own, as the bench has an event loop of its own."""

    def __init__(self, answer):
        self._answer = answer
        self._up = threading.Event()

    def __enter__(self):
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        self._up.wait()
        return self.url

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._down.set)
        self._thread.join()

    async def _serve(self):
        self._loop, self._down = asyncio.get_running_loop(), asyncio.Event()
        async with served(self._all_answers) as (self.url, _):
            self._up.set()
            await self._down.wait()

    def _all_answers(self, seen):
        return reply(MODELS) if seen.path == "/v1/models" else self._answer(seen)


def ran(agents, chosen):
    out = io.StringIO()
    status = run_bench(agents, chosen, Console(file=out, width=100))
    return status, out.getvalue()


def test_figures_go_to_the_screen_and_into_a_file(tmp_path):
    file = tmp_path / "out.json"
    with Served(lambda _: reply(chat(cached=4))) as url:
        asked = ("bench", url, "--api-key", "secret")
        status, shown = ran(AGENTS, options(f"a={url}/v1", f"b={url}", rounds=2, json_file=file, asked=asked))
    assert status == 0
    assert "texts of 2 words, one token a word" in shown
    assert "How many times a's, pair by pair" in shown
    written = json.loads(file.read_text())
    assert written["asked"] == ["bench", url, "--api-key", "..."]
    assert (written["model"], written["agents"], written["turns"]) == ("m", 3, 6)
    assert written["targets"] == {"a": url, "b": url}
    assert [len(runs) for runs in written["runs"].values()] == [2, 2]
    assert written["ratios"]["b"]["turns/s"]["upper_95"] > 0


def test_turns_that_fail_are_told_and_make_the_status():
    with Served(lambda _: reply({"error": {"message": "too long"}}, 400)) as url:
        status, shown = ran(AGENTS, options(url))
    assert status == 1
    assert "3 turns failed: status 400: too long" in shown


@pytest.mark.parametrize("name", ["nobody/out.json", "nobody/out.png"])
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_played(tmp_path, name):
    pytest.importorskip("matplotlib")
    path = tmp_path / name
    where = {"json_file": path} if name.endswith("json") else {"plot": path}
    with pytest.raises(ConfigError, match="there is no folder"):
        run_bench(AGENTS, options("http://127.0.0.1:1", **where), Console(file=io.StringIO()))


def test_an_engine_that_is_not_there():
    with pytest.raises(BackendError, match="is a server running there"):
        ran(AGENTS, options("http://127.0.0.1:1"))


def test_an_engine_that_dies_in_the_middle_ends_it_with_what_was_answered(tmp_path):
    answers = iter([reply(chat()) for _ in range(4)])
    file = tmp_path / "out.json"
    play = PlayOptions(gone_after_s=0.02)
    with Served(lambda _: next(answers, CLOSE)) as url:
        status, shown = ran(AGENTS, options(url, rounds=9, play=play, json_file=file))
    assert status == 1
    assert "a run was ended early (no answer for 0.02 s" in shown
    assert "not all rounds were played" in shown
    (runs,) = json.loads(file.read_text())["runs"].values()
    assert [run["turns"] for run in runs] == [4]


def test_ctrl_c_ends_it_with_what_was_answered():
    answers, asked = iter([reply(chat()) for _ in range(4)]), []

    def answer(_):
        if (one := next(answers, None)) is not None:
            return one
        if not asked:  # once: a second Ctrl-C is for everything
            asked.append(True)
            os.kill(os.getpid(), signal.SIGINT)
        return []  # no answer: it hangs until somebody ends it

    before = signal.getsignal(signal.SIGINT)
    with Served(answer) as url:
        status, shown = ran(AGENTS, options(url, rounds=9))
    assert status == command.INTERRUPTED_STATUS
    assert "a run was ended early (interrupted)" in shown
    assert signal.getsignal(signal.SIGINT) == before


def test_hundreds_of_agents_from_one_process_with_texts_as_long_as_they_should_be():
    agents = SyntheticAgents(sessions=512, turns=2, first_tokens=60, new_tokens=30, output_tokens=2, think_s=0)
    with EngineServer(EngineOptions(port=0, speed=1000, kv_tokens=400_000)) as engine:
        out = io.StringIO()
        chosen = options(engine.url, vocabulary=None)
        comparison, _ = asyncio.run(command._play(agents.families(), chosen, Console(file=out), command.History()))
    (report,) = comparison.reports[engine.url]
    assert (report.turns, report.errors, len(report.session_s)) == (1024, 0, 512)
    assert report.prompt_tokens == sum(sum(script.prompts()) for script in agents.scripts())
    assert report.hit_rate > 0.5  # the system prompt is the same for all, and a second turn has its first


def test_progress_is_lines_where_nobody_watches_a_terminal(monkeypatch):
    monkeypatch.setattr(command, "LINE_INTERVAL_S", 0.0)
    with Served(lambda _: reply(chat())) as url:
        _, shown = ran(AGENTS, options(f"a={url}"))
    assert "round 1 of 1, a: 6 of 6 turns" in shown
