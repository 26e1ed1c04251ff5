"""How late the event loop is: all requests share one, and whatever holds it up holds up every stream."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

PERIOD_S = 0.25


async def watch_loop(tell: Callable[[float], None], *, period_s: float = PERIOD_S) -> None:
    """Tell for ever how many seconds after its time this task was woken."""
    while True:
        due = time.monotonic() + period_s
        await asyncio.sleep(period_s)
        tell(max(0.0, time.monotonic() - due))
