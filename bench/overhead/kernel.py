"""What processes use, read from the kernel, and which cores they may use. Linux only."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

CPUCLOCK_SCHED = 2
"""The clock of a process that counts what all its threads ran, in nanoseconds; see clock_getcpuclockid(3)."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident memory in bytes. ``peak`` since the process began."""

    now: int
    peak: int


def tree(pid: int) -> tuple[int, ...]:
    """Return a process and all that descend from it."""
    found = [pid]
    for parent in found:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for task in Path(f"/proc/{parent}/task").iterdir():
                found += [int(child) for child in (task / "children").read_text().split()]
    return tuple(found)


def cpu_s(pids: Collection[int]) -> float:
    """Return the CPU time, user and system, of processes; one that has ended counts as 0."""
    return sum(map(_cpu_s, pids))


def _cpu_s(pid: int) -> float:
    try:
        return time.clock_gettime((~pid << 3) | CPUCLOCK_SCHED)
    except OSError:
        return 0.0


def memory(pids: Collection[int]) -> Memory:
    """Return the resident memory of processes together; pages that they share count more than once."""
    each = [parse_status(Path(f"/proc/{pid}/status").read_text()) for pid in pids]
    return Memory(sum(one.now for one in each), sum(one.peak for one in each))


def parse_status(text: str) -> Memory:
    """Read ``/proc/PID/status``; a process without memory of its own has none."""
    return Memory(*(_kilobytes(name, text) * 1024 for name in ("VmRSS", "VmHWM")))


def _kilobytes(name: str, text: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB$", text, re.MULTILINE)
    return int(found[1]) if found else 0


@dataclass(frozen=True, slots=True)
class Cores:
    """Who runs where: a proxy has a core of its own."""

    proxy: frozenset[int]
    rest: frozenset[int]

    @classmethod
    def split(cls, available: Collection[int]) -> Cores:
        """Give the proxy the last core. ValueError where there is only one."""
        *rest, last = sorted(available)
        if not rest:
            raise ValueError("this needs two cores: one for the proxy, one for the load")
        return cls(frozenset({last}), frozenset(rest))


@contextlib.contextmanager
def on_cores(cores: Collection[int]) -> Iterator[None]:
    """Run on these cores, and so does, for good, every process that is started meanwhile."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def before_all_others(pids: Collection[int]) -> Iterator[None]:
    """Have the kernel run these processes before any of ordinary priority.

    Threads of the kernel are among those: one that takes a core for some milliseconds a second makes every 99th
    percentile its own. Raises ``PermissionError`` for whoever may not.
    """
    _schedule(pids, os.SCHED_FIFO, 1)
    try:
        yield
    finally:
        _schedule(pids, os.SCHED_OTHER, 0)


def _schedule(pids: Collection[int], policy: int, priority: int) -> None:
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setscheduler(int(thread.name), policy, os.sched_param(priority))
