"""What may go wrong with engines under load, and what the clients notice of it: each scene returns what was seen.

``bench/chaos.py`` prints them as the table of docs/reliability.md; the tests beside say what must hold.
"""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from concur_proxy.sim.server import EngineOptions, EngineServer
from tests.chaos.crowd import Crowd, Stream
from tests.chaos.wire import Wire
from tests.clients.stack import ProxyProcess
from tests.ports import free_port

OPTIONS = EngineOptions(port=0, model="alpha", speed=2.0, kv_tokens=400_000, max_num_seqs=256)
WINDOW = 256
PATIENCE_S = 60.0
RESUMED = {"CONCUR_UPSTREAM__RESUME_STREAMS": "true", "CONCUR_UPSTREAM__RETRY_BUDGET": "1"}


@dataclass
class Seen:
    """The outcome of one scene."""

    clients: int = 0
    completed: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    hung: int = 0
    resumed: int = 0
    recovery_s: float = 0.0
    """From the fault until the proxy works around it."""
    over_window: float = 0.0
    """Most that was active beyond a window."""
    books: dict[str, int] = field(default_factory=dict)
    streams: list[Stream] = field(default_factory=list)

    @property
    def balanced(self) -> bool:
        """Every turn that arrived has ended in one way, and nothing is left of any."""
        books = self.books
        return books["arrived"] == books["finished"] + books["refused"] + books["abandoned"] and not books["left"]


@contextmanager
def fleet(
    count: int, *, flags: Sequence[str] = (), env: dict[str, str] | None = None, options: EngineOptions = OPTIONS
) -> Iterator[tuple[list[EngineServer], ProxyProcess]]:
    """Engines with a proxy in front of them, all up."""
    with ExitStack() as stack:
        engines = [stack.enter_context(EngineServer(options)) for _ in range(count)]
        proxy = stack.enter_context(
            ProxyProcess([one.url for one in engines], flags=[*flags, "--window", str(WINDOW)], env=env or {})
        )
        until(lambda: set(states(proxy.url).values()) == {"up"})
        yield engines, proxy


def until(condition: Callable[[], object], *, within_s: float = PATIENCE_S) -> float:
    """Wait until something is true; return how long that took."""
    start = time.monotonic()
    while not condition():
        assert time.monotonic() - start < within_s, "it did not come to that"
        time.sleep(0.02)
    return time.monotonic() - start


def status(url: str) -> dict:
    return httpx.get(f"{url}/concur/status", timeout=10).json()


def states(url: str) -> dict[str, str]:
    return {one["name"]: one["state"] for one in status(url)["backends"]}


def name_of(engine: EngineServer) -> str:
    return f"127.0.0.1:{engine.port}"


def ask(url: str, session: str) -> httpx.Response:
    body = {"model": "alpha", "max_tokens": 2, "ignore_eos": True, "messages": [{"role": "user", "content": "hi"}]}
    return httpx.post(f"{url}/v1/chat/completions", json=body, headers={"x-session-id": session}, timeout=60)


def _books(url: str) -> dict[str, int]:
    told = status(url)
    left = told["held"] + sum(one["running"] for one in told["backends"])
    return {**told["turns"], "left": left}


async def _watch(url: str, seen: Seen) -> None:
    """See how far what is active exceeds the windows, again and again."""
    async with httpx.AsyncClient() as client:
        while True:
            told = (await client.get(f"{url}/concur/status", timeout=30)).json()
            for one in told["backends"]:
                seen.over_window = max(seen.over_window, (one["active"] or 0) - (one["window"] or float("inf")))
            await asyncio.sleep(0.1)


def under_streams(
    proxy: ProxyProcess, *, streams: int, tokens: int, fault: Callable[[], object], over: Callable[[], object]
) -> Seen:
    """Let ``streams`` clients listen, make a ``fault``, and see how they fare; ``over`` tells when it is got over."""
    seen = Seen(clients=streams)

    async def main() -> None:
        crowd = Crowd(proxy.port, streams, tokens)
        await crowd.start()
        watching = asyncio.create_task(_watch(proxy.url, seen))
        fault()
        recovery = asyncio.create_task(asyncio.to_thread(until, over))
        seen.streams = await crowd.ended()
        seen.recovery_s = await recovery
        watching.cancel()

    asyncio.run(main())
    seen.completed = sum(stream.done and stream.error is None for stream in seen.streams)
    seen.errors = Counter(stream.error for stream in seen.streams if stream.error is not None)
    seen.hung = sum(stream.hung for stream in seen.streams)
    until(lambda: _books(proxy.url)["left"] == 0)
    seen.books = _books(proxy.url)
    return seen


def kill_a_backend(*, resume: bool, streams: int = 200, tokens: int = 120) -> Seen:
    """Kill one of three engines with a third of the streams on it."""
    with fleet(3, env=RESUMED if resume else {}) as (engines, proxy):
        victim = engines[0]
        seen = under_streams(
            proxy,
            streams=streams,
            tokens=tokens,
            fault=lambda: os.kill(victim.pid, signal.SIGKILL),
            over=lambda: states(proxy.url)[name_of(victim)] == "lost",
        )
        hit = [stream for stream in seen.streams if stream.backend == name_of(victim)]
        seen.resumed = sum(stream.done for stream in hit)
        return seen


