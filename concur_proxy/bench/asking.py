"""How one agent asks: a request, as many tries as its client makes, and what the answer tells."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import orjson

from concur_proxy.bench.client import Client, ConnectionLostError, Reply
from concur_proxy.bench.conversation import Conversation, History
from concur_proxy.bench.options import PlayOptions
from concur_proxy.bench.report import Tally
from concur_proxy.core.usage import UsageReader, reader_for
from concur_proxy.sim.workload import TurnScript

PATH = "/v1/chat/completions"
FINAL = {"x-session-final": "true"}
RETRIED = frozenset({429, 503})
LONGEST_PAUSE_S = 60.0


@dataclass(frozen=True, slots=True)
class Request:
    """What all requests of an agent have in common."""

    headers: Mapping[str, str]
    fields: Mapping[str, object]


class Lifeline:
    """Whether the server is there at all: agents that try again and again would wait for one that is gone for hours."""

    def __init__(self, patience_s: float | None, end: Callable[[str], None]) -> None:
        """``end`` is told why the run is over when for ``patience_s`` no connection has brought an answer."""
        self._patience_s = patience_s
        self._end = end
        self._lost_at: float | None = None

    def holds(self) -> None:
        """An answer came, whatever it was."""
        self._lost_at = None

    def lost(self, problem: str) -> None:
        now = asyncio.get_running_loop().time()
        self._lost_at = now if self._lost_at is None else self._lost_at
        if self._patience_s is not None and now - self._lost_at >= self._patience_s:
            self._end(f"no answer for {self._patience_s:g} s: {problem}")


class Agent:
    """Sends the turns of one session and keeps what it has had in the engine."""

    def __init__(
        self,
        client: Client,
        tally: Tally,
        options: PlayOptions,
        request: Request,
        line: asyncio.Semaphore,
        lifeline: Lifeline,
    ) -> None:
        self._client = client
        self._tally = tally
        self._options = options
        self._request = request
        self._line = line
        self._lifeline = lifeline
        self._known = 0
        """Tokens of the conversation that the engine has seen and that the next prompt repeats."""
        self.turns = 0
        """That were answered."""
        self.waited_s = 0.0
        """For answers, those that never came included."""

    async def turn(self, turn: TurnScript, conversation: Conversation, *, final: bool = False) -> bool:
        """Ask until there is an answer. False where there is none. ``final``: the session says that it ends here."""
        body = conversation.body({**self._request.fields, "max_tokens": turn.output_tokens})
        clock = asyncio.get_running_loop().time
        start = clock()
        watch = _Watch(clock, stream=self._options.stream)
        async with self._line:
            reply = await self._ask(body, watch, FINAL if final else {})
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

    async def _ask(self, body: bytes, watch: _Watch, more: Mapping[str, str]) -> Reply | None:
        """Send until it is answered or all tries are spent."""
        problem, headers = "", {**self._request.headers, **more}
        for count in range(self._options.max_tries):
            if count:
                self._tally.retried()
            self._tally.sent()
            watch.begin()
            try:
                async with asyncio.timeout(self._options.timeout_s):
                    reply = await self._client.request("POST", PATH, body=body, headers=headers, on_data=watch.saw)
            except (OSError, TimeoutError) as error:
                problem, pause = _problem(error), _pause(None, count)
                if not isinstance(error, TimeoutError):
                    self._lifeline.lost(problem)
                if isinstance(error, ConnectionLostError) and not error.early:
                    break
            else:
                self._lifeline.holds()
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
