"""The engine's stand-in: a raw asyncio server that answers at once, and cheaper than any proxy in front of it.

    python -m bench.overhead.upstream     # prints its port; ends when its standard input does

Small chat completions with usage; streams of ``CHUNKS`` events, ``GAP_S`` apart, with a usage event where it is asked
for; and what routers and proxies want to see of a worker before they trust it: health, models, metrics.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass

import httptools
import uvloop

from bench.overhead.bodies import MODEL, TEXT

CHUNKS = 200
GAP_S = 0.002
ENDLESS = "endless"
"""A stream of this ``user`` never ends; its events are ``ENDLESS_GAP_S`` apart."""
ENDLESS_GAP_S = 1.0

EDGE_BYTES = 512
"""How much of each end of a body is looked at."""

STREAM = re.compile(rb'"stream":\s*true')
USAGE = re.compile(rb'"include_usage":\s*true')
IDENTITY = {"id": "chatcmpl-9f2c1e7a5b3d4860", "created": 1764400000, "model": MODEL}

METRICS = """\
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{{block_size="16",engine="0",num_gpu_blocks="6250000"}} 1.0
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="{model}"}} {running}
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{engine="0",model_name="{model}"}} 0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{{engine="0",model_name="{model}"}} 0.1
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{{engine="0",model_name="{model}"}} {tokens}
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{{engine="0",model_name="{model}"}} {hits}
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{{engine="0",model_name="{model}"}} 0
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{{engine="0",model_name="{model}"}} {tokens}
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{{engine="0",model_name="{model}"}} {generated}
# TYPE vllm:request_success_total counter
vllm:request_success_total{{engine="0",model_name="{model}",finished_reason="stop"}} {finished}
"""


@dataclass
class Counts:
    """What the metrics tell. It is a warm engine: nine tokens of ten hit."""

    running: int = 0
    finished: int = 0
    tokens: int = 0

    def page(self) -> bytes:
        return METRICS.format(
            model=MODEL,
            running=self.running,
            tokens=self.tokens,
            hits=self.tokens * 9 // 10,
            generated=self.finished * 20,
            finished=self.finished,
        ).encode()


def usage(prompt_tokens: int, completion_tokens: int) -> dict[str, object]:
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "completion_tokens": completion_tokens,
        "prompt_tokens_details": {"cached_tokens": prompt_tokens * 9 // 10},
    }


def dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def answer(body: bytes, content_type: bytes = b"application/json", status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %b\r\nserver: uvicorn\r\ncontent-length: %d\r\ncontent-type: %b\r\n\r\n%b" % (
        status,
        len(body),
        content_type,
        body,
    )


def completion(prompt_tokens: int) -> bytes:
    message = {"role": "assistant", "content": "Done: the test passes now. I changed one line.", "tool_calls": []}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    return answer(
        dump({**IDENTITY, "object": "chat.completion", "choices": [choice], "usage": usage(prompt_tokens, 20)})
    )


def event(delta: dict[str, str], finish: str | None = None) -> bytes:
    """Return an event as a chunk of the transfer."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return framed(dump({**IDENTITY, "object": "chat.completion.chunk", "choices": [choice]}))


def framed(data: bytes) -> bytes:
    return b"%x\r\ndata: %b\n\n\r\n" % (len(data) + 8, data)


STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
FIRST = STREAM_HEAD + event({"role": "assistant", "content": ""})
TOKENS = [event({"content": f" {word}"}) for word in TEXT.split(" ")]
"""Not always the same: LiteLLM ends a stream that repeats itself."""
LAST = event({}, "stop")
DONE = framed(b"[DONE]") + b"0\r\n\r\n"

INFO = {"model_path": MODEL, "model": MODEL, "served_model_name": MODEL, "max_total_num_tokens": 100_000_000}
MODELS = {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "bench", "max_model_len": 1_000_000}]}
PAGES: dict[bytes, bytes] = {
    b"/health": answer(b""),
    b"/health_generate": answer(b""),
    b"/v1/models": answer(dump(MODELS)),
    **dict.fromkeys((b"/get_server_info", b"/server_info"), answer(dump(INFO))),
    **dict.fromkeys((b"/get_model_info", b"/model_info"), answer(dump({**INFO, "is_generation": True}))),
    b"/version": answer(dump({"version": "0.33.0"})),
}
NOT_FOUND = answer(b'{"detail":"Not Found"}', status=b"404 Not Found")


class Upstream(asyncio.Protocol):
    """One connection."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport
        self._call_later: Callable[..., asyncio.TimerHandle]
        self._timer: asyncio.TimerHandle | None = None
        self._url = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._call_later = asyncio.get_running_loop().call_later

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:  # routers try HTTP/2 as well
            self._transport.close()

    def connection_lost(self, _: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._counts.running -= 1

    def on_url(self, url: bytes) -> None:
        self._url = url
        self._start, self._end, self._size = b"", b"", 0

    def on_body(self, data: bytes) -> None:
        if not self._size:
            self._start = data[:EDGE_BYTES]
        self._size += len(data)
        self._end = (self._end + data[-EDGE_BYTES:])[-EDGE_BYTES:]

    def on_message_complete(self) -> None:
        if self._url == b"/v1/chat/completions":
            self._complete()
        elif self._url == b"/metrics":
            self._transport.write(answer(self._counts.page(), b"text/plain; version=0.0.4"))
        else:
            self._transport.write(PAGES.get(self._url, NOT_FOUND))

    def _complete(self) -> None:
        edges = self._start + self._end
        tokens = self._size // 4
        self._counts.tokens += tokens
        if STREAM.search(edges):
            end = LAST + (self._usage_event(tokens) if USAGE.search(edges) else b"") + DONE
            self._counts.running += 1
            self._transport.write(FIRST)
            left, gap_s = (sys.maxsize, ENDLESS_GAP_S) if ENDLESS.encode() in edges else (CHUNKS, GAP_S)
            self._timer = self._call_later(gap_s, self._next, left, gap_s, end)
        else:
            self._counts.finished += 1
            self._transport.write(completion(tokens))

    @staticmethod
    def _usage_event(tokens: int) -> bytes:
        whole = {**IDENTITY, "object": "chat.completion.chunk", "choices": [], "usage": usage(tokens, CHUNKS)}
        return framed(dump(whole))

    def _next(self, left: int, gap_s: float, end: bytes) -> None:
        """Send a token, and the next one a gap later: an engine that was late does not catch up in a burst."""
        if left:
            self._transport.write(TOKENS[left % len(TOKENS)])
            self._timer = self._call_later(gap_s, self._next, left - 1, gap_s, end)
        else:
            self._timer = None
            self._counts.running -= 1
            self._counts.finished += 1
            self._transport.write(end)


async def serve() -> None:
    loop = asyncio.get_running_loop()
    counts, ended = Counts(), asyncio.Event()
    server = await loop.create_server(lambda: Upstream(counts), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    loop.add_reader(0, ended.set)
    await ended.wait()


if __name__ == "__main__":
    uvloop.run(serve())
