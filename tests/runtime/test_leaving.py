"""The proxy as a process in front of an engine that computes: clients leave, and the engine has nothing left to do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from concur_proxy.sim.server import EngineOptions, EngineServer
from tests.clients.stack import ProxyProcess, metric
from tests.gateway.harness import Client, request

LOOPS = 125
LONG = b'{"model":"m","max_tokens":6000,"ignore_eos":true,%b"messages":[{"role":"user","content":"hi"}]}'
MOMENTS = ["held", "before the first byte", "in a stream", "in a whole answer"]
PATIENCE_S = 30


@pytest.fixture(scope="module")
def engine() -> Iterator[EngineServer]:
    with EngineServer(EngineOptions(port=0, model="m", speed=4.0)) as running:
        yield running


async def until_metric(url: str, wanted: float, *names: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await asyncio.to_thread(metric, url, *names) != wanted:
            await asyncio.sleep(0.01)


async def leave(port: int, moment: str, number: int, engine_url: str, proxy_url: str) -> None:
    """Start a turn that goes on for ever and go at the moment."""
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    body = LONG % (b'"stream":true,' if moment == "in a stream" else b"")
    await client.send(request(body, headers=b"x-session-id: %b-%d\r\nx-session-final: true\r\n" % (b"s", number)))
    if moment == "in a stream":
        await client.reader.readuntil(b"data: ")
    elif moment == "held" and number % 25 == 0:
        await until_metric(proxy_url, 1, "concur_turns_held")
    elif moment == "in a whole answer" and number % 25 == 0:
        await until_metric(engine_url, 1, "vllm:num_requests_running")
    client.leave()


@pytest.mark.parametrize("moment", MOMENTS)
def test_every_gauge_is_at_zero_when_clients_have_left_and_the_engine_is_free(
    moment: str, engine: EngineServer
) -> None:
    """Five hundred loops in all; the engine's own gauges tell that it was told."""

    async def loops(proxy: ProxyProcess) -> None:
        first = Client(*await asyncio.open_connection("127.0.0.1", proxy.port))
        if moment == "held":
            await first.send(request(LONG % b'"stream":true,', headers=b"x-session-id: first\r\n"))
            await first.reader.readuntil(b"data: ")
        for number in range(LOOPS):
            await leave(proxy.port, moment, number, engine.url, proxy.url)
        if moment == "held":
            await until_metric(proxy.url, 0, "concur_turns_held")
            await until_metric(proxy.url, 1, "concur_turns_running")
        first.leave()
        for gauge in ("concur_turns_held", "concur_turns_running"):
            await until_metric(proxy.url, 0, gauge)
        for gauge in ("vllm:num_requests_running", "vllm:num_requests_waiting"):
            await until_metric(engine.url, 0, gauge)

    with ProxyProcess([engine.url], flags=["--window", "1"]) as proxy:
        asyncio.run(loops(proxy))
        answered = metric(proxy.url, "concur_turns_finished_total")
        assert answered + metric(proxy.url, "concur_turns_abandoned_total") == LOOPS + (moment == "held")
