"""Runners and jobs in this process, over a real store: what fails goes on, and how many lines there are at once."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from concur_proxy.batch.job import Job
from concur_proxy.batch.runner import Runner
from concur_proxy.batch.sending import Sender
from concur_proxy.batch.validation import Rules
from concur_proxy.batch.worker import Worker
from concur_proxy.errors import StoreUnavailableError
from concur_proxy.gateway.headers import Framing, HeaderList, ResponseHead
from tests.batch.stores import CHAT, OWNER, Stores, sqlite

OK = ResponseHead(200, b"OK", [], {}, Framing.LENGTH)
PATIENCE_S = 30.0


class Way:
    """Counts requests at once; ``before`` may wait or raise."""

    def __init__(self, before: Callable[[int], Awaitable[None]] | None = None) -> None:
        self.before = before
        self.now = self.most = 0
        self.sent: list[int] = []

    async def post(self, path: str, headers: HeaderList, body: bytes) -> tuple[ResponseHead, bytes]:
        number = orjson.loads(body)["number"]
        self.sent.append(number)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await (self.before(number) if self.before is not None else asyncio.sleep(0))
        finally:
            self.now -= 1
        return OK, b"{}"


class Proxy:
    """One runner with its worker, as a proxy has them."""

    def __init__(self, stores: Stores, way: Way, *, slots: int = 4) -> None:
        self.stores = stores
        self.way = way
        self.worker = Worker()
        self.slots = asyncio.Semaphore(slots)
        self.runner = Runner(stores.progress, self.worker, self.job, lambda _: None, time.time)

    def job(self, batch: str, runner: str) -> Job:
        rules = lambda endpoint: Rules(endpoint, 1000, 10_000, ())  # noqa: E731
        sender = lambda row: Sender(row["id"], row["endpoint"], [], (), self.way)  # noqa: E731
        return Job(batch, runner, self.stores.progress, self.worker, self.slots, rules, sender, time.time)

    async def until(self, batch: str, *states: str) -> Any:
        async with asyncio.timeout(PATIENCE_S):
            while (row := await self.worker.run(self.stores.progress.get, batch))["status"] not in states:
                self.runner.wake()
                await asyncio.sleep(0)
        return row

    async def ids(self, row: Any) -> list[str]:
        text = await self.worker.run(self.stores.content, row["output_file"])
        return [orjson.loads(line)["custom_id"] for line in text.splitlines()]

    async def row(self, batch: str) -> Any:
        return await self.worker.run(self.stores.progress.get, batch)

    async def stop(self) -> None:
        await self.runner.stop()
        self.worker.close()


def submit(stores: Stores, count: int, **body: Any) -> str:
    lines = [
        {"custom_id": str(number), "method": "POST", "url": CHAT, "body": {"number": number, **body}}
        for number in range(count)
    ]
    data = "\n".join(json.dumps(line) for line in lines).encode()
    return stores.create(stores.upload(data, now=time.time()), now=time.time())


def test_lines_of_all_batches_share_the_slots_and_take_turns(tmp_path: Path) -> None:
    async def story(stores: Stores) -> None:
        way = Way()
        proxy = Proxy(stores, way, slots=3)
        batches = [submit(stores, 100), submit(stores, 10)]
        proxy.runner.start()
        await proxy.until(batches[1], "completed")
        assert (await proxy.row(batches[0]))["status"] == "in_progress"
        row = await proxy.until(batches[0], "completed")
        assert await proxy.ids(row) == [str(number) for number in range(100)]
        assert way.most == 3
        assert proxy.slots._value == 3
        await proxy.stop()

    with sqlite(tmp_path / "store.db") as stores:
        asyncio.run(story(stores))


def test_what_the_store_cannot_keep_is_played_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story(stores: Stores) -> None:
        way = Way()
        proxy = Proxy(stores, way)
        answer, failures = stores.progress.answer, iter([True, False, True, True])

        def sometimes(*args: Any) -> None:
            if next(failures, False):
                raise StoreUnavailableError("The disk is full.")
            answer(*args)

        stores.progress.answer = sometimes
        batch = submit(stores, 50)
        proxy.runner.start()
        row = await proxy.until(batch, "completed")
        assert await proxy.ids(row) == [str(number) for number in range(50)]
        assert (row["completed"], len(way.sent) > 50) == (50, True)
        assert proxy.slots._value == 4
        assert "The disk is full." in caplog.text
        await proxy.stop()

    with sqlite(tmp_path / "store.db") as stores:
        asyncio.run(story(stores))


def test_a_bug_in_one_job_leaves_the_others_alone(tmp_path: Path) -> None:
    async def story(stores: Stores) -> None:
        broken = submit(stores, 3, broken=True)

        async def before(number: int) -> None:
            await asyncio.sleep(0)

        proxy = Proxy(stores, Way(before))
        make, failed = proxy.job, []

        def job(batch: str, runner: str) -> Job:
            made = make(batch, runner)
            if batch == broken and len(failed) < 3:
                failed.append(batch)
                made._sender = lambda _: 1 / 0
            return made

        proxy.runner._make_job = job
        fine = submit(stores, 3)
        proxy.runner.start()
        assert (await proxy.until(fine, "completed"))["completed"] == 3
        assert (await proxy.until(broken, "completed"))["completed"] == 3
        assert len(failed) == 3
        await proxy.stop()

    with sqlite(tmp_path / "store.db") as stores:
        asyncio.run(story(stores))


def test_who_stops_lets_go_and_what_ran_is_played_by_the_next(tmp_path: Path) -> None:
    async def story(stores: Stores) -> None:
        stuck = asyncio.Event()

        async def before(number: int) -> None:
            if number >= 2:
                stuck.set()
                await asyncio.Event().wait()

        first = Proxy(stores, Way(before))
        batch = submit(stores, 6)
        first.runner.start()
        await first.until(batch, "in_progress")
        await stuck.wait()
        await first.stop()
        assert first.way.now == 0
        assert stores.batches.find(OWNER, batch)["runner"] is None
        second = Proxy(stores, Way())
        second.runner.start()
        row = await second.until(batch, "completed")
        assert await second.ids(row) == [str(number) for number in range(6)]
        assert set(second.way.sent) >= {2, 3, 4, 5}
        await second.stop()

    with sqlite(tmp_path / "store.db") as stores:
        asyncio.run(story(stores))


def take_over(stores: Stores) -> None:
    with stores.database.transaction() as t:
        t.run("UPDATE batches SET runner = 'another', runner_until = :until", until=time.time() + 99)


def test_who_loses_a_batch_leaves_off(tmp_path: Path) -> None:
    async def story(stores: Stores) -> None:
        running = asyncio.Event()

        async def before(number: int) -> None:
            running.set()
            await asyncio.Event().wait()

        proxy = Proxy(stores, Way(before))
        batch = submit(stores, 3)
        proxy.runner.start()
        await running.wait()
        await proxy.worker.run(take_over, stores)
        async with asyncio.timeout(PATIENCE_S):
            while proxy.way.now:
                proxy.runner.wake()
                await asyncio.sleep(0)
        assert (await proxy.row(batch))["status"] == "in_progress"
        await proxy.stop()
        assert stores.batches.find(OWNER, batch)["runner"] == "another"

    with sqlite(tmp_path / "store.db") as stores:
        asyncio.run(story(stores))
