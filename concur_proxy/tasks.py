"""Ends background tasks, whatever they are in the middle of."""

from __future__ import annotations

import asyncio
from typing import Any

AGAIN_S = 1.0
"""After this a task that still runs is told once more."""


async def end(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancel tasks and wait until they have ended; what they raise is of no interest any more.

    Told once is not enough: ``asyncio.wait_for`` of Python 3.11, which libraries use, forgets a cancellation that comes
    in the same moment as what it waits for.
    """
    started = [task for task in tasks if task is not None]
    running = {task for task in started if not task.done()}
    while running:
        for task in running:
            task.cancel()
        _, running = await asyncio.wait(running, timeout=AGAIN_S)
    await asyncio.gather(*started, return_exceptions=True)
