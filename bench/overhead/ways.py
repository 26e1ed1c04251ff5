"""The ways from a client to the engine that are compared, and how each proxy is set up for that.

All that can log a line per request has that switched off, but for this proxy, which writes its access log as it does by
default: to a file. Each has one worker.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import concur_proxy
from bench.overhead import nginx
from bench.overhead.bodies import MODEL
from bench.overhead.children import Engine, Server, served
from concur_proxy.bench.proxy_process import ProxyProcess
from tests.ports import free_port

CACHE = Path(os.environ.get("CONCUR_PEERS") or Path.home() / ".cache" / "concur-peers")
"""Holds a virtual environment for each peer: ``bench/peers.py install`` makes them."""

OURS = "concur-proxy"
NO_PROXY = "no proxy"
RELAY = "relay"
LITELLM = "litellm"

Start = Callable[[Engine, Path], AbstractContextManager[Server]]


@dataclass(frozen=True, slots=True)
class Way:
    """``start`` gets the engine and a folder for files of its own."""

    name: str
    version: str | None
    """None: not installed here."""
    setup: str
    """How it is set up, for people."""
    start: Start


def all_ways(*, law: str, cache: Path) -> tuple[Way, ...]:
    """Return every way, those that are not installed as well."""
    return (
        Way(NO_PROXY, "", "straight to the engine", _direct),
        Way("nginx", nginx.version(), nginx.SETUP, nginx.start),
        Way(RELAY, "", "bench/overhead/relay.py: asyncio protocols on uvloop, no function", _relay),
        Way(
            OURS,
            f"{concur_proxy.__version__} ({concur_proxy.build()})",
            f"law `{law}`, sessions, gate, accounting, metrics, access log on; window_min 256, so that nothing is held",
            _ours(law),
        ),
        _peer(cache, "vllm-router", "--policy round_robin --log-level warning", _vllm_router),
        _peer(cache, "sglang-router", "--policy round_robin --log-level warn", _sglang_router),
        _peer(
            cache,
            LITELLM,
            "one worker, LITELLM_LOG=ERROR, LITELLM_MODE=PRODUCTION, no keys, no database",
            _litellm,
        ),
    )


def installed_version(python: Path, package: str) -> str | None:
    """Return the version of a package in the environment of ``python``; None where one of both is not there."""
    if not python.exists():
        return None
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def _peer(cache: Path, name: str, setup: str, command: Callable[[Path, int, Engine, Path], list[str | Path]]) -> Way:
    binaries = cache / name / "bin"

    @contextlib.contextmanager
    def start(engine: Engine, folder: Path) -> Iterator[Server]:
        port = free_port()
        words = command(binaries, port, engine, folder)
        with served(words, port, folder / "log", env=LITELLM_ENVIRONMENT if name == LITELLM else {}) as server:
            yield server

    return Way(name, installed_version(binaries / "python", name), setup, start)


@contextlib.contextmanager
def _direct(engine: Engine, _: Path) -> Iterator[Server]:
    yield Server(engine.port)


@contextlib.contextmanager
def _relay(engine: Engine, folder: Path) -> Iterator[Server]:
    port = free_port()
    command = [sys.executable, "-m", "bench.overhead.relay", str(port), str(engine.port)]
    with served(command, port, folder / "log") as server:
        yield server


def _ours(law: str) -> Start:
    @contextlib.contextmanager
    def start(engine: Engine, _: Path) -> Iterator[Server]:
        flags, env = ("--law", law), {"CONCUR_CONTROL__WINDOW_MIN": "256"}
        with ProxyProcess([f"http://127.0.0.1:{engine.port}"], flags=flags, env=env) as proxy:
            yield Server(proxy.port, proxy.pid)

    return start


def _vllm_router(binaries: Path, port: int, engine: Engine, _: Path) -> list[str | Path]:
    flags = f"--host 127.0.0.1 --port {port} --policy round_robin --log-level warning --prometheus-port {free_port()}"
    workers = f"--worker-urls http://127.0.0.1:{engine.port} --worker-startup-check-interval 1"
    return [binaries / "vllm-router", *flags.split(), *workers.split()]


def _sglang_router(binaries: Path, port: int, engine: Engine, _: Path) -> list[str | Path]:
    flags = f"--host 127.0.0.1 --port {port} --policy round_robin --log-level warn --prometheus-port {free_port()}"
    workers = f"--worker-urls http://127.0.0.1:{engine.port} --worker-startup-check-interval 1"
    return [binaries / "python", "-m", "sglang_router.launch_router", *flags.split(), *workers.split()]


LITELLM_ENVIRONMENT = {
    "LITELLM_LOG": "ERROR",
    "LITELLM_MODE": "PRODUCTION",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
}
LITELLM_CONFIG = """\
model_list:
  - model_name: {model}
    litellm_params: {{model: openai/{model}, api_base: "http://127.0.0.1:{port}/v1", api_key: sk-bench}}
litellm_settings: {{telemetry: false}}
"""


def _litellm(binaries: Path, port: int, engine: Engine, folder: Path) -> list[str | Path]:
    config = folder / "litellm.yaml"
    config.write_text(LITELLM_CONFIG.format(model=MODEL, port=engine.port))
    return [binaries / "litellm", *f"--host 127.0.0.1 --port {port} --num_workers 1 --config".split(), config]
