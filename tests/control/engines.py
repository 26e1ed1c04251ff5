"""A real HTTP server that behaves as badly as a test wants, and the small helpers of tests in an event loop."""

import asyncio
import contextlib
import json
from collections import Counter
from dataclasses import dataclass, field

from concur_proxy.control.target import EngineTarget
from concur_proxy.model import BackendId

METRICS = (
    'vllm:num_requests_running{engine="0",model_name="m"} %d\n'
    'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25\n'
    'vllm:prompt_tokens_total{engine="0",model_name="m"} %d\n'
    'vllm:cache_config_info{engine="0",kv_cache_size_tokens="16384"} 1.0\n'
)
MODELS = {"object": "list", "data": [{"id": "m", "object": "model", "max_model_len": 4096, "owned_by": "vllm"}]}


@dataclass
class Page:
    """An answer: a status and a body, or bad behaviour in their place."""

    body: str | bytes = ""
    status: int = 200
    hang: bool = False
    """Take the request and never answer."""
    delay: float = 0.0
    reset: bool = False
    """Close the connection without an answer."""
    cut: bool = False
    """Close it in the middle of the body."""
    endless: bool = False
    close: bool = False
    """Answer, and close the connection right after without saying so."""
    stale: bool = False
    """Answer the first request of a connection; take a second one and close it."""
    headers: str = ""


def metrics(running=3, prompt_tokens=100):
    return Page(METRICS % (running, prompt_tokens))


def models(*names):
    return Page(json.dumps({"object": "list", "data": [{"id": name, "root": f"/models/{name}"} for name in names]}))


@dataclass
class FakeEngine:
    """Serves ``pages`` by path; anything else is a 404."""

    pages: dict[str, Page] = field(default_factory=dict)
    port: int = 0
    asked: Counter = field(default_factory=Counter)
    headers: list[str] = field(default_factory=list)
    overlap: int = 0
    """Most requests at once."""
    _open: int = 0
    _server: asyncio.Server | None = None
    _tasks: dict = field(default_factory=dict)

    async def __aenter__(self):
        await self.start()
        return self

    async def __aexit__(self, *_):
        await self.stop()

    async def start(self):
        self._server = await asyncio.start_server(self.accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self):
        """Stop as a process that dies: connections are gone, the port is closed."""
        self._server.close()
        await asyncio.sleep(0)  # what the port has taken already becomes a task
        await self.hang_up()
        await self._server.wait_closed()

    async def hang_up(self):
        tasks, self._tasks = self._tasks, {}
        for task, writer in tasks.items():
            task.cancel()
            writer.close()
        await asyncio.gather(*tasks, return_exceptions=True)

    def target(self, name="a", **fields):
        return EngineTarget(BackendId(name), f"http://127.0.0.1:{self.port}", **fields)

    def accept(self, reader, writer):
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks[task] = writer
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def _serve(self, reader, writer):
        try:
            fresh = True
            while await self._answer(reader, writer, fresh=fresh):
                fresh = False
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _answer(self, reader, writer, *, fresh):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = head.split()[1]
        self.headers.append(head.lower())
        self.asked[path] += 1
        self._open += 1
        self.overlap = max(self.overlap, self._open)
        try:
            page = self.pages.get(path, Page("not found", status=404))
            return (fresh or not page.stale) and await self._send(page, writer)
        finally:
            self._open -= 1

    async def _send(self, page, writer):
        if page.hang:
            await asyncio.Event().wait()
        await asyncio.sleep(page.delay)
        if page.reset:
            return False
        body = page.body.encode() if isinstance(page.body, str) else page.body
        length = len(body) + (10 if page.cut else 0)
        framing = "transfer-encoding: chunked" if page.endless else f"content-length: {length}"
        writer.write(
            f"HTTP/1.1 {page.status} X\r\n{framing}\r\n{page.headers}\r\n".encode() + (b"" if page.endless else body)
        )
        while page.endless:
            writer.write(b"10000\r\n" + b"#" * 0x10000 + b"\r\n")
            await writer.drain()
        await writer.drain()
        return not (page.cut or page.close)


async def eventually(condition, *, within=10.0):
    """Wait until ``condition()`` holds; how long that takes is not what is tested."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within):
            while not condition():
                await asyncio.sleep(0.005)
    assert condition()
