"""``concur-proxy demo``: recorded coding agents on the embedded engine, straight and then through the proxy."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from rich.console import Console

from concur_proxy.bench.compare import CompareOptions, Target, run_once
from concur_proxy.bench.demo_view import DemoView, ProxyState, intro, verdict
from concur_proxy.bench.player import PlayOptions
from concur_proxy.bench.proxy_process import QUIET, ProxyProcess
from concur_proxy.bench.proxy_watch import ProxyWatch
from concur_proxy.bench.report import Report
from concur_proxy.bench.workloads import RecordedAgents
from concur_proxy.sim.options import EngineOptions, deploy
from concur_proxy.sim.server import EngineServer
from concur_proxy.sim.workload import SessionScript

INTERRUPTED = 130


AGENTS = RecordedAgents(sessions=80, turns=12, prompts=0.015, outputs=0.06, time=0.01, longest_think_s=0.3)
"""Their contexts come to about six times the cache. Pauses that were longer than half a minute when they were recorded
are people's, not tools', and are cut to that."""
ENGINE = EngineOptions(profile="laptop", port=0, speed=10)


@dataclass(frozen=True, slots=True)
class DemoOptions:
    agents: RecordedAgents = AGENTS
    engine: EngineOptions = ENGINE
    law: str = "meanfield"


def run_demo(options: DemoOptions, console: Console) -> int:
    """Play both ways and print what came out; return the exit status. Whatever happens, no child is left behind."""
    scripts = options.agents.scripts()
    console.print(intro(scripts, deploy(options.engine)), highlight=False)
    try:
        with EngineServer(options.engine) as engine, DemoView(console, started_at=time.monotonic()) as view:
            direct = asyncio.run(_play_direct(scripts, engine.url, view))
            # Not before: a proxy that watches an engine under somebody else's load cuts its window.
            with ProxyProcess([engine.url], flags=(*QUIET, "--law", options.law)) as proxy:
                proxied = asyncio.run(_play_proxied(scripts, engine.url, proxy.url, view))
    except KeyboardInterrupt:
        console.print("interrupted")
        return INTERRUPTED
    console.print(verdict(direct, proxied))
    return 1 if direct.errors or proxied.errors else 0


async def _play_direct(scripts: tuple[SessionScript, ...], engine_url: str, view: DemoView) -> Report:
    target = Target("straight to the engine", engine_url, engine_url)
    view.begin(target.label)
    report = await run_once(scripts, target, CompareOptions((target,), play=PlayOptions()), view.show)
    view.ended(report)
    return report


async def _play_proxied(scripts: tuple[SessionScript, ...], engine_url: str, proxy_url: str, view: DemoView) -> Report:
    target = Target("through concur-proxy", proxy_url, engine_url)
    options = CompareOptions((target,), play=PlayOptions())
    view.begin(target.label)
    async with ProxyWatch(proxy_url) as watch:
        report = await run_once(
            scripts, target, options, lambda progress: view.show(progress, ProxyState.of(watch.status))
        )
    view.ended(report)
    return report
