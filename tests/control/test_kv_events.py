"""KV events over a real ZeroMQ publisher, in the engine's own format, until they change who may go on."""

import asyncio
import logging

import msgspec
import pytest
import zmq
import zmq.asyncio

from concur_proxy.control.kv_events import KvEvents
from concur_proxy.model import BackendId

PATIENCE_S = 60.0
A = BackendId("a")


class Engine:
    """Publishes as vLLM's ``ZmqEventPublisher`` does."""

    def __init__(self, context):
        self.socket = context.socket(zmq.PUB)
        self.port = self.socket.bind_to_random_port("tcp://127.0.0.1")
        self.number = 0

    async def publish(self, *events, skip=0):
        self.number += skip
        payload = msgspec.msgpack.encode([1.5, list(events), 0])
        await self.socket.send_multipart([b"", self.number.to_bytes(8, "big"), payload])
        self.number += 1


def stored(session, blocks, after=None, **fields):
    tokens = list(range(16 * len(blocks)))
    event = {"type": "BlockStored", "block_hashes": blocks, "parent_block_hash": after, "token_ids": tokens}
    event |= {"block_size": 16, "lora_id": None, "medium": "GPU", "lora_name": None, "session_id": session}
    return event | fields


def removed(blocks, **fields):
    return {"type": "BlockRemoved", "block_hashes": blocks, "medium": "GPU", **fields}


def follow(play):
    """Run ``play(engine, until)`` beside a follower; ``until(condition)`` waits until what is told fulfils it."""

    async def run():
        context = zmq.asyncio.Context()
        engine = Engine(context)
        ask = None

        def tell(backend, resident):
            nonlocal ask
            assert backend == A
            ask = resident
            changed.set()

        changed = asyncio.Event()
        follower = KvEvents(A, f"tcp://127.0.0.1:{engine.port}", tell)
        follower.start()

        async def until(condition, again=None):
            while ask is None or not condition(ask):
                changed.clear()
                if again is not None:
                    await again()
                try:
                    await asyncio.wait_for(changed.wait(), 0.2 if again else PATIENCE_S)
                except TimeoutError:
                    if again is None:
                        raise

        try:
            async with asyncio.timeout(PATIENCE_S):
                # A subscription takes a moment: what is published before reaches nobody.
                await until(lambda ask: ask("first") == 16, again=lambda: engine.publish(stored("first", [b"0"])))
                await play(engine, until)
        finally:
            await follower.stop()
            engine.socket.close(linger=0)
            context.term()

    asyncio.run(run())


def test_the_shadow_hears_what_is_stored_and_removed():
    async def play(engine, until):
        await engine.publish(stored("a", [b"1", b"2"]), stored("b", [7], after=b"1"))
        await engine.publish(stored("a", [b"3"], after=b"2"))
        await until(lambda ask: (ask("a"), ask("b")) == (48, 32))
        await engine.publish(removed([b"3", 7]))
        await until(lambda ask: (ask("a"), ask("b")) == (32, 16))
        await engine.publish({"type": "AllBlocksCleared"})
        await until(lambda ask: (ask("a"), ask("b"), ask("c")) == (0, 0, None))

    follow(play)


def test_other_media_and_other_groups_do_not_count():
    async def play(engine, until):
        await engine.publish(stored("a", [1, 2]), stored("a", [3], after=2, medium="CPU"), removed([1], medium="CPU"))
        await engine.publish(stored("a", [4], after=2, group_idx=1), stored("b", [9]))
        await until(lambda ask: ask("b") == 16)
        await until(lambda ask: ask("a") == 32)

    follow(play)


def test_a_gap_makes_it_forget(caplog):
    async def play(engine, until):
        await engine.publish(stored("a", [1, 2]))
        await until(lambda ask: ask("a") == 32)
        await engine.publish(stored("b", [5]), skip=1)
        await until(lambda ask: (ask("a"), ask("b")) == (None, 16))

    with caplog.at_level(logging.WARNING):
        follow(play)
    assert "instead of" in caplog.text


def test_an_engine_that_has_restarted_begins_with_an_empty_cache():
    async def play(engine, until):
        await engine.publish(stored("a", [1, 2]))
        await until(lambda ask: ask("a") == 32)
        engine.number = 0
        await engine.publish(stored("b", [5]))
        await until(lambda ask: (ask("a"), ask("b")) == (None, 16))

    follow(play)


@pytest.mark.parametrize("payload", [b"", b"\xc1", msgspec.msgpack.encode({"no": "batch"})])
def test_what_cannot_be_read_ends_nothing(payload, caplog):
    async def play(engine, until):
        await engine.publish(stored("a", [1]))
        await until(lambda ask: ask("a") == 16)
        await engine.socket.send_multipart([b"", engine.number.to_bytes(8, "big"), payload])
        await engine.publish(stored("b", [2]))
        await until(lambda ask: (ask("a"), ask("b")) == (None, 16))

    with caplog.at_level(logging.WARNING):
        follow(play)
    assert "cannot be read" in caplog.text