def freeze_a_backend(*, streams: int = 40) -> Seen:
    """Stop one of two engines: it accepts connections and says nothing, as behind a network that is cut."""
    with fleet(2) as (engines, proxy):
        victim = engines[0]
        seen = Seen(clients=streams)
        for number in range(4):
            assert ask(proxy.url, f"before-{number}").status_code == 200
        os.kill(victim.pid, signal.SIGSTOP)
        try:
            seen.recovery_s = until(lambda: states(proxy.url)[name_of(victim)] == "lost")
            answers = [ask(proxy.url, f"after-{number}").status_code for number in range(streams)]
            seen.completed = answers.count(200)
            seen.errors = Counter(str(code) for code in answers if code != 200)
        finally:
            os.kill(victim.pid, signal.SIGCONT)
        until(lambda: states(proxy.url)[name_of(victim)] == "up")
        until(lambda: _books(proxy.url)["left"] == 0)
        seen.books = _books(proxy.url)
        return seen


def cut_a_backend_off(*, comes_back: bool, streams: int = 200, tokens: int = 120) -> Seen:
    """Cut the network to one of two engines with half of the streams on it: until that is noticed, or for good.

    For good: its streams end when nothing has been heard of them for five.
    """
    env = {} if comes_back else {"CONCUR_UPSTREAM__IDLE_TIMEOUT_S": "5"}
    with ExitStack() as stack:
        engine, other = (stack.enter_context(EngineServer(OPTIONS)) for _ in range(2))
        wire = stack.enter_context(Wire(engine.port))
        flags = ["--window", str(WINDOW)]
        proxy = stack.enter_context(ProxyProcess([wire.url, other.url], flags=flags, env=env))
        victim = wire.url.removeprefix("http://")
        until(lambda: set(states(proxy.url).values()) == {"up"})

        def over() -> bool:
            lost = states(proxy.url)[victim] == "lost"
            if lost and comes_back:
                wire.heal()
            return lost

        seen = under_streams(proxy, streams=streams, tokens=tokens, fault=wire.cut, over=over)
        seen.resumed = sum(stream.done for stream in seen.streams if stream.backend == victim)
        wire.heal()
        until(lambda: states(proxy.url)[victim] == "up")
        return seen


def cut_metrics_off(cut_s: float = 60.0, *, agents: int = 8) -> Seen:
    """Cut the network to an engine's metrics, but not to the engine, while agents are at work."""
    seen, over = Seen(clients=agents), threading.Event()
    with ExitStack() as stack:
        engine = stack.enter_context(EngineServer(OPTIONS))
        wire = stack.enter_context(Wire(engine.port))
        config = Path(stack.enter_context(tempfile.TemporaryDirectory()), "config.yaml")
        config.write_text(f"backends: [{{url: '{engine.url}', metrics_url: '{wire.url}/metrics'}}]\n")
        proxy = stack.enter_context(ProxyProcess([], flags=["--config", str(config)]))

        def agent(number: int) -> Counter[int]:
            codes: Counter[int] = Counter()
            while not over.is_set():
                codes[ask(proxy.url, f"agent-{number}").status_code] += 1
            return codes

        def is_stale() -> bool:
            return bool(status(proxy.url)["backends"][0]["signals"]["stale"])

        until(lambda: not is_stale())
        clients = stack.enter_context(ThreadPoolExecutor(agents))
        answers = [clients.submit(agent, number) for number in range(agents)]
        try:
            wire.cut()
            until(is_stale)
            time.sleep(cut_s)
            wire.heal()
            seen.recovery_s = until(lambda: not is_stale())
        finally:
            over.set()
        codes = sum((each.result() for each in answers), Counter[int]())
        seen.clients, seen.completed = codes.total(), codes[200]
        seen.errors = Counter({str(code): count for code, count in codes.items() if code != 200})
        seen.books = _books(proxy.url)
        return seen


def restart_a_backend(*, streams: int = 100, tokens: int = 60) -> Seen:
    """Kill the only engine and start another on its port; clients come back as their libraries do."""
    options = EngineOptions(port=free_port(), model="alpha", speed=2.0, kv_tokens=400_000, max_num_seqs=256)
    with fleet(1, options=options) as (engines, proxy), ExitStack() as stack:

        def restart() -> None:
            os.kill(engines[0].pid, signal.SIGKILL)
            until(lambda: states(proxy.url)[name_of(engines[0])] == "lost")
            stack.enter_context(EngineServer(options))

        seen = under_streams(
            proxy,
            streams=streams,
            tokens=tokens,
            fault=restart,
            over=lambda: states(proxy.url)[name_of(engines[0])] == "up",
        )
        assert ask(proxy.url, "after").status_code == 200
        return seen


def lose_metrics(engine_down: Callable[[], object], engine_back: Callable[[], object], proxy: ProxyProcess) -> Seen:
    """Take an engine's metrics away for as long as it takes to be noticed, and ask on."""
    seen = Seen()
    engine_down()
    seen.recovery_s = until(lambda: status(proxy.url)["backends"][0]["signals"]["stale"])
    answers = [ask(proxy.url, f"blind-{number}").status_code for number in range(30)]
    seen.clients, seen.completed = len(answers), answers.count(200)
    seen.errors = Counter(str(code) for code in answers if code != 200)
    engine_back()
    until(lambda: not status(proxy.url)["backends"][0]["signals"]["stale"])
    seen.books = _books(proxy.url)
    return seen
