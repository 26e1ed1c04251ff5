"""Runs the embedded engine: in the foreground, or as a child process that tests and the demo start and stop."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import socket
import subprocess
import sys
from dataclasses import asdict, replace
from typing import Self

import uvicorn

from concur_proxy.errors import ConfigError
from concur_proxy.sim.options import EngineOptions, deploy
from concur_proxy.sim.server.app import build_app

DRAIN_S = 2
"""How long running answers may go on after SIGTERM."""
START_S = 30.0
"""A child that is not ready by then has failed."""


def run(options: EngineOptions) -> None:
    """Serve until SIGTERM or SIGINT, then return. ConfigError where it cannot start."""
    _serve(options, _listen(options.host, options.port), uvicorn.Server)


class EngineServer:
    """A server in a child process, ready when the constructor returns; a context manager that stops it.

    The child ends with its parent, also a killed one: it holds one end of a pipe and stops when the other closes.
    """

    def __init__(self, options: EngineOptions | None = None) -> None:
        """Port 0 in ``options``, or no options, take a free port. RuntimeError where the child does not start."""
        options = options or EngineOptions(port=0)
        deploy(options)
        with _listen(options.host, options.port) as sock:
            self.port: int = sock.getsockname()[1]
            told = json.dumps({"options": asdict(replace(options, port=self.port)), "socket": sock.fileno()})
            self._child = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [sys.executable, "-c", f"from {__name__} import child; child()", told],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[sock.fileno()],
            )
        host = f"[{options.host}]" if ":" in options.host else options.host
        self.url = f"http://{host}:{self.port}"
        self._await_ready()

    @property
    def pid(self) -> int:
        return self._child.pid

    def close(self) -> int:
        """Stop the child and return its exit status; kill it where it does not stop."""
        self._child.terminate()
        try:
            return self._child.wait(DRAIN_S + 5)
        except subprocess.TimeoutExpired:
            self._child.kill()
            return self._child.wait()
        finally:
            for pipe in (self._child.stdin, self._child.stdout):
                assert pipe is not None
                pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _await_ready(self) -> None:
        """The child writes a line when it serves, and closes the pipe when it dies."""
        assert self._child.stdout is not None
        ready, _, _ = select.select([self._child.stdout], [], [], START_S)
        if not ready or not self._child.stdout.readline():
            raise RuntimeError(f"the engine did not start within {START_S:g} s; exit status {self.close()}")


def child() -> None:
    """Entry point of ``EngineServer``'s child."""
    told = json.loads(sys.argv[1])
    _serve(EngineOptions(**told["options"]), socket.socket(fileno=told["socket"]), _ChildServer)


class _ChildServer(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        asyncio.get_running_loop().add_reader(0, self._parent_gone)
        os.write(1, b"ready\n")

    def _parent_gone(self) -> None:
        asyncio.get_running_loop().remove_reader(0)
        self.should_exit = True


def _serve(options: EngineOptions, sock: socket.socket, server: type[uvicorn.Server]) -> None:
    config = uvicorn.Config(
        build_app(options),
        http="httptools",
        ws="none",
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=DRAIN_S,
    )
    # uvicorn raises the signal that stopped it once more when all is done: that must not be an error.
    previous = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        server(config).run(sockets=[sock])
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise ConfigError(f"port: cannot listen on {host}:{port}: {_reason(error)}; name another --port") from error


def _reason(error: OSError) -> str:
    """Return the system's own words: asyncio and sockets add an address that the reader has seen."""
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
