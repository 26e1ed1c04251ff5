"""Background tasks end, whatever they are in the middle of."""

from __future__ import annotations

import asyncio

import pytest

from concur_proxy import tasks
from concur_proxy.tasks import end


async def for_ever() -> None:
    await asyncio.Event().wait()


def test_what_runs_and_what_is_over_has_ended_afterwards() -> None:
    async def play() -> None:
        async def fails() -> None:
            raise ValueError

        runs, over = asyncio.create_task(for_ever()), asyncio.create_task(fails())
        await asyncio.sleep(0)
        await end(runs, over, None)
        assert runs.cancelled()
        assert over.done()

    asyncio.run(play())


def test_one_that_does_not_hear_the_first_time_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "AGAIN_S", 0.01)

    async def play() -> None:
        heard = 0

        async def deaf() -> None:
            nonlocal heard
            while heard < 3:
                try:
                    await for_ever()
                except asyncio.CancelledError:
                    heard += 1

        task = asyncio.create_task(deaf())
        await asyncio.sleep(0)
        async with asyncio.timeout(60):
            await end(task)
        assert heard == 3

    asyncio.run(play())
