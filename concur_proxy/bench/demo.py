"""``concur-proxy demo``: recorded coding agents on the embedded engine, straight and then through the proxy."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from rich.console import Console

from concur_proxy.bench.compare import CompareOptions, Target, run_once
from concur_proxy.bench.demo_view import DemoView, ProxyState, intro, verdict
from concur_proxy.bench.player import PlayOptions
from concur_proxy.bench.proxy_process import ProxyProcess
from concur_proxy.bench.proxy_watch import ProxyWatch
from concur_proxy.bench.report import Report
from concur_proxy.bench.workloads import RecordedAgents
from concur_proxy.sim.options import EngineOptions, deploy
from concur_proxy.sim.server import EngineServer
from concur_proxy.sim.workload import SessionScript

INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """Agents whose contexts come to about six times the cache. Pauses that were longer than half a minute when they
    were recorded are people's, not tools', and are cut to that."""

    agents: RecordedAgents = RecordedAgents(
        sessions=80, turns=12, prompts=0.015, outputs=0.06, time=0.01, longest_think_s=0.3
    )
    engine: EngineOptions = EngineOptions(profile="laptop", port=0, speed=10)
    law: str = "aimd"


def run_demo(options: DemoOptions, console: Console) -> int:
    """Play both ways and print what came out; return the exit status. Whatever happens, no child is left behind."""
    scripts = options.agents.scripts()
    console.print(intro(scripts, deploy(options.engine)), highlight=False)
    try:
        with EngineServer(options.engine) as engine, ProxyProcess(engine.url, "--law", options.law) as proxy:
            view = DemoView(console, started_at=time.monotonic())
            direct, proxied = asyncio.run(_play_both(scripts, engine.url, proxy.url, view))
    except KeyboardInterrupt:
        console.print("interrupted")
        return INTERRUPTED
    console.print(verdict(direct, proxied))
    return 1 if direct.errors or proxied.errors else 0


async def _play_both(
    scripts: tuple[SessionScript, ...], engine_url: str, proxy_url: str, view: DemoView
) -> tuple[Report, Report]:
    direct = Target("straight to the engine", engine_url, engine_url)
    proxied = Target("through concur-proxy", proxy_url, engine_url)
    options = CompareOptions((direct, proxied), play=PlayOptions())
    with view:
        view.begin(direct.label)
        first = await run_once(scripts, direct, options, view.show)
        view.ended(first)
        view.begin(proxied.label)
        async with ProxyWatch(proxy_url) as watch:
            second = await run_once(
                scripts, proxied, options, lambda progress: view.show(progress, ProxyState.of(watch.status))
            )
        view.ended(second)
    return first, second
