"""One call for generation: its engine requests, the tokens that come, and their end whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from concur_proxy.sim import tokens
from concur_proxy.sim.answers import Answer, answer
from concur_proxy.sim.calls import ApiError, Call
from concur_proxy.sim.engine import Engine
from concur_proxy.sim.options import Deployment, EngineOptions
from concur_proxy.sim.replies import Usage
from concur_proxy.sim.server.driver import Driver
from concur_proxy.sim.step import Request


@dataclass(frozen=True, slots=True)
class Progress:
    """Tokens ``start`` to ``stop`` of a choice are there."""

    choice: int
    start: int
    stop: int


class Job:
    """A call under way. Whoever started it calls ``close``, which is the abort where it has not ended."""

    def __init__(self, driver: Driver, answers: list[Answer], requests: list[Request], *, report_cached: bool) -> None:
        self.answers = answers
        self._driver = driver
        self._requests = requests
        self._choice = {request: index for index, request in enumerate(requests)}
        self._report_cached = report_cached
        self._unfinished = len(requests)
        self._news: list[Progress] = []
        self._waiter: asyncio.Future[None] | None = None
        self._wake_at_each_token = False
        self._closed = False

    async def finished(self) -> bool:
        """Wait for all tokens. False where the job was closed before."""
        while self._unfinished and not self._closed:
            await self._wait()
        return not self._closed

    async def progress(self) -> AsyncIterator[list[Progress]]:
        """What came since the last look, until all tokens are there or the job is closed."""
        self._wake_at_each_token = True
        while not self._closed:
            if self._news:
                news, self._news = self._news, []
                yield news
            elif self._unfinished:
                await self._wait()
            else:
                return

    def usage(self, choices: int) -> Usage:
        """What the job cost. ``choices`` answers share one prompt, which counts once."""
        firsts = self._requests[::choices]
        return Usage(
            prompt=sum(request.prompt_tokens for request in firsts),
            completion=sum(request.generated for request in self._requests),
            cached=sum(request.cached_tokens or 0 for request in firsts) if self._report_cached else None,
        )

    def heard(self, request: Request, count: int) -> None:
        """Take note of new tokens: the driver's listener."""
        over = request.generated == request.output_tokens
        self._unfinished -= over
        self._news.append(Progress(self._choice[request], request.generated - count, request.generated))
        if self._wake_at_each_token or not self._unfinished:
            self._wake()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._driver.abort(self._requests)
            self._wake()

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Service:
    """The engine, its driver, and what turns calls into requests for them."""

    def __init__(self, options: EngineOptions, deployment: Deployment, clock: Callable[[], float]) -> None:
        self.options = options
        self.deployment = deployment
        self.engine = Engine(deployment.engine)
        self.driver = Driver(self.engine, clock)

    def start(self, call: Call) -> Job:
        """Put a call's requests in line. ApiError 503 where too many wait already."""
        most = self.options.max_queued
        if most is not None and self.engine.waiting >= most:
            self.engine.stats.rejections += 1
            raise ApiError(503, f"{self.engine.waiting} requests wait already; at most {most} may")
        answers, requests = [], []
        for prompt in call.prompts:
            for said, request in self._requests(call, prompt):
                answers.append(said)
                requests.append(request)
        job = Job(self.driver, answers, requests, report_cached=self.options.cached_tokens)
        self.driver.submit(requests, job.heard)
        return job

    def _requests(self, call: Call, prompt: str) -> list[tuple[Answer, Request]]:
        """One request per choice; the prompt is hashed once for all of them."""
        size = self.deployment.engine.block_size
        salt = tokens.digest(call.cache_salt) if call.cache_salt else 0
        shared = tokens.block_hashes(prompt, size, salt)
        rest = prompt[len(shared) * size * tokens.CHARS :]
        room = call.room(prompt, self.deployment.max_model_len)
        made = []
        for choice in range(call.choices):
            said = answer(call, prompt, choice, room, self.options.seed)
            own = tokens.block_hashes(rest + said.text, size, shared[-1] if shared else salt)
            request = Request(tokens.count(prompt), said.tokens, shared + own, self.driver.now(), said.end)
            made.append((said, request))
        return made
