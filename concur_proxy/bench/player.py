"""Plays a workload at an OpenAI URL: every session is an agent that asks, waits, thinks, and asks again."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate
from random import Random

import orjson

from concur_proxy.bench.client import Client, ConnectionLostError, Reply
from concur_proxy.bench.conversation import EMBEDDED_WORDS, Conversation, History
from concur_proxy.bench.report import Progress, Report, Tally
from concur_proxy.core.usage import UsageReader, reader_for
from concur_proxy.errors import BackendError
from concur_proxy.sim.workload import SessionScript, TurnScript

PATH = "/v1/chat/completions"
RETRIED = frozenset({429, 503})
LONGEST_PAUSE_S = 60.0
PROGRESS_INTERVAL_S = 0.25


@dataclass(frozen=True, slots=True)
class PlayOptions:
    model: str | None = None
    """None: the first that ``/v1/models`` lists."""
    stream: bool = False
    history: History = History.FULL
    words: Sequence[str] = field(default=EMBEDDED_WORDS, repr=False)
    """Words that are one token each to the engine."""
    concurrency: int | None = None
    """Agents at once; None: all of them."""
    requests_at_once: int | None = None
    """Requests under way, all agents together, as clients limit them themselves; None: no limit."""
    session_header: str | None = "x-session-id"
    """Names each agent's session; None: the server has to recognise it by other means."""
    ignore_eos: bool = True
    """Have answers exactly as long as the script says, as vLLM and SGLang can."""
    arrivals_per_s: float | None = None
    """Agents start one after another, at random (Poisson); None: all at once, as ``concurrency`` lets them."""
    stop_after_s: float | None = None
    """Count what is answered until then, instead of playing all to the end; sessions that run then are left alone."""
    timeout_s: float | None = None
    """The client gives a try up after this; None: it is patient."""
    objective_s: float | None = None
    """Time to the first token, or to an answer that is not streamed, within which a turn counts as good."""
    max_tries: int = 100
    """How often a turn is sent before it counts as an error, while the answer is 429 or 503 or no connection."""
    api_key: str | None = None
    seed: int = 0


async def play(
    url: str,
    scripts: Sequence[SessionScript],
    options: PlayOptions | None = None,
    *,
    on_progress: Callable[[Progress], None] | None = None,
) -> Report:
    """Play all sessions, from the first request to the last answer. BackendError where the model is not told."""
    options = options or PlayOptions()
    client = Client(url)
    try:
        model = options.model or await first_model(client, options)
        return await _Run(client, scripts, options, model).play(on_progress)
    finally:
        await client.aclose()


