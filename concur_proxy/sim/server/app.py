"""The embedded engine's HTTP interface: a small ASGI application, because every token passes through it."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import orjson

from concur_proxy import __version__
from concur_proxy.sim import calls, exposition, replies
from concur_proxy.sim.calls import ApiError, CallKind
from concur_proxy.sim.options import EngineOptions, deploy
from concur_proxy.sim.server.service import Job, Service

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

_JSON: Headers = [(b"content-type", b"application/json")]
_TEXT: Headers = [(b"content-type", b"text/plain; version=0.0.4; charset=utf-8")]
_EVENTS: Headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
_GENERATING = {"/v1/chat/completions": CallKind.CHAT, "/v1/completions": CallKind.TEXT}


class ClientGoneError(Exception):
    """The client left before its request was complete: nobody is there to be answered."""


def build_app(options: EngineOptions) -> EngineApp:
    """An ASGI application with lifespan. ConfigError where options and profile do not go together."""
    return EngineApp(options)


class EngineApp:
    """Routes, and the state of one server. The engine runs from lifespan startup to shutdown."""

    def __init__(self, options: EngineOptions) -> None:
        deployment = deploy(options)
        self._service = Service(options, deployment, time.monotonic)
        self._limits = calls.Limits(deployment.model, deployment.max_model_len, options.tool_calls)
        self._started_at = time.time()
        self._ids = itertools.count(1)
        self._pages: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
            "/v1/embeddings": ("POST", self._embeddings),
            "/v1/models": ("GET", self._models),
            "/tokenize": ("POST", self._tokenize),
            "/health": ("GET", lambda _: b""),
            "/version": ("GET", lambda _: orjson.dumps({"version": __version__})),
            "/metrics": ("GET", self._metrics),
            "/reset_prefix_cache": ("POST", self._reset),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            with suppress(ClientGoneError):
                await self._http(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        task = asyncio.create_task(self._service.driver.run())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await send({"type": "lifespan.shutdown.complete"})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._serve(scope, receive, send)
        except ApiError as error:
            await _reply(send, orjson.dumps(error.body()), error.status)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path in _GENERATING:
            _check_method(scope, "POST")
            await self._generate(_GENERATING[path], scope, receive, send)
            return
        if path not in self._pages:
            raise ApiError(404, f"There is nothing at {path}")
        method, page = self._pages[path]
        _check_method(scope, method)
        body = page(await _body(receive))
        await _reply(send, body, headers=_TEXT if path == "/metrics" else _JSON)

    async def _generate(self, kind: CallKind, scope: Scope, receive: Receive, send: Send) -> None:
        call = calls.parse(kind, await _body(receive), self._limits)
        job = self._service.start(call)
        gone = asyncio.ensure_future(_gone(receive))
        gone.add_done_callback(lambda _: job.close())
        answer_id = self._answer_id(kind, scope)
        envelope = replies.Envelope(answer_id, int(time.time()), self._limits.model, kind, call.include_usage)
        try:
            if call.stream:
                await _stream(job, envelope, call.choices, send)
            elif await job.finished():
                await _reply(send, orjson.dumps(envelope.whole(job.answers, job.usage(call.choices))))
        finally:
            gone.cancel()
            job.close()

    def _answer_id(self, kind: CallKind, scope: Scope) -> str:
        """Named after the client's request id where it has one, as vLLM does."""
        given = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1")
        return f"{'chatcmpl' if kind is CallKind.CHAT else 'cmpl'}-{given or f'{next(self._ids):016x}'}"

    def _embeddings(self, raw: bytes) -> bytes:
        """No engine time: embedding models run on engines of their own."""
        body = self._body_for_this_model(raw)
        base64 = body.get("encoding_format") == "base64"
        return orjson.dumps(replies.embeddings(calls.texts(body), self._limits.model, base64=base64))

    def _tokenize(self, raw: bytes) -> bytes:
        body = self._body_for_this_model(raw)
        return orjson.dumps(replies.tokenized(calls.texts(body), self._limits.max_model_len))

    def _models(self, _: bytes) -> bytes:
        limits = self._limits
        return orjson.dumps(replies.models(limits.model, limits.max_model_len, int(self._started_at)))

    def _metrics(self, _: bytes) -> bytes:
        return exposition.render(self._service.engine, self._limits.model, self._started_at).encode()

    def _reset(self, _: bytes) -> bytes:
        return orjson.dumps({"success": self._service.engine.reset_prefix_cache()})

    def _body_for_this_model(self, raw: bytes) -> dict[str, Any]:
        body = calls.json_object(raw)
        calls.check_model(body, self._limits)
        return body


def _check_method(scope: Scope, wanted: str) -> None:
    method = scope["method"]
    if method != wanted and not (wanted == "GET" and method == "HEAD"):
        raise ApiError(405, f"{scope['path']} takes {wanted}, not {method}")


async def _stream(job: Job, envelope: replies.Envelope, choices: int, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": _EVENTS})
    started: set[int] = set()
    async for news in job.progress():
        parts = []
        for item in news:
            if item.choice not in started:
                started.add(item.choice)
                parts.append(envelope.opening(item.choice))
            parts.append(envelope.part(item.choice, job.answers[item.choice], item.start, item.stop))
        await send({"type": "http.response.body", "body": b"".join(parts), "more_body": True})
    await send({"type": "http.response.body", "body": envelope.closing(job.usage(choices))})


async def _reply(send: Send, body: bytes, status: int = 200, headers: Headers = _JSON) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


async def _body(receive: Receive) -> bytes:
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
