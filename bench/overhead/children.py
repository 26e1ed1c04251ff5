"""Processes that a benchmark starts: they end when it does, however it ends."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from bench.overhead import kernel
from bench.overhead.load import Job, Result
from concur_proxy.fleet import warden

ROOT = Path(__file__).resolve().parents[2]
START_S = 120.0
POLL_S = 0.1
GRACE_S = 3.0


class BenchError(Exception):
    """What kept a part of the benchmark from running, for people; from the second line on what a program printed."""


@dataclass(frozen=True, slots=True)
class Server:
    """Something that answers chat requests: process ``pid`` and what it starts; None: nothing to look at."""

    port: int
    pid: int | None = None

    @property
    def pids(self) -> tuple[int, ...]:
        return () if self.pid is None else kernel.tree(self.pid)


@contextlib.contextmanager
def served(
    command: Sequence[str | Path], port: int, log: Path, *, env: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """Run a server that will listen on ``port``; entered when it does. BenchError where it does not come to that."""
    program = [str(word) for word in command]
    with log.open("wb") as output:
        child = subprocess.Popen(
            warden.command(program, grace_s=GRACE_S),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment(env or {}),
            start_new_session=True,
            cwd=ROOT,
        )
    try:
        _await_listening(child, port, log)
        yield Server(port, kernel.tree(child.pid)[1])
    finally:
        assert child.stdin is not None
        child.stdin.close()
        child.wait()


def _await_listening(child: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        if child.poll() is not None or time.monotonic() > deadline:
            raise BenchError(f"it does not listen\n{tail(log)}")
        time.sleep(POLL_S)


def tail(log: Path, size: int = 600) -> str:
    return log.read_text(errors="replace")[-size:].strip()


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """Our environment without proxies for the way to localhost and without settings of the proxies that we compare."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.lower().endswith("_proxy") and not name.startswith(("CONCUR_", "LITELLM_"))
    }
    return kept | dict(more)


class Module:
    """One of our own modules as a child that talks through its standard streams; a context manager that ends it."""

    def __init__(self, module: str) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._child.pid

    def line(self) -> str:
        """Return its next line. BenchError where it has ended."""
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise BenchError("a process of the benchmark itself has ended")
        return line

    def tell(self, line: str) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(line + "\n")
        self._child.stdin.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self._child.stdin, self._child.stdout):
            assert stream is not None
            stream.close()
        try:
            self._child.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()


class Load(Module):
    """The process that plays jobs."""

    def __init__(self) -> None:
        super().__init__("bench.overhead.worker")

    def play(self, job: Job) -> Result:
        """BenchError where no connection could be made."""
        self.tell(json.dumps(asdict(job)))
        told: dict[str, Any] = json.loads(self.line())
        if "error" in told:
            raise BenchError(told["error"])
        return Result(**told)


class Engine(Module):
    """The stand-in for an engine, listening when the constructor returns."""

    def __init__(self) -> None:
        super().__init__("bench.overhead.upstream")
        self.port = int(self.line())
