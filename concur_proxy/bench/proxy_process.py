"""The proxy as a child process in front of one engine, for the demo and for benchmarks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.error import URLError
from urllib.request import urlopen

from concur_proxy.errors import BackendError
from concur_proxy.fleet import warden

START_S = 30.0
GRACE_S = 5.0
POLL_S = 0.05
GREETING = re.compile(r"listens on (http://\S+)")


class ProxyProcess:
    """Ready when the constructor returns; a context manager that ends it. It also ends when we are killed."""

    def __init__(self, backend: str, *arguments: str) -> None:
        """``arguments`` are further flags of ``concur-proxy serve``. BackendError where it does not start."""
        serve = ("-m", "concur_proxy", "serve", "--backend", backend, "--port", "0", "--log-level", "warning")
        self._folder = tempfile.TemporaryDirectory(prefix="concur-proxy-")
        self._log = Path(self._folder.name, "log")
        with self._log.open("wb") as log:
            self._child = subprocess.Popen(  # noqa: S603 - our own interpreter and package
                warden.command([sys.executable, *serve, *arguments], grace_s=GRACE_S),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=_environment(),
                start_new_session=True,  # Ctrl-C is for us: we end it when we are ready to
            )
        try:
            self.url = self._await_ready()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End it: its running turns may still end within the grace time."""
        assert self._child.stdin is not None
        self._child.stdin.close()
        try:
            self._child.wait(GRACE_S + 5)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _await_ready(self) -> str:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self._child.poll() is None:
            greeting = GREETING.search(self._log.read_text(errors="replace"))
            if greeting and _is_ready(greeting[1]):
                return greeting[1]
            time.sleep(POLL_S)
        raise BackendError(f"the proxy did not start:\n{self._log.read_text(errors='replace')[-2000:]}")


def _is_ready(url: str) -> bool:
    try:
        with urlopen(f"{url}/readyz", timeout=2) as answer:  # noqa: S310 - an http URL of our own child
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False


def _environment() -> dict[str, str]:
    """Ours without what would configure the proxy otherwise than we say."""
    return {name: value for name, value in os.environ.items() if not name.startswith("CONCUR_")}
