"""What a reader of a measurement must know: which machine, when, which code, by which command."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from bench.overhead.children import ROOT


@dataclass(frozen=True, slots=True)
class Facts:
    command: str
    rounds: int
    processor: str
    cores: int
    memory_gib: float
    load_average: float
    """Of the minute before the start: what else the machine had to do."""
    date: str
    commit: str

    @classmethod
    def gather(cls, command: str, rounds: int) -> Facts:
        return cls(
            command=command,
            rounds=rounds,
            processor=processor(Path("/proc/cpuinfo").read_text()),
            cores=len(os.sched_getaffinity(0)),
            memory_gib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30),
            load_average=os.getloadavg()[0],
            date=time.strftime("%Y-%m-%d"),
            commit=_commit(),
        )

    def sentence(self) -> str:
        """Return all of it in words."""
        rounds = "one round" if self.rounds == 1 else f"{self.rounds} rounds"
        machine = f"{self.processor}, {self.cores} cores, {self.memory_gib:.0f} GiB, Linux {platform.release()}"
        python = f"Python {platform.python_version()}{self.commit}"
        return f"{self.date}; {machine}, {python}; {rounds}; load average before it {self.load_average:.1f}."


def processor(cpuinfo: str) -> str:
    """Read ``/proc/cpuinfo``."""
    found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return found[1].strip() if found else platform.machine()


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=10"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return f", commit {done.stdout.strip()}" if done.returncode == 0 else ""
