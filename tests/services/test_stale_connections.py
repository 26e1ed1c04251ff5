"""A thousand turns whose gaps are as long as an engine keeps idle connections: uvicorn as it comes, five seconds.

The gaps are real: what is under test is what happens when both sides close at about the same moment.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from concur_proxy.sim.server import EngineOptions, EngineServer
from tests.clients.stack import ProxyProcess
from tests.gateway.harness import Client, request

pytestmark = pytest.mark.slow

AGENTS = 200
GAPS_S = (4.9, 4.99, 5.0, 5.01, 5.1, 6.0)
"""Think times around the five seconds after which engines close idle connections.

All agents think for equally long, so that each keeps a connection of its own and no other turn freshens that up.
"""
BODY = b'{"model":"m","max_tokens":1,"ignore_eos":true,"messages":[{"role":"user","content":"hi"}]}'


async def agent(port: int, number: int) -> list[bytes]:
    """One agent on one connection: turns with the gaps in between."""
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    statuses = []
    raw = request(BODY, headers=b"x-session-id: agent-%d\r\n" % number)
    for gap_s in (*GAPS_S, 0.0):
        await client.send(raw)
        statuses.append((await client.answer()).line)
        await asyncio.sleep(gap_s)
    await client.close()
    return statuses


def test_turns_after_tool_calls_of_five_seconds_never_fail() -> None:
    async def all_agents(port: int) -> Counter[bytes]:
        answers = await asyncio.gather(*(agent(port, number) for number in range(AGENTS)))
        return Counter(line for statuses in answers for line in statuses)

    engine = EngineServer(EngineOptions(port=0, model="m", speed=20.0))
    with engine, ProxyProcess([engine.url], flags=["--law", "unlimited"]) as proxy:
        counts = asyncio.run(all_agents(proxy.port))
    assert counts == {b"HTTP/1.1 200 OK": AGENTS * (len(GAPS_S) + 1)}
