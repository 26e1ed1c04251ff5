"""A Redis of our own: a real server on a free port, which tests may stop, pause and kill."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from tests.ports import free_port

PATIENCE_S = 60.0

needs_redis = pytest.mark.skipif(
    shutil.which("redis-server") is None, reason="redis-server is not installed: .ci/services installs it"
)


class RedisServer:
    """Keeps nothing on disk: what is killed has forgotten everything when it is back."""

    def __init__(self, *flags: str) -> None:
        self.port = free_port()
        self._flags = flags
        self._folder = tempfile.TemporaryDirectory(prefix="concur-redis-")
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> None:
        with Path(self._folder.name, "log").open("ab") as log:
            self.process = subprocess.Popen(
                ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", *self._flags],
                cwd=self._folder.name,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + PATIENCE_S
        while not self.answers():
            if time.monotonic() > deadline or self.process.poll() is not None:
                said = Path(self._folder.name, "log").read_text()
                self.close()
                raise AssertionError(said)
            time.sleep(0.02)

    def answers(self) -> bool:
        try:
            return self.command("PING").startswith(("+PONG", "-NOAUTH"))
        except OSError:
            return False

    def command(self, *words: str) -> str:
        """Say something to it and return the first line of its answer."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S) as connection:
            said = "".join(f"${len(word.encode())}\r\n{word}\r\n" for word in words)
            connection.sendall(f"*{len(words)}\r\n{said}".encode())
            return connection.makefile("rb").readline().decode().rstrip("\r\n")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
