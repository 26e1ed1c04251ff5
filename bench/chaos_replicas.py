#!/usr/bin/env python3
"""What clients notice when replicas or their Redis fail under load: the table of docs/replicas.md. Real processes.

python bench/chaos_replicas.py
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.chaos import replicas

SCENES: dict[str, Callable[[], Coroutine[Any, Any, replicas.Seen]]] = {
    "`kill -9` of one of three replicas": replicas.kill_a_replica,
    "`kill -9` of Redis, back empty two seconds later": replicas.kill_redis,
    "Redis frozen (`SIGSTOP`) for more than 7 s": replicas.freeze_redis,
    "Redis slow: `CLIENT PAUSE` of 200 ms, five times": replicas.slow_redis,
    "network between one replica and Redis cut for 8 s": replicas.cut_off_a_replica,
    "network between all replicas and Redis cut for 8 s": replicas.cut_redis_off,
    "clocks of two replicas one hour forward, one hour back": replicas.clocks_jump,
    "all three replicas replaced one by one": replicas.rolling_restart,
}


def main() -> None:
    print("| fault | turns | failed | longest turn | most at once at the engine | sessions moved | got over within |")
    print("|---|---|---|---|---|---|---|")
    for name, play in SCENES.items():
        seen = asyncio.run(play())
        cells = (
            seen.turns,
            seen.failed.total(),
            f"{seen.longest_s:.1f} s",
            f"{seen.most_running:g} of {replicas.WINDOW}",
            f"{seen.moved:g}",
            f"{seen.recovery_s:.1f} s",
        )
        print(f"| {name} | {' | '.join(map(str, cells))} |", flush=True)
        assert seen.books.total() == 0, seen.books


if __name__ == "__main__":
    main()
