#!/usr/bin/env python3
"""What clients notice when engines fail under load: the table of docs/reliability.md. Real processes on this machine.

python bench/chaos.py
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.chaos import scenes

SCENES: dict[str, Callable[[], scenes.Seen]] = {
    "`kill -9` of one of 3 engines under 200 streams, resumed": lambda: scenes.kill_a_backend(resume=True),
    "`kill -9` of one of 3 engines under 200 streams, not resumed": lambda: scenes.kill_a_backend(resume=False),
    "one of 2 engines falls silent (`SIGSTOP`), then 40 turns": scenes.freeze_a_backend,
    "network to one of 2 engines cut under 200 streams, back when that is noticed": lambda: scenes.cut_a_backend_off(
        comes_back=True
    ),
    "the same for good (`idle_timeout_s: 5`)": lambda: scenes.cut_a_backend_off(comes_back=False),
    "network to an engine's metrics cut for a minute, 8 agents": scenes.cut_metrics_off,
    "the only engine is killed under 100 streams and started again": scenes.restart_a_backend,
}


def main() -> None:
    print("| fault | clients | completed | told of an error | hung | beyond the window | got over within |")
    print("|---|---|---|---|---|---|---|")
    for name, play in SCENES.items():
        seen = play()
        errors = ", ".join(f"{count} {code}" for code, count in seen.errors.items()) or "0"
        cells = (seen.clients, seen.completed, errors, seen.hung, f"{seen.over_window:g}", f"{seen.recovery_s:.1f} s")
        print(f"| {name} | {' | '.join(map(str, cells))} |", flush=True)
        assert seen.balanced, seen.books


if __name__ == "__main__":
    main()
