#!/usr/bin/env python3
"""Three replicas beside one, at the same load: the throughput table of docs/replicas.md. Real processes, in pairs.

python bench/replicas.py --pairs 3 -- --window 24

An embedded engine, nginx that sends each request to the next replica, a real Redis. Each run has an engine and proxies
of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

sys.path.append(str(Path(__file__).parents[1]))  # behind what is installed, which may be compiled

from bench.overhead.children import served
from bench.overhead.nginx import executable
from concur_proxy.bench.engine_stats import EngineStats
from concur_proxy.bench.pairs import ratio
from concur_proxy.bench.player import PlayOptions, play
from concur_proxy.bench.report import Report
from concur_proxy.bench.workloads import SyntheticAgents
from concur_proxy.sim.server import EngineOptions, EngineServer
from tests.clients.stack import ProxyProcess
from tests.ports import free_port
from tests.state.redis import RedisServer

NGINX = """\
daemon off;
user root;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_max_body_size 64m;
  client_body_temp_path {folder}/client;
  proxy_temp_path {folder}/proxy;
  upstream replicas {{ {servers} keepalive 256; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://replicas;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_read_timeout 3600;
      proxy_buffering off;
      proxy_request_buffering off;
    }}
  }}
}}
"""
NAMES = (
    "concur_session_claims_total",
    "concur_sessions_moved_total",
    "concur_turns_admitted_total",
    "concur_session_pauses_total",
    "concur_session_resumptions_total",
    "concur_places_reclaimed_total",
    "concur_lease_expiries_total",
)


@dataclass(frozen=True, slots=True)
class Run:
    report: Report
    metrics: dict[str, float]
    """Sums over all replicas."""


@contextmanager
def balancer(ports: list[int], folder: Path) -> Iterator[str]:
    """Send each request to the next port."""
    port, config = free_port(), folder / "nginx.conf"
    servers = " ".join(f"server 127.0.0.1:{each};" for each in ports)
    config.write_text(NGINX.format(folder=folder, port=port, servers=servers))
    nginx = executable()
    assert nginx is not None, "nginx is not installed"
    with served([nginx, "-e", folder / "error.log", "-c", config], port, folder / "log"):
        yield f"http://127.0.0.1:{port}"


def run(replicas: int, options: argparse.Namespace) -> Run:
    """Play the workload once, by so many replicas."""
    kv_tokens, speed = options.kv_tokens, options.speed
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="concur-bench-")))
        engine = stack.enter_context(EngineServer(EngineOptions(port=0, kv_tokens=kv_tokens, speed=speed)))
        flags = ["--log-level", "warning", *options.flags]
        if replicas > 1:
            flags += ["--state", stack.enter_context(RedisServer()).url]
        proxies = [stack.enter_context(ProxyProcess([engine.url], flags=flags)) for _ in range(replicas)]
        url = stack.enter_context(balancer([proxy.port for proxy in proxies], folder))
        agents = SyntheticAgents(
            sessions=options.agents, turns=options.turns, new_tokens=options.new_tokens, think_s=options.think
        )
        report = asyncio.run(_play(url, engine.url, agents))
        return Run(report, add_up([proxy.url for proxy in proxies]))


async def _play(url: str, engine_url: str, agents: SyntheticAgents) -> Report:
    stats = EngineStats(engine_url)
    await stats.begin()
    report = await play(url, agents.scripts(), PlayOptions())
    report = report.with_engine(await stats.end())
    await stats.aclose()
    return report


def add_up(urls: list[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for url in urls:
        for line in httpx.get(f"{url}/metrics").text.splitlines():
            if line.startswith(NAMES):
                name, value = line.rsplit(" ", 1)
                found[name] = found.get(name, 0.0) + float(value)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--agents", type=int, default=96)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--new-tokens", type=int, default=800)
    parser.add_argument("--think", type=float, default=1.0)
    parser.add_argument("--kv-tokens", type=int, default=110_000)
    parser.add_argument("--speed", type=float, default=4.0)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("flags", nargs="*", help="flags of `concur-proxy serve`, after --")
    options = parser.parse_args()
    runs: dict[int, list[Run]] = {1: [], options.replicas: []}
    for number in range(options.pairs):
        for replicas in (1, options.replicas) if number % 2 == 0 else (options.replicas, 1):
            done = run(replicas, options)
            runs[replicas].append(done)
            report = done.report
            print(
                f"{replicas} replicas: {report.useful_tokens_per_s:.0f} useful tokens/s, "
                f"hit rate {report.hit_rate:.3f}, "
                f"{report.wall_s:.0f} s, p95 {report.turn_p95_s:.1f} s, {report.errors} errors",
                flush=True,
            )
            if options.verbose:
                print(json.dumps(done.metrics, indent=1), flush=True)
    rates = {count: [one.report.useful_tokens_per_s for one in each] for count, each in runs.items()}
    found = ratio(rates[options.replicas], rates[1])
    hits = {count: sum(one.report.hit_rate or 0.0 for one in each) / len(each) for count, each in runs.items()}
    print(
        f"ratio {found.mean:.3f} ({', '.join(f'{each:.3f}' for each in found.each)}), hit rates {hits}" if found else ""
    )


if __name__ == "__main__":
    main()
