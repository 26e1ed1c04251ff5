"""The ways to an engine, each there from entering to leaving its context."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.overhead.children import BenchError, served
from bench.overhead.ways import CACHE
from bench.trials.spec import Way
from concur_proxy.bench.proxy_process import QUIET, ProxyProcess
from tests.ports import free_port

ROUTER = CACHE / "vllm-router" / "bin" / "vllm-router"


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
        raise BenchError("vllm-router is not installed; install it with: python bench/peers.py install vllm-router")
    port, metrics_port = free_port(), free_port()
    flags = [*("--host", "127.0.0.1"), *("--port", str(port)), *("--prometheus-port", str(metrics_port))]
    flags += ["--worker-urls", engine_url, "--log-level", "warning", *(way.router or ())]
    if way.programs is not None:
        flags += ["--enable-program-scheduling", "--program-scheduling-config-json", json.dumps(way.programs)]
    with tempfile.TemporaryDirectory() as folder, served([ROUTER, *flags], port, Path(folder, "log")):
        yield f"http://127.0.0.1:{port}"
