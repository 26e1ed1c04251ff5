"""Follows the KV events that an engine publishes over ZeroMQ (vLLM: ``--kv-events-config``), for the gate's shadow.

Batches are numbered. Where one is missing, as after a restart of the engine or where it publishes faster than we read,
all that was known is forgotten, and the shadow goes by its own reckoning until sessions are told of anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgspec
import zmq
import zmq.asyncio

from concur_proxy.core.kvblocks import Block, KvBlocks
from concur_proxy.model import BackendId
from concur_proxy.tasks import end

TELL_EVERY_S = 0.1
"""Contexts go cold by the second; engines publish with every step."""
MOST_AT_ONCE = 1000
CARD = frozenset({None, "GPU"})
"""Media that count: what lies in the memory of the host is not what the engine's capacity is about."""

Tell = Callable[[BackendId, Callable[[str], int | None]], None]

_log = logging.getLogger(__name__)


class BlockStored(msgspec.Struct, tag=True):
    block_hashes: list[Block]
    parent_block_hash: Block | None
    block_size: int
    medium: str | None = None
    group_idx: int | None = None
    session_id: str | None = None


class BlockRemoved(msgspec.Struct, tag=True):
    block_hashes: list[Block]
    medium: str | None = None
    group_idx: int | None = None


class AllBlocksCleared(msgspec.Struct, tag=True):
    pass


class Batch(msgspec.Struct, array_like=True):
    ts: float
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]


class KvEvents:
    """One engine's events, from ``start`` to ``stop``; ``tell`` hears, some times a second, whom to ask."""

    def __init__(self, backend: BackendId, url: str, tell: Tell) -> None:
        self.backend = backend
        self.url = url
        self.blocks = KvBlocks()
        self._tell = tell
        self._expected: int | None = None
        self._decoder = msgspec.msgpack.Decoder(Batch)
        self._troubled = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"kv events of {self.backend}")

    async def stop(self) -> None:
        await end(self._task)

    async def _run(self) -> None:
        context = zmq.asyncio.Context()
        socket = context.socket(zmq.SUB)
        try:
            socket.setsockopt(zmq.IPV6, 1)
            socket.subscribe(b"")
            socket.connect(self.url)
            while True:
                self.take(await socket.recv_multipart())
                for _ in range(MOST_AT_ONCE):
                    if not await socket.poll(0):
                        break
                    self.take(await socket.recv_multipart())
                self._tell(self.backend, self.blocks.resident)
                await asyncio.sleep(TELL_EVERY_S)
        finally:
            socket.close(linger=0)
            context.term()

    def take(self, frames: list[bytes]) -> None:
        """Take in a message: topic, number, and a batch of events."""
        try:
            _topic, number, payload = frames
            batch = self._decoder.decode(payload)
        except (ValueError, msgspec.MsgspecError) as error:
            self._lose(f"cannot be read: {error}")
            return
        sequence = int.from_bytes(number, "big")
        if self._expected is None:
            _log.info("backend %s publishes KV events at %s: the shadow follows them", self.backend, self.url)
        elif sequence != self._expected:
            self._lose(f"go on with number {sequence} instead of {self._expected}")
        self._expected = sequence + 1
        for event in batch.events:
            self._apply(event)

    def _lose(self, why: str) -> None:
        self.blocks.forget()
        if not self._troubled:
            _log.warning("KV events of backend %s %s: what was known of its cache is forgotten", self.backend, why)
        self._troubled = True

    def _apply(self, event: Any) -> None:
        if isinstance(event, AllBlocksCleared):
            self.blocks.cleared()
        elif event.medium not in CARD or event.group_idx:
            return  # the first group of a hybrid model stands for all
        elif isinstance(event, BlockStored):
            self.blocks.stored(event.session_id, event.block_hashes, event.parent_block_hash, event.block_size)
        else:
            self.blocks.removed(event.block_hashes)
