"""Many runs at once: one process per core, each run alone in its own, results in the order they were asked for."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from multiprocessing.sharedctypes import SynchronizedArray
from pathlib import Path
from typing import Any

from concur_proxy.sim.result import Result
from concur_proxy.sim.scenario import Scenario
from concur_proxy.simulate.api import run_scenario

GLANCE_S = 0.2
"""Time between two looks at how far the runs are."""


@dataclass(frozen=True, slots=True)
class Run:
    scenario: Scenario
    arm: str
    seed: int
    gate: Mapping[str, Any]
    traces: Path | None
    keep_series: bool
    """Keep what it looked like over time; it is large."""


OnShare = Callable[[int, float], None]
"""Told a run's index and the share of its sessions that have ended."""

_shares: SynchronizedArray[float] | None = None
"""Of this worker: where it tells how far its runs are."""


def play_all(runs: Sequence[Run], on_share: OnShare, *, jobs: int | None = None) -> list[Result]:
    """Play all runs, at most ``jobs`` at once (default: the number of cores)."""
    workers = min(jobs or os.cpu_count() or 1, len(runs))
    if workers <= 1:
        return [_play(run, lambda share, index=index: on_share(index, share)) for index, run in enumerate(runs)]  # type: ignore[misc]
    shares = multiprocessing.Array("d", len(runs))
    others = multiprocessing.active_children()
    with ProcessPoolExecutor(workers, initializer=_begin, initargs=(shares,)) as pool:
        futures = [pool.submit(_play_in_worker, index, run) for index, run in enumerate(runs)]
        try:
            _watch(futures, shares, on_share)
            return [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            for worker in multiprocessing.active_children():
                if worker not in others:
                    worker.terminate()
            raise  # the pool notices that its workers have gone, and is waited for: nothing of it is left at exit


def _watch(futures: Sequence[Future[Result]], shares: SynchronizedArray[float], on_share: OnShare) -> None:
    pending: set[Future[Result]] = set(futures)
    while pending:
        done, pending = wait(pending, timeout=GLANCE_S)
        for future in done:
            future.result()
        for index in range(len(futures)):
            on_share(index, shares[index])


def _begin(shares: SynchronizedArray[float]) -> None:
    global _shares  # noqa: PLW0603
    _shares = shares
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends its workers without a word


def _play_in_worker(index: int, run: Run) -> Result:
    def tell(share: float) -> None:
        if _shares is not None:
            _shares[index] = share

    return _play(run, tell)


def _play(run: Run, tell: Callable[[float], None]) -> Result:
    last = 0

    def on_progress(ended: int, total: int, _now: float) -> None:
        nonlocal last
        if ended != last:
            last = ended
            tell(ended / total)

    result = run_scenario(
        run.scenario, law=run.arm, seed=run.seed, gate=run.gate, traces=run.traces, on_progress=on_progress
    )
    tell(1.0)
    return replace(result, turns=(), jobs=(), series=result.series if run.keep_series else ())
