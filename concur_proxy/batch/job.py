"""The life of one batch while this process holds it, from wherever it stands.

A job may end at any moment, by an error or because the process does: the next one reads the state and goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import cast

import orjson

from concur_proxy.batch import lines
from concur_proxy.batch.database import Row
from concur_proxy.batch.files import CHUNK_BYTES
from concur_proxy.batch.progress import Progress
from concur_proxy.batch.records import Claim
from concur_proxy.batch.sending import Sender
from concur_proxy.batch.validation import Found, Reader, Rules
from concur_proxy.batch.worker import AnswerBook, Worker

logger = logging.getLogger(__name__)

CLAIMED_AT_ONCE = 32
CLOSED_AT_ONCE = 500
WHY = {
    "cancelled": ("batch_cancelled", "This request was not executed because its batch was cancelled."),
    "expired": ("batch_expired", "This request could not be executed before the completion window expired."),
    "completed": ("batch_unfinished", "This request was not executed."),
}


class Job:
    """``slots`` bounds the lines of all jobs together, and lets jobs take turns: whoever waited longest goes next."""

    def __init__(
        self,
        batch: str,
        runner: str,
        progress: Progress,
        worker: Worker,
        slots: asyncio.Semaphore,
        rules: Callable[[str], Rules],
        sender: Callable[[Row], Sender],
        clock: Callable[[], float],
    ) -> None:
        self.batch = batch
        self._runner = runner
        self._progress = progress
        self._worker = worker
        self._slots = slots
        self._rules = rules
        self._sender = sender
        self._clock = clock
        self._playing: asyncio.Task[None] | None = None

    def interrupt(self) -> None:
        """Leave off playing lines: the batch has been cancelled."""
        if self._playing is not None:
            self._playing.cancel()

    async def run(self) -> None:
        """Bring the batch to its end. StoreUnavailableError where the store fails."""
        await self._worker.run(self._progress.reclaim, self.batch, self._runner)
        row = await self._row()
        if row["status"] == "validating":
            await self._validate(row)
            row = await self._row()
        if row["status"] == "in_progress":
            await self._play(row)
            row = await self._row()
        if row["status"] in {"finalizing", "cancelling"}:
            await self._close_lines(row["ending"])
            await self._worker.run(self._progress.end, self.batch, self._runner, now=self._clock())
            row = await self._row()
            told = row["id"], row["status"], row["completed"], row["failed"], row["total"]
            logger.info("%s %s: %d answered, %d failed, of %d", *told)

    async def _row(self) -> Row:
        return await self._worker.run(self._progress.get, self.batch)

    # validating

    async def _validate(self, row: Row) -> None:
        found = await self._read(row)
        if found.errors:
            errors = orjson.dumps(found.errors).decode()
            await self._worker.run(self._progress.reject, self.batch, errors, now=self._clock())
        else:
            await self._worker.run(self._progress.accept, self.batch, found.lines, model=found.model, now=self._clock())

    async def _read(self, row: Row) -> Found:
        reader, place = Reader(self._rules(row["endpoint"])), 0
        while not reader.over:
            piece = await self._worker.run(self._progress.read, row["input_file"], place, CHUNK_BYTES)
            if not piece:
                break
            place += len(piece)
            await self._worker.run(reader.feed, piece)
        return await self._worker.run(reader.finish)

    # playing

    async def _play(self, row: Row) -> None:
        """Play lines until there are none, the time is over, or ``interrupt``."""
        ending = "completed"
        sender = self._sender(row)
        self._playing = asyncio.create_task(self._play_lines(sender), name=f"lines of {self.batch}")
        try:
            async with asyncio.timeout(row["expires_at"] - self._clock()):
                await asyncio.wait([self._playing])
        except TimeoutError:
            ending = "expired"
        finally:
            self._playing.cancel()
            await asyncio.wait([self._playing])
            sender.on_close()
        if not self._playing.cancelled() and (error := self._playing.exception()) is not None:
            raise error
        await self._worker.run(self._progress.finalize, self.batch, self._runner, ending, now=self._clock())

    async def _play_lines(self, sender: Sender) -> None:
        book = AnswerBook(self.batch, self._progress, self._worker)
        ready: deque[Claim] = deque()
        running: set[asyncio.Task[None]] = set()
        try:
            while True:
                _raise_from(running)
                if not ready:
                    ready.extend(await self._claim())
                if ready:
                    await self._slots.acquire()
                    running.add(self._start(sender, book, ready.popleft()))
                elif running:
                    await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                else:
                    return
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _claim(self) -> list[Claim]:
        return await self._worker.run(self._progress.claim, self.batch, self._runner, CLAIMED_AT_ONCE)

    def _start(self, sender: Sender, book: AnswerBook, claim: Claim) -> asyncio.Task[None]:
        async def play() -> None:
            await book.write(await sender.play(claim))

        task = asyncio.create_task(play(), name=f"line {claim.number} of {self.batch}")
        task.add_done_callback(lambda _: self._slots.release())  # also of one that is cancelled before it begins
        return task

    # ending

    async def _close_lines(self, ending: str) -> None:
        code, message = WHY[ending]
        while rows := await self._worker.run(self._progress.unanswered, self.batch, CLOSED_AT_ONCE):
            answers = [
                lines.unanswered(self.batch, row["number"], cast("str", row["custom_id"]), code, message)
                for row in rows
            ]
            await self._worker.run(self._progress.close_lines, self.batch, answers)


def _raise_from(tasks: set[asyncio.Task[None]]) -> None:
    """Forget tasks that are done; raise what one of them has raised."""
    for task in [task for task in tasks if task.done()]:
        tasks.discard(task)
        task.result()
