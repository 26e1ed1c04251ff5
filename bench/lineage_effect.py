#!/usr/bin/env python3
"""What recognising sessions by their messages is worth: agents that send an id, none, and none without lineage.

    python bench/lineage_effect.py        # about two minutes

The workload and the engine are those of ``concur-proxy demo``: recorded coding agents, made small, whose contexts come
to about six times the cache of the embedded engine.
"""

from __future__ import annotations

import argparse
import asyncio

from concur_proxy.bench.compare import CompareOptions, Target, run_once
from concur_proxy.bench.demo import AGENTS, ENGINE
from concur_proxy.bench.player import PlayOptions
from concur_proxy.bench.proxy_process import QUIET, ProxyProcess
from concur_proxy.bench.report import Report
from concur_proxy.sim.server import EngineServer

CASES = [
    ("with an id", "x-session-id", "true"),
    ("without, by lineage", None, "true"),
    ("without, lineage off", None, "false"),
]


def play(header: str | None, lineage: str, law: str) -> Report:
    """Play all agents through a proxy and an engine of their own."""
    settings = {"CONCUR_SESSIONS__LINEAGE": lineage}
    with (
        EngineServer(ENGINE) as engine,
        ProxyProcess([engine.url], flags=(*QUIET, "--law", law), env=settings) as proxy,
    ):
        target = Target("", proxy.url, engine.url)
        options = CompareOptions((target,), play=PlayOptions(session_header=header))
        return asyncio.run(run_once(AGENTS.scripts(), target, options))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--law", default="aimd", help="control law (default: %(default)s)")
    law = parser.parse_args().law
    print(f"{'agents':24s} {'time':>8s} {'hit rate':>9s} {'computed again':>15s} {'errors':>7s}")
    for label, header, lineage in CASES:
        report = play(header, lineage, law)
        again = report.recomputed_tokens or 0
        hits = report.hit_rate or 0.0
        print(f"{label:24s} {report.wall_s:6.1f} s {hits:9.2f} {again:8d} tokens {report.errors:7d}", flush=True)


if __name__ == "__main__":
    main()
