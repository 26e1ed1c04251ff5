#!/usr/bin/env python3
"""Soak: agents that come, leave at random moments and come back, against the embedded engine, for minutes.

    python bench/soak.py --minutes 10

At the end every gauge of proxy and engine must be at zero, no request may have failed for the proxy's own fault, and
the proxy's memory must be flat. Prints one line a progress interval, then a verdict; exit status 1 where it fails.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from concur_proxy.bench.proxy_process import ProxyProcess
from concur_proxy.sim.server import EngineOptions, EngineServer

SETTLE_S = 30.0
GROWTH = 1.10
"""Memory of the last third of the run against the middle third."""

ENGINE_GAUGES = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
PROXY_GAUGES = ("concur_turns_held", "concur_turns_running", "concur_sessions_active", "concur_sessions_idle")
CONFIG = """\
gate: {lease_min_s: 0.5, lease_max_s: 3, max_wait_s: 20, max_sessions: 2000}
log: {level: warning}
server: {access_log: false}
"""


@dataclass
class Tally:
    ends: Counter[str] = field(default_factory=Counter)
    memory_mb: list[tuple[float, float]] = field(default_factory=list)


async def read_answer(reader: asyncio.StreamReader, quit_after: int | None) -> str:
    """Read an answer to its end, or leave after a number of bytes."""
    status = await reader.readline()
    got = len(status)
    while True:
        data = await reader.read(4096)
        got += len(data)
        if not data:
            return status.split()[1].decode() if status else "no answer"
        if quit_after is not None and got > quit_after:
            return "left in the middle"


async def turn(port: int, session: str, model: str, rng: random.Random, messages: list[dict[str, str]]) -> str:
    """One turn on a connection of its own; one of three clients leaves: while it waits, or while it reads."""
    stream = rng.random() < 0.6
    body = json.dumps(
        {"model": model, "messages": messages, "stream": stream, "max_tokens": rng.randint(1, 60)}
    ).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: soak\r\nx-session-id: {session}\r\nconnection: close\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        cut = rng.randrange(len(body)) if rng.random() < 0.02 else len(body)
        writer.write(head.encode() + body[:cut])
        await writer.drain()
        if cut < len(body):
            return "left in the request"
        mood = rng.random()
        if mood < 0.17:
            try:
                return await asyncio.wait_for(read_answer(reader, None), rng.expovariate(1 / 0.2))
            except TimeoutError:
                return "left while waiting"
        return await read_answer(reader, rng.randrange(8000) if mood < 0.33 else None)
    except ConnectionError:
        return "connection lost"
    finally:
        writer.transport.abort()


async def agent(number: int, port: int, model: str, until: float, tally: Tally) -> None:
    rng = random.Random(number)
    while time.monotonic() < until:
        session = f"soak-{number}-{rng.randrange(10**9)}"
        messages = [{"role": "user", "content": "word " * rng.randint(20, 600)}]
        for _ in range(rng.randint(1, 12)):
            if time.monotonic() > until:
                return
            tally.ends[await turn(port, session, model, rng, messages)] += 1
            messages.append({"role": "assistant", "content": "word " * rng.randint(1, 60)})
            messages.append({"role": "user", "content": "word " * rng.randint(5, 200)})
            await asyncio.sleep(rng.expovariate(1 / 0.3))


async def watch(pid: int, started: float, until: float, tally: Tally) -> None:
    while time.monotonic() < until:
        status = Path(f"/proc/{pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+)", status)
        assert found is not None
        tally.memory_mb.append((time.monotonic() - started, int(found[1]) / 1024))
        if len(tally.memory_mb) % 15 == 1:
            when, memory = tally.memory_mb[-1]
            print(f"{when:6.0f} s  {sum(tally.ends.values()):7d} turns  {memory:6.1f} MB", flush=True)
        await asyncio.sleep(1.0)


def gauges(url: str, names: tuple[str, ...]) -> dict[str, float]:
    """Return the sums of the named gauges."""
    sums = dict.fromkeys(names, 0.0)
    for line in httpx.get(f"{url}/metrics").text.splitlines():
        name = line.partition("{")[0].partition(" ")[0]
        if name in sums:
            sums[name] += float(line.rsplit(" ", 1)[1])
    return sums


async def all_zero(proxy: str, engine: str) -> dict[str, float]:
    """Wait until every gauge is at zero; return what is not."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        left = {n: v for n, v in (gauges(proxy, PROXY_GAUGES) | gauges(engine, ENGINE_GAUGES)).items() if v}
        if not left or time.monotonic() > deadline:
            return left
        await asyncio.sleep(0.2)


def verdict(tally: Tally, left: dict[str, float], exit_status: int, duration_s: float) -> list[str]:
    """Return what is wrong."""
    wrong = [f"{name} is {value:g}, not 0" for name, value in left.items()]
    bad = {end: count for end, count in tally.ends.items() if end in {"500", "502", "504", "no answer"}}
    if bad:
        wrong.append(f"failed requests: {bad}")
    middle = [mb for when, mb in tally.memory_mb if duration_s / 3 <= when < 2 * duration_s / 3]
    last = [mb for when, mb in tally.memory_mb if when >= 2 * duration_s / 3]
    before, after = statistics.median(middle), statistics.median(last)
    print(f"memory: {before:.1f} MB in the middle third, {after:.1f} MB in the last")
    if after > GROWTH * before:
        wrong.append("memory grows")
    if exit_status != 0:
        wrong.append(f"the proxy ended with status {exit_status}")
    return wrong


async def soak(proxy: ProxyProcess, engine: EngineServer, agents: int, duration_s: float) -> list[str]:
    model = httpx.get(f"{proxy.url}/v1/models").json()["data"][0]["id"]
    started, tally = time.monotonic(), Tally()
    until = started + duration_s
    await asyncio.gather(
        watch(proxy.pid, started, until, tally), *(agent(n, proxy.port, model, until, tally) for n in range(agents))
    )
    left = await all_zero(proxy.url, engine.url)
    status = proxy.close()
    print(f"{sum(tally.ends.values())} turns: {dict(tally.ends.most_common())}")
    return verdict(tally, left, status, duration_s)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--agents", type=int, default=40)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        EngineServer(EngineOptions(port=0, speed=20, kv_tokens=8192)) as engine,
    ):
        config = Path(folder) / "soak.yaml"
        config.write_text(CONFIG)
        with ProxyProcess([engine.url], flags=("--config", str(config)), grace_s=SETTLE_S) as proxy:
            wrong = asyncio.run(soak(proxy, engine, options.agents, 60 * options.minutes))
    print("\n".join(wrong) or "all gauges at zero, memory flat, no failed request")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
