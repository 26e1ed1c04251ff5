"""Finds batches that nobody plays, holds them by a lease, and keeps a job for each."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable

from concur_proxy.batch.database import Row
from concur_proxy.batch.job import Job
from concur_proxy.batch.progress import Progress
from concur_proxy.batch.worker import Worker
from concur_proxy.errors import StoreUnavailableError

BEAT_S = 5.0
"""Between two renewals: after so long is noticed what other proxies did to a batch, and a job that failed goes on."""
LEASE_S = 15.0
"""After which the batches of a proxy that is gone are taken by others."""
SWEEP_EVERY_S = 600.0

logger = logging.getLogger(__name__)

MakeJob = Callable[[str, str], Job]
"""From the ids of a batch and of its runner."""


class Runner:
    """``sweep`` deletes what is too old."""

    def __init__(
        self,
        progress: Progress,
        worker: Worker,
        make_job: MakeJob,
        sweep: Callable[[float], None],
        clock: Callable[[], float],
    ) -> None:
        self.id = secrets.token_hex(8)
        self._progress = progress
        self._worker = worker
        self._make_job = make_job
        self._sweep = sweep
        self._clock = clock
        self._jobs: dict[str, tuple[Job, asyncio.Task[None]]] = {}
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._swept_at = 0.0

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="batches")

    def wake(self) -> None:
        """Something has happened to a batch."""
        self._woken.set()

    async def stop(self) -> None:
        """Leave every batch where it stands, for whoever comes next."""
        tasks = [task for task in (self._task, *(task for _, task in self._jobs.values())) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            await self._worker.run(self._progress.release, self.id)
        except StoreUnavailableError as error:
            logger.warning("batches stay with this proxy for another %g s: %s", LEASE_S, error.message)

    async def _run(self) -> None:
        while True:
            self._woken.clear()
            try:
                await self._beat()
            except StoreUnavailableError as error:
                logger.warning("%s", error.message)
            except Exception:
                logger.exception("batches cannot be looked at")
            try:
                async with asyncio.timeout(BEAT_S):
                    await self._woken.wait()
            except TimeoutError:
                continue

    async def _beat(self) -> None:
        now = self._clock()
        held = await self._worker.run(self._progress.adopt, self.id, now=now, until=now + LEASE_S)
        for row in held:
            self._see_to(row)
        ours = {row["id"] for row in held}
        for batch, (_, task) in list(self._jobs.items()):
            if batch not in ours:
                task.cancel()  # it has ended, or another proxy has it
        if now - self._swept_at >= SWEEP_EVERY_S:
            self._swept_at = now
            await self._worker.run(self._sweep, now)

    def _see_to(self, row: Row) -> None:
        running = self._jobs.get(row["id"])
        if running is None:
            job = self._make_job(row["id"], self.id)
            task = asyncio.create_task(self._play(job), name=row["id"])
            self._jobs[row["id"]] = job, task
        elif row["status"] == "cancelling":
            running[0].interrupt()

    async def _play(self, job: Job) -> None:
        try:
            await job.run()
        except StoreUnavailableError as error:
            logger.warning("batch %s goes on later: %s", job.batch, error.message)
        except Exception:
            logger.exception("batch %s goes on later", job.batch)
        finally:
            del self._jobs[job.batch]
