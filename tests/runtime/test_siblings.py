"""Metrics of all workers from whichever is asked."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import httpx

from concur_proxy.runtime.siblings import Siblings, meeting_place
from concur_proxy.sim.server import EngineOptions, EngineServer
from tests.clients.stack import ProxyProcess
from tests.state.redis import RedisServer, needs_redis


def page(number: int):
    return lambda accept: f"# TYPE turns counter\nturns{{who={accept!r}}} {number}\n".replace("'", '"').encode()


def test_whoever_is_asked_answers_for_all_that_are_there():
    async def run(folder):
        siblings = [Siblings(folder, 3, number) for number in range(3)]
        for each in siblings[:2]:
            await each.start(page(each.number))
        first = await siblings[0].page("text", page(0)("text"))
        again = Siblings(folder, 3, 1)  # the one before has died and left its socket
        await again.start(page(7))
        second = await siblings[0].page("text", page(0)("text"))
        for each in (*siblings, again):
            await each.stop()
        return first.decode(), second.decode()

    with meeting_place() as folder:
        first, second = asyncio.run(run(Path(folder)))
    assert first == '# TYPE turns counter\nturns{worker="0",who="text"} 0\nturns{worker="1",who="text"} 1\n'
    assert 'turns{worker="1",who="text"} 7' in second


@needs_redis
def test_workers_of_a_real_proxy_show_each_others_metrics():
    redis = RedisServer()
    try:
        env = {"CONCUR_STATE__URL": redis.url}
        with (
            EngineServer(EngineOptions(port=0, model="m", speed=20.0)) as engine,
            ProxyProcess([engine.url], flags=["--workers", "2"], env=env) as proxy,
        ):
            body = {"model": "m", "messages": [{"role": "user", "content": "Hello."}], "max_tokens": 3}
            for _ in range(8):  # each on a connection of its own, whichever worker takes it
                assert httpx.post(f"{proxy.url}/v1/chat/completions", json=body).status_code == 200
            pages = [httpx.get(f"{proxy.url}/metrics").text for _ in range(4)]
    finally:
        redis.close()
    for text in pages:
        assert set(re.findall(r'^concur_build_info\{worker="(\d)"', text, flags=re.MULTILINE)) == {"0", "1"}
        counts = re.findall(r"^concur_turns_arrived_total\{[^}]*\} (\S+)", text, flags=re.MULTILINE)
        assert sum(map(float, counts)) == 8
