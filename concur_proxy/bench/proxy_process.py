"""The proxy as a child process: for the demo, for benchmarks, and for tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

from concur_proxy.errors import BackendError
from concur_proxy.fleet import warden

QUIET = ("--log-level", "warning")
"""Flags for whoever does not want an access line per turn."""

START_S = 30.0
GRACE_S = 5.0
POLL_S = 0.02
GREETING = re.compile(r"listens on (https?://\S+)")


class ProxyProcess:
    """``concur-proxy serve`` on a free port, ready when the constructor returns; a context manager that ends it.

    It also ends when we are killed.
    """

    def __init__(
        self,
        backends: Sequence[str],
        *,
        flags: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        python: str = sys.executable,
        patience_s: float = START_S,
        grace_s: float = GRACE_S,
    ) -> None:
        """``env`` is added to ours, of which no CONCUR_ variable is passed on. BackendError where it does not start.

        ``patience_s``: how long it may take to be ready. ``grace_s``: how long running turns may still take at the end.
        """
        urls = [word for backend in backends for word in ("--backend", backend)]
        self._patience_s, self._grace_s = patience_s, grace_s
        self._folder = tempfile.TemporaryDirectory(prefix="concur-proxy-")
        self._log = Path(self._folder.name, "log")
        with self._log.open("wb") as log:
            self._child = subprocess.Popen(  # noqa: S603 - our own interpreter and package
                warden.command([python, "-m", "concur_proxy", "serve", *urls, "--port", "0", *flags], grace_s=grace_s),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**_environment(), **(env or {})},
                cwd=self._folder.name,  # what is installed is served, not sources that happen to lie here
                start_new_session=True,  # Ctrl-C is for us: we end it when we are ready to
            )
        try:
            self.url = self._await_greeting()
            self.wait_until_ready()
        except BaseException:
            self.close()
            raise

    def close(self) -> int:
        """End it and return its exit status: its running turns may still end within the grace time."""
        assert self._child.stdin is not None
        self._child.stdin.close()
        try:
            return self._child.wait(self._grace_s + 5)
        except subprocess.TimeoutExpired:
            self._child.kill()
            return self._child.wait()
        finally:
            self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def port(self) -> int:
        port = urlsplit(self.url).port
        assert port is not None
        return port

    @property
    def pid(self) -> int:
        """The proxy's own process, the child of its warden."""
        warden_pid = self._child.pid
        return int(Path(f"/proc/{warden_pid}/task/{warden_pid}/children").read_text().split()[0])

    def log(self) -> str:
        """What it has printed so far."""
        return self._log.read_text(errors="replace")

    def ready(self) -> bool:
        """Whether it takes turns now."""
        try:
            with urlopen(f"{self.url}/readyz", timeout=2) as answer:  # noqa: S310 - an http URL of our own child
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False

    def wait_until_ready(self) -> None:
        """BackendError where it ends or takes too long."""
        deadline = time.monotonic() + self._patience_s
        while not self.ready():
            self._pause(deadline)

    def _await_greeting(self) -> str:
        deadline = time.monotonic() + self._patience_s
        while not (greeting := GREETING.search(self.log())):
            self._pause(deadline)
        return greeting[1]

    def _pause(self, deadline: float) -> None:
        if time.monotonic() > deadline or self._child.poll() is not None:
            raise BackendError(f"the proxy did not start:\n{self.log()[-2000:]}")
        time.sleep(POLL_S)


def _environment() -> dict[str, str]:
    """Ours without what would configure the proxy otherwise than we say."""
    return {name: value for name, value in os.environ.items() if not name.startswith("CONCUR_")}
