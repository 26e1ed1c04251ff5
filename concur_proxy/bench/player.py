"""Plays a workload at an OpenAI URL: every session is an agent that asks, waits, thinks, and asks again.

An agent that starts sub-agents keeps its place among those that play at once, and they play within it: however few
places there are, nobody waits for someone who waits for him.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import accumulate
from random import Random

import orjson

from concur_proxy.bench.asking import Agent, Lifeline, Request
from concur_proxy.bench.client import Client
from concur_proxy.bench.conversation import Conversation
from concur_proxy.bench.families import Family, family
from concur_proxy.bench.options import PlayOptions
from concur_proxy.bench.report import Progress, Report, Tally
from concur_proxy.errors import BackendError
from concur_proxy.sim.workload import SessionScript, TurnScript

__all__ = ["PlayOptions", "Stop", "first_model", "play"]

PARENT_HEADER = "x-parent-session-id"
PROGRESS_INTERVAL_S = 0.25


async def play(
    url: str,
    agents: Sequence[SessionScript | Family],
    options: PlayOptions | None = None,
    *,
    on_progress: Callable[[Progress], None] | None = None,
    stop: Stop | None = None,
) -> Report:
    """Play all agents, from the first request to the last answer. BackendError where the model is not told."""
    options = options or PlayOptions()
    client = Client(url)
    try:
        model = options.model or await first_model(client, options)
        return await _Run(client, agents, options, model).play(on_progress, stop or Stop())
    finally:
        await client.aclose()


async def first_model(client: Client, options: PlayOptions) -> str:
    """Ask for the model's name. BackendError says what to look at where there is none."""
    try:
        reply = await client.request("GET", "/v1/models", headers=options.authorization)
    except OSError as error:  # a timeout is one
        problem = str(error) or "no connection in time"
        raise BackendError(f"{client.base_url} does not answer: {problem}; is a server running there?") from error
    if reply.status in (401, 403):
        raise BackendError(f"{client.base_url}/v1/models answers {reply.status}: it wants another API key")
    try:
        return str(orjson.loads(reply.body)["data"][0]["id"])
    except (ValueError, LookupError, TypeError) as error:
        raise BackendError(
            f"{client.base_url}/v1/models does not tell a model (status {reply.status}): is this the address of an "
            "OpenAI-compatible server?"
        ) from error


class Stop:
    """Ends a run from outside: what was answered until then counts."""

    def __init__(self) -> None:
        self.reason: str | None = None
        """Why it was asked to; None: it was not."""
        self._limit: asyncio.Timeout | None = None

    def __call__(self, reason: str = "interrupted") -> None:
        self.reason = self.reason or reason
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time())

    @asynccontextmanager
    async def within(self, seconds: float | None) -> AsyncIterator[None]:
        """End what is inside after so many seconds, or when it is asked to, whichever comes first."""
        with suppress(TimeoutError):
            async with asyncio.timeout(0 if self.reason else seconds) as self._limit:
                yield
        self._limit = None


class _Run:
    """One workload under way."""

    def __init__(
        self, client: Client, agents: Sequence[SessionScript | Family], options: PlayOptions, model: str
    ) -> None:
        self._client = client
        self._families = [family(agent) for agent in agents]
        self._options = options
        self._model = model
        self._name = secrets.token_hex(4)
        sessions = [script for each in self._families for script in each.members()]
        turns = sum(len(script.turns) for script in sessions)
        self._tally = Tally(len(agents), turns, objective_s=options.objective_s)
        self._places = asyncio.Semaphore(options.concurrency or max(1, len(agents)))
        self._line = asyncio.Semaphore(options.requests_at_once or max(1, len(sessions)))

    async def play(self, on_progress: Callable[[Progress], None] | None, stop: Stop) -> Report:
        self._lifeline = Lifeline(self._options.gone_after_s, stop)
        clock = asyncio.get_running_loop().time
        start = clock()
        counted_from = start + self._options.warm_up_s
        warm = asyncio.get_running_loop().call_at(counted_from, self._tally.forget) if counted_from > start else None
        ticker = asyncio.create_task(self._tell(on_progress, start)) if on_progress else None
        try:
            async with stop.within(self._options.stop_after_s), asyncio.TaskGroup() as group:
                for each, delay in zip(self._families, self._delays(), strict=True):
                    group.create_task(self._agent(each, delay))
        finally:
            if warm is not None:
                warm.cancel()
            if ticker is not None:
                ticker.cancel()
        report = self._tally.report(max(0.0, clock() - counted_from), ended_early=stop.reason)
        if on_progress is not None:
            on_progress(self._tally.progress(report.wall_s))
        return report

    def _delays(self) -> list[float]:
        """Return when each agent comes, in seconds from now."""
        rate, random = self._options.arrivals_per_s, Random(self._options.seed)
        if rate is None:
            return [each.start_s for each in self._families]
        return list(accumulate(random.expovariate(rate) for _ in self._families))

    async def _tell(self, on_progress: Callable[[Progress], None], start: float) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            on_progress(self._tally.progress(clock() - start))
            await asyncio.sleep(PROGRESS_INTERVAL_S)

    async def _agent(self, whole: Family, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        async with self._places:
            await self._think(whole.script.turns[0])
            clock = asyncio.get_running_loop().time
            start = clock()
            agent = self._asker(whole.script, None)
            completed = await self._turns(whole, agent)
            rate = agent.turns / agent.waited_s if agent.waited_s else 0.0
            self._tally.session_ended(whole.script.id, clock() - start, completed=completed, turns_per_s=rate)

    async def _turns(self, whole: Family, agent: Agent) -> bool:
        """Play one session, its first think time apart, and its sub-agents. False where a turn was not answered."""
        script, options = whole.script, self._options
        conversation = Conversation(
            script,
            options.words,
            history=options.history,
            seed=options.seed,
            tokens_per_word=options.tokens_per_word,
        )
        async with asyncio.TaskGroup() as sub_agents:
            for index, turn in enumerate(script.turns):
                if index:
                    await self._think(turn)
                conversation.ask(turn)
                final = options.says_goodbye and index + 1 == len(script.turns)
                if not await agent.turn(turn, conversation, final=final):
                    return False
                born = [
                    sub_agents.create_task(self._sub_agent(child, script)) for child in whole.children.get(index, ())
                ]
                if born and whole.waits:
                    await asyncio.wait(born)
        return True

    async def _sub_agent(self, whole: Family, parent: SessionScript) -> None:
        """Play a sub-agent. Its parent goes on also where it fails: its turns count as errors then."""
        await self._think(whole.script.turns[0])
        await self._turns(whole, self._asker(whole.script, parent))

    async def _think(self, turn: TurnScript) -> None:
        self._tally.thinks()
        try:
            await asyncio.sleep(turn.think_s)
        finally:
            self._tally.thought()

    def _asker(self, script: SessionScript, parent: SessionScript | None) -> Agent:
        request = self._request(script, parent)
        return Agent(self._client, self._tally, self._options, request, self._line, self._lifeline)

    def _request(self, script: SessionScript, parent: SessionScript | None) -> Request:
        headers = self._options.authorization
        if self._options.session_header:
            # Two runs of one workload are different agents.
            headers[self._options.session_header] = f"{self._name}-{script.id}"
            if parent is not None:
                headers[PARENT_HEADER] = f"{self._name}-{parent.id}"
        fields: dict[str, object] = {"model": self._model, "stream": self._options.stream}
        if self._options.stream:
            fields["stream_options"] = {"include_usage": True}
        if self._options.ignore_eos:
            fields["ignore_eos"] = True
        return Request(headers, fields)
