"""What metrics cost: per request, and per scrape with ten and with ten thousand live sessions.

python bench/metrics_cost.py

Per request: everything that is counted when a turn ends, with and without tenants and a recorded trace. Per scrape: the
whole page of a real proxy, half of whose sessions have a turn running and half one that is held. Best of many rounds,
which is what the code costs; the rest is the machine. Exit status 1 where a bound of ours is broken.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable

from concur_proxy import build
from concur_proxy.config import Settings
from concur_proxy.model import (
    Admitted,
    BackendId,
    Outcome,
    PoolId,
    Refused,
    SessionKey,
    TurnFacts,
    TurnRecord,
    Usage,
)
from concur_proxy.observe.metrics import Metrics
from concur_proxy.observe.turnlog import TurnLog
from concur_proxy.runtime.facts import gather
from concur_proxy.runtime.node import Node
from concur_proxy.sim.server import EngineOptions, EngineServer

FEW, MANY = 10, 10_000
MOST_PER_REQUEST_US = 5.0
MOST_GROWTH = 1.3
MOST_BYTES = 200_000
ROUNDS = 200
ACCEPT = "application/openmetrics-text;version=1.0.0"  # what Prometheus asks for


def best(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Return the shortest time of a call, in seconds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def per_request(*, max_tenants: int, traceparent: str) -> float:
    """Return microseconds for a turn that passes the gate and tells its usage."""
    metrics, backend, usage = Metrics(max_tenants=max_tenants), BackendId("gpu-0"), Usage(20_000, 300, 19_500)
    metrics.learn_models(["m"])
    turn = TurnLog(
        *("r", "POST", "/v1/chat/completions", "chat", 200, "completed", 4.2),
        session=SessionKey("n", "s"),
        backend=backend,
        queued_s=0.0,
        first_token_s=0.4,
        usage=usage,
        model="m",
        tenant="acme",
        traceparent=traceparent,
    )
    record = TurnRecord(
        *(backend, SessionKey("n", "s"), Outcome.COMPLETED, 0.0, 0.0, 4.2),
        think_s=6.0,
        usage=usage,
        expected_cached_tokens=19_600,
    )

    def thousand() -> None:
        for _ in range(1000):
            metrics.turn(turn)
            metrics.record(record)

    return best(thousand, 50) * 1000


class Anybody:
    def granted(self, admitted: Admitted) -> None: ...

    def refused(self, refused: Refused) -> None:
        raise AssertionError(refused)


def populate(node: Node, sessions: int) -> None:
    """Let the turns of half of the sessions run; those of the others are held."""
    pool = node.fleet.pool_of(BackendId("gpu-0"))
    for number in range(sessions):
        node.dispatcher.arrive(facts(pool, number), Anybody())


def facts(pool: PoolId, number: int) -> TurnFacts:
    return TurnFacts(pool, SessionKey("n", f"agent-{number}"), body_bytes=8000, tenant=f"t-{number % 7}")


async def per_scrape(sessions: int) -> tuple[float, int]:
    """Return milliseconds and bytes of one page."""
    engine = EngineServer(EngineOptions(port=0, model="m"))
    with engine:
        control = {"law": "fixed", "fixed": {"window": sessions / 2}}
        node = Node(Settings(backends=[{"url": engine.url, "name": "gpu-0"}], control=control))
        await node.start()
        while not node.dispatcher.is_up(BackendId("gpu-0")) or node.gate.view(BackendId("gpu-0"), now=0).window < 2:
            await asyncio.sleep(0.05)
        populate(node, sessions)
        found = gather(node)
        assert found.gate.held == sessions // 2, found.gate
        page, _ = node.metrics.render(found, ACCEPT)
        seconds = best(lambda: node.metrics.render(gather(node), ACCEPT))
        await node.stop()
    return seconds * 1000, len(page)


def main() -> int:
    traced = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    plain = per_request(max_tenants=0, traceparent="")
    everything = per_request(max_tenants=20, traceparent=traced)
    (few_ms, few_bytes), (many_ms, many_bytes) = (asyncio.run(per_scrape(count)) for count in (FEW, MANY))
    print(f"data path: {build()}")
    print(f"per request: {plain:.2f} us; with tenants and a recorded trace {everything:.2f} us")
    print(f"scrape, {FEW:6} sessions: {few_ms:.2f} ms, {few_bytes} bytes")
    print(f"scrape, {MANY:6} sessions: {many_ms:.2f} ms, {many_bytes} bytes: {many_ms / few_ms:.2f} times")
    kept = everything <= MOST_PER_REQUEST_US and many_ms <= MOST_GROWTH * few_ms and many_bytes < MOST_BYTES
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
