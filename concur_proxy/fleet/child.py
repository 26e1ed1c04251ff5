"""vLLM as a supervised child: ``concur-proxy serve --vllm MODEL [-- engine flags]``.

``VllmChild`` starts it with the flags that the proxy needs, waits until it is healthy for as long as it lives, starts
it again when it dies, and ends it. It never outlives the proxy: it runs under a ``warden``, which sees the proxy's
end of a pipe go away.

A start that fails before the engine was ever healthy is a mistake in model or flags and is reported at once. Later
deaths are answered by restarts with growing pauses (``RestartPolicy``), up to a limit in a row.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from concur_proxy.errors import ConcurError
from concur_proxy.fleet import warden
from concur_proxy.fleet.vllm_command import VllmCommand

logger = logging.getLogger(__name__)

HEALTH_INTERVAL_S = 0.25
HEALTH_TIMEOUT_S = 5.0
PROGRESS_INTERVAL_S = 15.0
TAIL_BYTES = 16_384
TAIL_LINES = 30


class VllmChildError(ConcurError):
    """vLLM is not installed, did not come up, or keeps dying. The message has the remedy or the end of its log."""


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """When a dead engine is started again.

    After ``first_s``, twice as long each further time in a row up to ``longest_s``, and no more after ``limit``
    deaths in a row. A healthy life of ``stable_s`` or longer ends a row.
    """

    first_s: float = 1.0
    longest_s: float = 60.0
    limit: int = 5
    stable_s: float = 120.0

    def deaths_in_a_row(self, before: int, *, healthy_for_s: float) -> int:
        return 1 if healthy_for_s >= self.stable_s else before + 1

    def pause_s(self, deaths: int) -> float | None:
        """Return how long to wait after this many deaths in a row; None to give up."""
        return None if deaths >= self.limit else min(self.longest_s, self.first_s * 2 ** (deaths - 1))


class VllmChild:
    """One vLLM server, on loopback and a free port unless the flags say otherwise.

    ``flags`` go to the engine as they are. ``env`` is added to the proxy's own environment. ``output`` gets what the
    engine prints; by default it goes to standard error. ``grace_s`` is how long it may take to end after SIGTERM.

    Raises ``ConfigError`` for flags that cannot work behind the proxy.
    """

    def __init__(
        self,
        model: str,
        flags: Sequence[str] = (),
        port: int | None = None,
        python: str = sys.executable,
        env: Mapping[str, str] | None = None,
        *,
        policy: RestartPolicy | None = None,
        grace_s: float = 30.0,
        output: Callable[[bytes], object] | None = None,
    ) -> None:
        self._command = VllmCommand.build(model, flags, port)
        self._python = python
        self._environment = {**os.environ, **(env or {})}
        self._policy, self._grace_s = policy or RestartPolicy(), grace_s
        self._output = output or _to_stderr
        self._process: Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._tail = b""
        self._healthy_since: float | None = None
        self._stopping = asyncio.Event()

    @property
    def url(self) -> str:
        """Base URL of the engine; the same over all restarts."""
        return self._command.url

    @property
    def command(self) -> list[str]:
        """The engine's command line."""
        return [self._python, *self._command.arguments]

    async def start(self) -> None:
        """Start the engine and return when it answers ``/health``, which takes as long as loading its model takes.

        Returns early when ``stop`` is called meanwhile.

        Raises ``VllmChildError`` when vLLM is not installed and when the engine ends before it is healthy.
        """
        await self._require_vllm()
        await self._spawn()
        try:
            await self._wait_until_healthy()
        except BaseException:
            await self._end()
            raise

    async def supervise(self, on_up: Callable[[], object], on_down: Callable[[], object]) -> None:
        """After ``start`` and until ``stop``: restart the engine whenever it dies.

        ``on_down`` is called when it has died, ``on_up`` when its successor is healthy.

        Raises ``VllmChildError`` when it keeps dying.
        """
        deaths = 0
        while (status := await self._died()) is not None:
            if self._healthy_since is not None:
                on_down()
            deaths = self._policy.deaths_in_a_row(deaths, healthy_for_s=self._healthy_for_s())
            pause_s = self._policy.pause_s(deaths)
            if pause_s is None:
                raise VllmChildError(f"vLLM died {deaths} times in a row; it {_fate(status)}\n{self._last_lines()}")
            logger.error("vLLM %s; it is started again in %g s", _fate(status), pause_s)
            if await self._stopped_within(pause_s):
                return
            await self._spawn()
            with contextlib.suppress(VllmChildError):  # dead before it was healthy: the next round counts it
                await self._wait_until_healthy()
            if self._healthy_since is not None:
                on_up()

    async def stop(self) -> None:
        """End the engine: SIGTERM, then SIGKILL after the grace time. Safe at any moment, and twice."""
        self._stopping.set()
        await self._end()

    async def _require_vllm(self) -> None:
        look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('vllm') is None)"
        try:
            found = await asyncio.create_subprocess_exec(
                self._python, "-c", look, env=self._environment, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL
            )
        except OSError as error:
            raise VllmChildError(f"cannot run {self._python}: {error.strerror}") from error
        if await found.wait():
            raise VllmChildError("vLLM is not installed here; install it with: pip install 'concur-proxy[vllm]'")

    async def _spawn(self) -> None:
        self._tail, self._healthy_since = b"", None
        logger.info("starting vLLM: %s", " ".join(self.command))
        self._process = await asyncio.create_subprocess_exec(
            *warden.command(self.command, grace_s=self._grace_s),
            env=self._environment,
            stdin=PIPE,
            stdout=PIPE,
            stderr=STDOUT,
            start_new_session=True,  # Ctrl-C in the terminal is for the proxy, which then ends the engine in order
        )
        assert self._process.stdout is not None
        self._reader = asyncio.create_task(self._read(self._process.stdout))
        if self._stopping.is_set():  # stop() came while the process was made, and could not see it
            await self._end()

    async def _read(self, output: asyncio.StreamReader) -> None:
        while chunk := await output.read(65_536):
            self._tail = (self._tail + chunk)[-TAIL_BYTES:]
            self._output(chunk)

    async def _wait_until_healthy(self) -> None:
        assert self._process is not None
        started = reported = time.monotonic()
        ended = asyncio.create_task(self._process.wait())
        try:
            while not await self._healthy():
                await asyncio.wait({ended}, timeout=HEALTH_INTERVAL_S)
                if ended.done():
                    await self._end()
                    if self._stopping.is_set():
                        return
                    raise VllmChildError(f"vLLM {_fate(ended.result())} while starting\n{self._last_lines()}")
                if time.monotonic() - reported >= PROGRESS_INTERVAL_S:
                    reported = time.monotonic()
                    logger.info("waiting for vLLM on %s, %.0f s so far", self.url, reported - started)
        finally:
            ended.cancel()
        self._healthy_since = time.monotonic()
        logger.info("vLLM is up on %s after %.0f s", self.url, self._healthy_since - started)

    async def _healthy(self) -> bool:
        try:
            async with asyncio.timeout(HEALTH_TIMEOUT_S):
                return await _answers_health(self._command.host, self._command.port)
        except (OSError, TimeoutError):
            return False

    def _healthy_for_s(self) -> float:
        return 0.0 if self._healthy_since is None else time.monotonic() - self._healthy_since

    async def _died(self) -> int | None:
        """Return the exit status of the present process once it ended; None when that is our own doing."""
        assert self._process is not None
        status = await self._process.wait()
        if self._stopping.is_set():
            return None
        await self._end()
        return status

    async def _end(self) -> None:
        """Let go of the warden's pipe, which ends the engine, and take in the last of its output."""
        if self._process is None or self._process.stdin is None or self._reader is None:
            return
        self._process.stdin.close()
        await self._process.wait()
        await self._reader

    async def _stopped_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._stopping.wait()
        except TimeoutError:
            return False

    def _last_lines(self) -> str:
        lines = self._tail.decode(errors="replace").splitlines()
        return "\n".join(["the last lines of its output:", *lines[-TAIL_LINES:]])


async def _answers_health(host: str, port: int) -> bool:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(f"GET /health HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
        return (await reader.readline()).split(b" ")[1:2] == [b"200"]
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def _fate(status: int) -> str:
    if status == 128 + 9:
        return "was killed by signal 9 (out of memory?)"
    return f"was killed by signal {status - 128}" if status > 128 else f"ended with status {status}"


def _to_stderr(chunk: bytes) -> None:
    sys.stderr.buffer.write(chunk)
    sys.stderr.buffer.flush()
