"""A scripted HTTP server: each request that comes is answered with the bytes that a function returns for it."""

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

CLOSE = b"close"
"""End the connection after this answer; alone: without an answer."""


@dataclass(frozen=True)
class Seen:
    """A request: ``connection`` counts from 0."""

    connection: int
    method: str
    path: str
    headers: dict
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)


class Script:
    """Remembers what came."""

    def __init__(self, answer):
        self.answer = answer
        self.seen = []
        self.connections = 0
        self._writers = []

    async def close(self):
        for writer in self._writers:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def __call__(self, reader, writer):
        self._writers.append(writer)
        connection, self.connections = self.connections, self.connections + 1
        while request := await _read(reader, connection):
            self.seen.append(request)
            answer = self.answer(request)
            for part in answer if isinstance(answer, list) else [answer]:
                if part == CLOSE:
                    writer.close()
                    return
                writer.write(part)
                await writer.drain()
        writer.close()


async def _read(reader, connection):
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    except asyncio.IncompleteReadError:
        return None
    method, path, _ = head[0].split(" ")
    headers = dict(line.split(": ", 1) for line in head[1:] if line)
    length = next((value for name, value in headers.items() if name.lower() == "content-length"), "0")
    body = await reader.readexactly(int(length))
    return Seen(connection, method, path, headers, body)


@asynccontextmanager
async def served(answer):
    """Run a server; yields its URL and its script."""
    script = Script(answer)
    server = await asyncio.start_server(script, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        try:
            yield f"http://{host}:{port}", script
        finally:
            await script.close()


def reply(body, status=200, headers=""):
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return f"HTTP/1.1 {status} X\r\ncontent-length: {len(raw)}\r\n{headers}\r\n".encode() + raw


def chat(text="hi", prompt=10, completion=2, cached=None):
    details = None if cached is None else {"cached_tokens": cached}
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "prompt_tokens_details": details}
    return {"choices": [{"message": {"content": text}, "finish_reason": "stop"}], "usage": usage}


MODELS = {"data": [{"id": "m"}]}
