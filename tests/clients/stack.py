"""What a client talks to in these tests: an engine, directly or through the proxy as a process of its own."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import httpx

from concur_proxy.fleet import warden
from tests.rig.engine import free_port

PATIENCE_S = 30.0
POLL_S = 0.02


@dataclass(frozen=True)
class Stack:
    url: str
    """Where the client sends its requests."""
    engine: str
    """The engine's own URL; the same as ``url`` where there is no proxy."""
    model: str

    @property
    def proxied(self) -> bool:
        return self.url != self.engine

    def running(self) -> float:
        """Requests that the engine has, running or waiting."""
        return metric(self.engine, "vllm:num_requests_running", "vllm:num_requests_waiting")

    def wait_until_running(self, wanted: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while (now := self.running()) != wanted:
            assert time.monotonic() < deadline, f"the engine has {now:g} requests, not {wanted}"
            time.sleep(POLL_S)


def metric(url: str, *names: str) -> float:
    """The sum of all series with these names."""
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    starts = tuple(f"{name}{end}" for name in names for end in "{ ")
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(starts))


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def ended(pid: int) -> bool:
    """Wait until a process, anybody's, has ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], PATIENCE_S)[0])
    finally:
        os.close(handle)


class ProxyProcess:
    """``concur-proxy serve`` on a free port, ready when entered. To end with another status fails the test."""

    def __init__(
        self,
        backends: Sequence[str],
        *,
        flags: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        python: str = sys.executable,
        patience_s: float = PATIENCE_S,
        status: int = 0,
    ) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        urls = [word for backend in backends for word in ("--backend", backend)]
        self._command = [python, "-m", "concur_proxy", "serve", *urls, "--port", str(self.port), *flags]
        self._patience_s, self._status = patience_s, status
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("CONCUR_")}
        self._env = {**inherited, **(env or {})}
        self._log = tempfile.NamedTemporaryFile(prefix="concur-proxy-", suffix=".log")  # noqa: SIM115 - closed in _end
        self._process: subprocess.Popen[bytes] | None = None

    def log(self) -> str:
        return Path(self._log.name).read_text()

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            warden.command(self._command, grace_s=40),
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=self._env,
        )
        try:
            self.wait_until_ready()
        except BaseException:
            self._end(self._process)
            raise
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        assert self._process is not None
        status, log = self._end(self._process)
        if kind is None:
            assert status == self._status, log

    def _end(self, process: subprocess.Popen[bytes]) -> tuple[int, str]:
        assert process.stdin is not None
        process.stdin.close()
        status, log = process.wait(), self.log()
        self._log.close()
        return status, log

    @property
    def pid(self) -> int:
        """The proxy's own process."""
        assert self._process is not None
        return children(self._process.pid)[0]

    def wait_until_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + self._patience_s
        while not self.ready():
            assert self._process.poll() is None, f"the proxy ended:\n{self.log()}"
            assert time.monotonic() < deadline, f"the proxy is not ready:\n{self.log()}"
            time.sleep(POLL_S)

    def ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz").status_code == 200
        except httpx.TransportError:
            return False
