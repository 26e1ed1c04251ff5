"""The ways to an engine, each there from entering to leaving its context."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from bench.overhead.ways import CACHE
from bench.trials.spec import Way
from concur_proxy.bench.proxy_process import QUIET, ProxyProcess
from concur_proxy.fleet import warden

START_S = 60.0
GRACE_S = 5.0
ROUTER = CACHE / "vllm-router" / "bin" / "vllm-router"


class WayError(Exception):
    """A way is not there; the message says what to do."""


@contextlib.contextmanager
def opened(way: Way, engine_url: str, state: Path) -> Iterator[str]:
    """Return the URL that agents get. ``state``: where a proxy keeps what it learns, if the way says so."""
    if way.router is not None:
        with _router(way, engine_url) as url:
            yield url
    elif way.proxy is not None:
        env = dict(way.settings)
        if way.keeps_state:
            env["CONCUR_CONTROL__STATE_FILE"] = str(state)
        with ProxyProcess([engine_url], flags=(*QUIET, *way.proxy), env=env) as proxy:
            yield proxy.url
    else:
        yield engine_url


@contextlib.contextmanager
def _router(way: Way, engine_url: str) -> Iterator[str]:
    if not ROUTER.exists():
        raise WayError("vllm-router is not installed; install it with: python bench/peers.py install vllm-router")
    port, metrics_port = _free_port(), _free_port()
    flags = [*("--host", "127.0.0.1"), *("--port", str(port)), *("--prometheus-port", str(metrics_port))]
    flags += ["--worker-urls", engine_url, "--log-level", "warning", *(way.router or ())]
    if way.programs is not None:
        flags += ["--enable-program-scheduling", "--program-scheduling-config-json", json.dumps(way.programs)]
    with tempfile.TemporaryFile() as log:
        child = subprocess.Popen(
            warden.command([str(ROUTER), *flags], grace_s=GRACE_S), stdin=subprocess.PIPE, stdout=log, stderr=log
        )
        assert child.stdin is not None
        try:
            url = f"http://127.0.0.1:{port}"
            _await(url, child, log)
            yield url
        finally:
            child.stdin.close()
            child.wait(GRACE_S + 5)


def _await(url: str, child: subprocess.Popen[bytes], log: IO[bytes]) -> None:
    deadline = time.monotonic() + START_S
    while True:
        with contextlib.suppress(urllib.error.URLError, OSError), urllib.request.urlopen(f"{url}/v1/models", timeout=2):  # noqa: S310
            return
        if child.poll() is not None or time.monotonic() > deadline:
            log.seek(0)
            raise WayError(f"vllm-router did not start:\n{log.read()[-2000:].decode(errors='replace')}")
        time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