async def first_model(client: Client, options: PlayOptions) -> str:
    """Ask for the model's name."""
    try:
        reply = await client.request("GET", "/v1/models", headers=_authorization(options))
        return str(orjson.loads(reply.body)["data"][0]["id"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise BackendError(f"{client.base_url}/v1/models does not tell a model: {error}") from error


class _Run:
    """One workload under way."""

    def __init__(self, client: Client, scripts: Sequence[SessionScript], options: PlayOptions, model: str) -> None:
        self._client = client
        self._scripts = scripts
        self._options = options
        self._model = model
        self._name = secrets.token_hex(4)
        turns = sum(len(script.turns) for script in scripts)
        self._tally = Tally(len(scripts), turns, objective_s=options.objective_s)
        self._places = asyncio.Semaphore(options.concurrency or max(1, len(scripts)))
        self._line = asyncio.Semaphore(options.requests_at_once or max(1, len(scripts)))

    async def play(self, on_progress: Callable[[Progress], None] | None) -> Report:
        clock = asyncio.get_running_loop().time
        start = clock()
        ticker = asyncio.create_task(self._tell(on_progress, start)) if on_progress else None
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._options.stop_after_s), asyncio.TaskGroup() as group:
                    for script, delay in zip(self._scripts, self._delays(), strict=True):
                        group.create_task(self._session(script, delay))
        finally:
            if ticker is not None:
                ticker.cancel()
        report = self._tally.report(clock() - start)
        if on_progress is not None:
            on_progress(self._tally.progress(report.wall_s))
        return report

    def _delays(self) -> list[float]:
        """Return when each agent comes, in seconds from now."""
        rate, random = self._options.arrivals_per_s, Random(self._options.seed)
        if rate is None:
            return [0.0] * len(self._scripts)
        return list(accumulate(random.expovariate(rate) for _ in self._scripts))

    async def _tell(self, on_progress: Callable[[Progress], None], start: float) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            on_progress(self._tally.progress(clock() - start))
            await asyncio.sleep(PROGRESS_INTERVAL_S)

    async def _session(self, script: SessionScript, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        async with self._places:
            await self._think(script.turns[0])
            clock = asyncio.get_running_loop().time
            start = clock()
            agent = _Agent(self._client, self._tally, self._options, self._request(script), self._line)
            conversation = Conversation(
                script, self._options.words, history=self._options.history, seed=self._options.seed
            )
            completed = True
            for index, turn in enumerate(script.turns):
                if index:
                    await self._think(turn)
                conversation.ask(turn)
                completed = await agent.turn(turn, conversation)
                if not completed:
                    break
            rate = agent.turns / agent.waited_s if agent.waited_s else 0.0
            self._tally.session_ended(script.id, clock() - start, completed=completed, turns_per_s=rate)

    async def _think(self, turn: TurnScript) -> None:
        self._tally.thinks()
        try:
            await asyncio.sleep(turn.think_s)
        finally:
            self._tally.thought()

    def _request(self, script: SessionScript) -> _Request:
        headers = _authorization(self._options)
        if self._options.session_header:
            # Two runs of one workload are different agents.
            headers[self._options.session_header] = f"{self._name}-{script.id}"
        fields: dict[str, object] = {"model": self._model, "stream": self._options.stream}
        if self._options.stream:
            fields["stream_options"] = {"include_usage": True}
        if self._options.ignore_eos:
            fields["ignore_eos"] = True
        return _Request(headers, fields)


@dataclass(frozen=True, slots=True)
class _Request:
    """What all requests of an agent have in common."""

    headers: Mapping[str, str]
    fields: Mapping[str, object]


class _Agent:
    """Sends the turns of one session and keeps what it has had in the engine."""

    def __init__(
        self, client: Client, tally: Tally, options: PlayOptions, request: _Request, line: asyncio.Semaphore
    ) -> None:
        self._client = client
        self._tally = tally
        self._options = options
        self._request = request
        self._line = line
        self._known = 0
        """Tokens of the conversation that the engine has seen and that the next prompt repeats."""
        self.turns = 0
        """That were answered."""
        self.waited_s = 0.0
        """For answers, those that never came included."""

    async def turn(self, turn: TurnScript, conversation: Conversation) -> bool:
        """Ask until there is an answer. False where there is none."""
        body = conversation.body({**self._request.fields, "max_tokens": turn.output_tokens})
        clock = asyncio.get_running_loop().time
        start = clock()
        watch = _Watch(clock, stream=self._options.stream)
        async with self._line:
            reply = await self._ask(body, watch)
        self.waited_s += clock() - start
        if reply is None:
            return False
        text = answer_text(reply.body, stream=self._options.stream)
        if text is None:
            self._tally.failed("an answer without text")
            return False
        self.turns += 1
        usage = watch.reader.usage
        ttft = None if watch.first_token_at is None else watch.first_token_at - start
        known = 0 if turn.rewrites else self._known
        self._tally.answered(usage, reusable=known, duration_s=clock() - start, ttft_s=ttft)
        if usage is not None:
            repeats = self._options.history is History.FULL
            self._known = usage.prompt_tokens + (usage.completion_tokens if repeats else 0)
        conversation.answered(text)
        return True

    async def _ask(self, body: bytes, watch: _Watch) -> Reply | None:
        """Send until it is answered or all tries are spent."""
        problem = ""
        for count in range(self._options.max_tries):
            if count:
                self._tally.retried()
            self._tally.sent()
            watch.begin()
            try:
                async with asyncio.timeout(self._options.timeout_s):
                    reply = await self._client.request(
                        "POST", PATH, body=body, headers=self._request.headers, on_data=watch.saw
                    )
            except (OSError, TimeoutError) as error:
                problem, pause = _problem(error), _pause(None, count)
                if isinstance(error, ConnectionLostError) and not error.early:
                    break
            else:
                if reply.status == 200:
                    return reply
                problem, pause = f"status {reply.status}: {_message(reply)}", _pause(reply, count)
                if reply.status not in RETRIED:
                    break
            finally:
                self._tally.returned()
            await asyncio.sleep(pause)
        self._tally.failed(problem)
        return None


class _Watch:
    """Looks at the pieces of an answer as they come."""

    def __init__(self, clock: Callable[[], float], *, stream: bool) -> None:
        self._clock = clock
        self._kind = "text/event-stream" if stream else "application/json"
        self.begin()

    def begin(self) -> None:
        self.reader: UsageReader = reader_for(self._kind)
        self.first_token_at: float | None = None

    def saw(self, data: bytes) -> None:
        self.reader.feed(data)
        if self.first_token_at is None and self.reader.saw_token:
            self.first_token_at = self._clock()


def answer_text(body: bytes, *, stream: bool) -> str | None:
    """Return what was generated, also where it is an empty text; None where the body is no complete answer."""
    try:
        if not stream:
            return orjson.loads(body)["choices"][0]["message"]["content"] or ""
        if b"data: [DONE]" not in body[-64:]:
            return None
        chunks = (orjson.loads(line[5:]) for line in body.splitlines() if line.startswith(b"data:") and b"{" in line)
        choices = (choice for chunk in chunks for choice in chunk["choices"])
        return "".join(choice["delta"].get("content") or "" for choice in choices)
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def _authorization(options: PlayOptions) -> dict[str, str]:
    return {"authorization": f"Bearer {options.api_key}"} if options.api_key else {}


def _pause(reply: Reply | None, tries: int) -> float:
    """Return how long to wait before the next try: as the server says, else longer with every try."""
    if reply is not None:
        for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
            with suppress(KeyError, ValueError):
                return min(LONGEST_PAUSE_S, max(0.0, float(reply.headers[name]) / unit))
    return float(min(LONGEST_PAUSE_S, 0.25 * 2 ** min(tries, 10)))


def _problem(error: BaseException) -> str:
    return "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__


def _message(reply: Reply) -> str:
    """Return an error's own words, shortened."""
    with suppress(ValueError, LookupError, TypeError):
        return str(orjson.loads(reply.body)["error"]["message"])[:200]
    return reply.body[:200].decode(errors="replace")
