"""The one thread that talks to the database, so that the event loop never waits for a disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from concur_proxy.batch.progress import Progress
from concur_proxy.batch.records import Answer

P = ParamSpec("P")
T = TypeVar("T")


class Worker:
    """Runs blocking calls one after another."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="batch store")

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what ``call`` returns. It goes on where we are cancelled: a transaction is never half done."""
        future = self._thread.submit(call, *args, **kwargs)
        return await asyncio.shield(asyncio.wrap_future(future))

    def close(self) -> None:
        """Wait for the call that runs; drop those that wait."""
        self._thread.shutdown(cancel_futures=True)


class AnswerBook:
    """Writes answers of one batch. Those that come while a transaction runs go into the next one together."""

    def __init__(self, batch: str, progress: Progress, worker: Worker) -> None:
        self._batch = batch
        self._progress = progress
        self._worker = worker
        self._waiting: list[tuple[Answer, asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None

    async def write(self, answer: Answer) -> None:
        """Return when the answer is kept for good; StoreUnavailableError where it cannot be."""
        kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((answer, kept))
        if self._task is None:
            self._task = asyncio.create_task(self._drain(), name="answers")
        await kept

    async def _drain(self) -> None:
        while self._waiting:
            taken, self._waiting = self._waiting, []
            error: Exception | None = None
            try:
                await self._worker.run(self._progress.answer, self._batch, [answer for answer, _ in taken])
            except Exception as failure:  # noqa: BLE001 - it is for those who wait to say what follows
                error = failure
            for _, kept in taken:
                _settle(kept, error)
        self._task = None


def _settle(kept: asyncio.Future[None], error: Exception | None) -> None:
    if kept.done():
        return
    if error is None:
        kept.set_result(None)
    else:
        kept.set_exception(error)
