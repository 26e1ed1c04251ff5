"""What a client talks to in these tests: an engine, directly or through the proxy as a process of its own."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from concur_proxy.bench import proxy_process
from tests.secrets import PLANTED

PATIENCE_S = 30.0
GRACE_S = 40.0
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


class ProxyProcess(proxy_process.ProxyProcess):
    """The proxy with its access log. To end with another ``status`` fails the test."""

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
        self._status = status
        super().__init__(backends, flags=flags, env=env, python=python, patience_s=patience_s, grace_s=GRACE_S)

    def __exit__(self, kind: object, *_: object) -> None:
        log = self.log()
        status = self.close()
        if kind is None:
            assert status == self._status, log
            assert not PLANTED.search(log), "a secret is in the log"
