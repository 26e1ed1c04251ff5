"""What a request or a connection leaves behind when it has ended: nothing that only a garbage collection would find."""

import gc

import pytest

from concur_proxy.gateway.connection import UpstreamConnection
from concur_proxy.gateway.exchange import Exchange
from concur_proxy.gateway.protocol import FastLaneProtocol
from concur_proxy.gateway.relay import Relay
from concur_proxy.gateway.turn import Turn
from tests.gateway.harness import STREAMED, Engine, Proxy, chunked, ok, request, run, until

OURS = FastLaneProtocol, UpstreamConnection, Exchange, Turn, Relay
EVENT = b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'


class Watch:
    """Collects no garbage while it is on, and tells what is left of what has come since."""

    def __enter__(self):
        gc.collect()
        gc.disable()
        self._before = ours()  # kept, so that nothing new gets the id of something old
        return self

    def __exit__(self, *_):
        gc.enable()

    def left(self):
        known = set(map(id, self._before))
        return [type(each).__name__ for each in ours() if id(each) not in known]


def ours():
    return [each for each in gc.get_objects() if isinstance(each, OURS)]


async def answers(seen, wire):
    if b"stream" in seen.body:
        await wire.send(chunked(EVENT, b"data: [DONE]\n\n"))
    elif b"hang up" in seen.body:
        return False
    else:
        await wire.send(ok())
    return b"bye" not in seen.body


BODIES = {
    "answered": b'{"model":"m","messages":[]}',
    "streamed": STREAMED,
    "the engine closes": b'{"model":"m","messages":[],"user":"bye"}',
    "the engine hangs up": b'{"model":"m","messages":[],"user":"hang up"}',
    "not JSON": b"[",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_connections_and_turns_are_freed_as_they_end(body):
    async def main():
        async with Engine(answers) as engine, Proxy([engine]) as proxy:
            with Watch() as watch:
                for _ in range(3):
                    client = await proxy.client()
                    for _ in range(3):  # the first ones are parsed, the next one is known
                        await client.send(request(body))
                        await client.answer()
                    await client.close()
                await until(lambda: not proxy.state.connections and proxy.idle())
                for pool in proxy.pools.values():
                    pool.close()
                await until(lambda: not any(pool.open_connections for pool in proxy.pools.values()))
                await until(lambda: not watch.left())

    run(main())


def test_a_client_that_leaves_early_leaves_nothing():
    async def never(_seen, wire):
        await wire.gone()

    async def main():
        async with Engine(never) as engine, Proxy([engine]) as proxy:
            with Watch() as watch:
                client = await proxy.client()
                await client.send(request())
                await until(lambda: proxy.handler.turns)
                await client.close()
                await until(lambda: not proxy.state.connections and proxy.idle())
                await until(lambda: not watch.left())

    run(main())
