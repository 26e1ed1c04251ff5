"""Carries operations to Redis, in order and many at once, and knows when Redis is gone.

What is sent while a call is on its way goes together with the next one. One call at a time is on its way, so that what
a replica tells of itself is never overtaken. Nobody awaits anything here: answers come as calls of ``then``, with None
where Redis did not answer.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from redis.exceptions import NoScriptError, RedisError

from concur_proxy.tasks import end

SCRIPT = Path(__file__).with_name("script.lua").read_text(encoding="utf-8")

TIMEOUT_S = 1.0
"""After this Redis counts as gone; a turn waits far less (``owners``)."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 0.5
"""Between two tries while it is gone."""

MOST_WAITING = 10_000
"""Operations that wait for their call; more are answered as if Redis were gone."""

Answer = dict[str, Any]
Then = Callable[[Answer | None], None]
Operation = Sequence[Any]

_log = logging.getLogger(__name__)


class Client(Protocol):
    """What is used of redis-py's clients."""

    async def evalsha(self, sha: str, numkeys: int, *keys_and_args: Any) -> Any: ...

    async def script_load(self, script: str) -> Any: ...


class Link:
    """``first``: an operation that is made when the call is, and comes before the others; None for nothing to say."""

    def __init__(self, client: Any, prefix: str, name: str) -> None:
        self._client: Client = client
        self._prefix = prefix
        self._name = name
        self._sha: str | None = None
        self._waiting: list[tuple[Operation, Then]] = []
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.up = False
        """Redis answered last time."""
        self.failures = 0
        """Calls without an answer, ever."""
        self.problem = ""
        """Why there was none, the last time."""
        self.first: Callable[[], tuple[Operation, Then] | None] = lambda: None
        self.on_change: Callable[[bool], None] = lambda _up: None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="state link")

    def send(self, operation: Operation, then: Then) -> None:
        """Carry an operation with the next call."""
        if len(self._waiting) >= MOST_WAITING:
            then(None)
            return
        self._waiting.append((operation, then))
        self._news.set()

    def hurry(self) -> None:
        """Make the next call now: ``first`` has something to say."""
        self._news.set()

    async def ask(self, operation: Operation) -> Answer | None:
        """Carry an operation and return its answer; None where Redis did not answer."""
        answered: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()
        self.send(operation, lambda answer: None if answered.done() else answered.set_result(answer))
        return await answered

    async def aclose(self) -> None:
        await end(self._task)

    async def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            await self._news.wait()
            self._news.clear()
            if await self._call():
                pause_s = FIRST_PAUSE_S
                continue
            await asyncio.sleep(pause_s)
            pause_s = min(2.0 * pause_s, LONGEST_PAUSE_S)
            self._news.set()

    async def _call(self) -> bool:
        """Carry what waits; False where Redis did not answer."""
        first = self._make_first()
        batch = ([first] if first is not None else []) + self._waiting
        self._waiting = []
        if not batch:
            return self.up
        answers: Sequence[Answer | None] | None = None
        try:
            async with asyncio.timeout(TIMEOUT_S):
                answers = await self._evaluate([operation for operation, _ in batch])
        except (RedisError, OSError, TimeoutError, ValueError) as error:
            self._failed(error)
        except Exception as error:  # noqa: BLE001 - a bug there must not leave those without an answer who wait
            _log.exception("asking the shared state failed")
            self._failed(error)
        self._tell(up=answers is not None)
        for (operation, then), answer in zip(batch, answers or [None] * len(batch), strict=True):
            try:
                then(answer)
            except Exception:  # noqa: BLE001 - one bad answer is not to stop the others
                _log.exception("an answer of the shared state could not be taken in: %s", operation[0])
        return answers is not None

    def _make_first(self) -> tuple[Operation, Then] | None:
        try:
            return self.first()
        except Exception:  # noqa: BLE001 - what others wait for goes on its way all the same
            _log.exception("what is here could not be told")
            return None

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        self.problem = str(error) or type(error).__name__

    async def _evaluate(self, operations: Sequence[Operation]) -> Sequence[Answer]:
        arguments = (f"{self._prefix}replicas", self._prefix, self._name, json.dumps(operations))
        if self._sha is None:
            self._sha = await self._client.script_load(SCRIPT)
        try:
            answer = await self._client.evalsha(self._sha, 1, *arguments)
        except NoScriptError:
            self._sha = await self._client.script_load(SCRIPT)
            answer = await self._client.evalsha(self._sha, 1, *arguments)
        decoded: Sequence[Answer] = json.loads(answer)
        return decoded

    def _tell(self, *, up: bool) -> None:
        if up is self.up:
            return
        self.up = up
        if up:
            _log.info("the shared state is there")
        else:
            _log.warning("the shared state does not answer (%s): shares stay as they are", self.problem)
        self.on_change(up)
