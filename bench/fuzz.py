#!/usr/bin/env python3
"""Fuzz both parsers' callers: clients that send, and engines that answer, what is almost HTTP.

    python bench/fuzz.py --minutes 10
    python bench/fuzz.py --replay finding-1.json

Cases are built of tokens and mutated (tests/fuzz/grammar.py), played on real sockets (arena.py) and judged with a
second parser (judges.py): nothing is logged, nothing hangs, no lease or gauge is left, the connection of a refused
request closes, engines get only what a strict reader finds in the client's bytes, and a good request is served after
every case.
Exit status 1 where something was found; each finding is written to a file that --replay plays again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections import Counter
from pathlib import Path

import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.fuzz.arena import HEARTBEAT_S, Finding, Lane, Log, listening
from tests.fuzz.grammar import Case, draw_case

REPORT_EVERY_S = 30.0


class Run:
    """One run's progress and findings."""

    def __init__(self, minutes: float, seed: int, most: int) -> None:
        self.ends_at = time.monotonic() + minutes * 60
        self.seed = seed
        self.most = most
        self.played = 0
        self.findings: list[str] = []
        self.counts: Counter[str] = Counter()

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self.ends_at or len(self.findings) >= self.most

    async def lane(self, number: int, log: Log) -> None:
        rng = random.Random(f"{self.seed}/{number}")
        while not self.is_over:
            async with Lane(log, counts=self.counts, heartbeat_s=HEARTBEAT_S * (number % 2)) as lane:
                await self._play_until_a_finding(lane, rng)

    async def _play_until_a_finding(self, lane: Lane, rng: random.Random) -> None:
        while not self.is_over:
            case = draw_case(rng)
            self.played += 1
            try:
                await lane.play(case)
            except Finding as finding:
                self._keep(case, str(finding))
                return

    def _keep(self, case: Case, finding: str) -> None:
        self.findings.append(finding)
        path = Path(f"finding-{len(self.findings)}.json")
        path.write_text(json.dumps({"finding": finding, **case.to_json()}, indent=1))
        print(f"\nFINDING {path}: {finding[:1500]}\n  sent {b''.join(case.request)[:400]!r}", flush=True)
        if case.answer is not None:
            print(f"  answered {b''.join(case.answer)[:400]!r}, then {case.end}", flush=True)

    async def report(self) -> None:
        while not self.is_over:
            await asyncio.sleep(min(REPORT_EVERY_S, max(0.1, self.ends_at - time.monotonic())))
            print(f"{self.played} cases, {len(self.findings)} findings, answers {dict(self.counts)}", flush=True)


async def fuzz(run: Run, lanes: int) -> None:
    with listening() as log:
        await asyncio.gather(run.report(), *(run.lane(number, log) for number in range(lanes)))


async def replay(path: Path) -> None:
    with listening() as log:
        async with Lane(log) as lane:
            await lane.play(Case.from_json(json.loads(path.read_text())))
    print("no finding")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--lanes", type=int, default=16, help="cases played at once")
    parser.add_argument("--seed", type=int, default=None, help="drawn and printed where it is not given")
    parser.add_argument("--most", type=int, default=20, help="findings after which it ends")
    parser.add_argument("--loop", choices=["uvloop", "asyncio"], default="uvloop")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="play one finding again")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    run = Run(options.minutes, seed, options.most)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if options.loop == "uvloop" else None) as runner:
        if options.replay:
            runner.run(replay(options.replay))
            return 0
        print(f"seed {seed}, {options.loop}, {options.lanes} lanes, {options.minutes:g} minutes", flush=True)
        runner.run(fuzz(run, options.lanes))
    print(f"{run.played} cases played, {len(run.findings)} findings")
    return 1 if run.findings else 0


if __name__ == "__main__":
    sys.exit(main())
