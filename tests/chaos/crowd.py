"""Many streams at once through a proxy, and what became of each."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import orjson

from concur_proxy.gateway.resume import split
from tests.gateway.harness import Client, request

HUNG_S = 60.0
"""A stream that nothing is heard of for so long hangs."""


@dataclass
class Stream:
    """One stream as its client saw it."""

    backend: str = ""
    status: int = 0
    tokens: int = 0
    ids: frozenset[str] = frozenset()
    done: bool = False
    """It came to its own end."""
    usage: dict | None = None
    error: str | None = None
    """Code of the error that it ended with."""
    hung: bool = False
    ended_at: float = 0.0

    @property
    def clean(self) -> bool:
        """The client knows how it ended: all that it asked for, or an error that says so."""
        return not self.hung and (self.done or self.error is not None)


def body_of(number: int, tokens: int) -> bytes:
    return orjson.dumps(
        {
            "model": "alpha",
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": tokens,
            "ignore_eos": True,
            "messages": [{"role": "user", "content": f"count to ten, {number}"}],
        }
    )


class Crowd:
    """``streams`` clients, each with a session of its own and one long turn."""

    def __init__(self, port: int, streams: int, tokens: int) -> None:
        self._port = port
        self._tokens = tokens
        self.streams = [Stream() for _ in range(streams)]
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Return when all of them have heard something."""
        self._tasks = [asyncio.create_task(self._one(number)) for number in range(len(self.streams))]
        async with asyncio.timeout(HUNG_S):
            while not all(stream.tokens or task.done() for stream, task in zip(self.streams, self._tasks, strict=True)):
                await asyncio.sleep(0.01)

    async def ended(self) -> list[Stream]:
        await asyncio.gather(*self._tasks)
        return self.streams

    async def _one(self, number: int) -> None:
        stream = self.streams[number]
        client = Client(*await asyncio.open_connection("127.0.0.1", self._port))
        try:
            async with asyncio.timeout(HUNG_S):
                headers = b"content-type: application/json\r\nx-session-id: c%d\r\n" % number
                await client.send(request(body_of(number, self._tokens), headers=headers))
                await self._read(client, stream)
        except TimeoutError:
            stream.hung = True
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            stream.error = stream.error or f"cut off ({type(error).__name__})"
        finally:
            stream.ended_at = time.monotonic()
            await client.close()

    async def _read(self, client: Client, stream: Stream) -> None:
        head = (await client.reader.readuntil(b"\r\n\r\n")).lower()
        stream.status = int(head.split(b" ")[1])
        stream.backend = head.partition(b"x-concur-backend: ")[2].partition(b"\r\n")[0].decode()
        if stream.status != 200:
            stream.error = f"status {stream.status}"
            return
        rest = b""
        while size := int(await client.reader.readuntil(b"\r\n"), 16):
            data = await client.reader.readexactly(size + 2)
            events, rest = split(rest + data[:-2])
            for event in events:
                self._take(event.removeprefix(b"data: ").strip(), stream)
        await client.reader.readline()

    @staticmethod
    def _take(event: bytes, stream: Stream) -> None:
        if event == b"[DONE]":
            stream.done = True
        elif event.startswith(b"{"):
            told = orjson.loads(event)
            if "error" in told:
                stream.error = told["error"]["code"]
                return
            stream.ids |= {told["id"]}
            stream.usage = told.get("usage") or stream.usage
            stream.tokens += sum(bool(choice["delta"].get("content")) for choice in told["choices"])
