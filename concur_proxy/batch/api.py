"""/v1/files and /v1/batches, as OpenAI's API has them. Whoever asks sees what belongs to its own API key."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

import orjson
from fastapi import FastAPI, Request, Response
from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse

from concur_proxy.auth.wall import CALLER
from concur_proxy.batch import objects, requests
from concur_proxy.batch.service import BatchService
from concur_proxy.batch.worker import Worker
from concur_proxy.errors import BatchOffError, BodyTooLargeError
from concur_proxy.gateway.headers import lowered

MAX_REQUEST_BYTES = 64 << 10
CLIENT_LEFT = 499
OFF = (
    "The Batch API is off here: set batch.store to a file (batch.store: batches.db in the configuration, or "
    "CONCUR_BATCH__STORE=batches.db) and start the proxy again."
)


def install_off(app: FastAPI) -> None:
    """Have the paths say how the API is switched on."""

    async def off() -> Response:
        raise BatchOffError(OFF)

    for path in ("/v1/files", "/v1/batches"):
        for below in (path, path + "/{rest:path}"):
            app.add_api_route(below, off, methods=["GET", "HEAD", "POST", "DELETE"])


def install(app: FastAPI, service: BatchService) -> None:
    """Add the paths to ``app``, which turns ConcurErrors into answers."""
    _add_files(app, service)
    _add_batches(app, service)


def _add_files(app: FastAPI, service: BatchService) -> None:
    files, run = service.files, service.worker.run

    async def create(request: Request) -> Response:
        kind, length = request.headers.get("content-type", ""), request.headers.get("content-length")
        owner, size = _owner(service, request), None if length is None else int(length)
        try:
            file = await service.upload(owner, kind, request.stream(), length=size)
        except ClientDisconnect:
            return Response(status_code=CLIENT_LEFT)
        return _json(objects.file_object(file))

    async def listing(request: Request) -> Response:
        query = request.query_params
        page = requests.page(query, default=10_000, most=10_000)
        rows = await run(files.listing, _owner(service, request), page, purpose=query.get("purpose"))
        return _json(objects.list_object(rows, page, objects.file_object))

    async def retrieve(request: Request, file: str) -> Response:
        return _json(objects.file_object(await run(files.find, _owner(service, request), file)))

    async def delete(request: Request, file: str) -> Response:
        await run(files.delete, _owner(service, request), file)
        return _json(objects.deleted(file))

    async def content(request: Request, file: str) -> Response:
        row = await run(files.find, _owner(service, request), file)
        name = f"attachment; filename*=UTF-8''{quote(row['filename'])}"
        headers = {"content-length": str(row["size"]), "content-disposition": name}
        return StreamingResponse(
            _stepwise(service.worker, files.pieces(row)), headers=headers, media_type="application/octet-stream"
        )

    app.add_api_route("/v1/files", create, methods=["POST"])
    app.add_api_route("/v1/files", listing, methods=["GET"])
    app.add_api_route("/v1/files/{file}", retrieve, methods=["GET"])
    app.add_api_route("/v1/files/{file}", delete, methods=["DELETE"])
    app.add_api_route("/v1/files/{file}/content", content, methods=["GET"])


def _add_batches(app: FastAPI, service: BatchService) -> None:
    batches, run = service.batches, service.worker.run

    async def create(request: Request) -> Response:
        peer = request.client.host if request.client is not None else ""
        identity = service.identity(_headers(request), peer, request.scope.get(CALLER))
        new = requests.new_batch(await _body(request), owner=_owner(service, request), identity=identity)
        row = await run(batches.create, new, now=service.clock())
        service.runner.wake()
        return _json(objects.batch_object(row))

    async def listing(request: Request) -> Response:
        page = requests.page(request.query_params, default=20, most=100)
        rows = await run(batches.listing, _owner(service, request), page)
        return _json(objects.list_object(rows, page, objects.batch_object))

    async def retrieve(request: Request, batch: str) -> Response:
        return _json(objects.batch_object(await run(batches.find, _owner(service, request), batch)))

    async def cancel(request: Request, batch: str) -> Response:
        row = await run(batches.cancel, _owner(service, request), batch, now=service.clock())
        service.runner.wake()
        return _json(objects.batch_object(row))

    app.add_api_route("/v1/batches", create, methods=["POST"])
    app.add_api_route("/v1/batches", listing, methods=["GET"])
    app.add_api_route("/v1/batches/{batch}", retrieve, methods=["GET"])
    app.add_api_route("/v1/batches/{batch}/cancel", cancel, methods=["POST"])


def _owner(service: BatchService, request: Request) -> str:
    return service.owner(_headers(request), request.scope.get(CALLER))


def _headers(request: Request) -> Mapping[str, str]:
    return lowered(request.headers.raw)


async def _body(request: Request) -> bytes:
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_REQUEST_BYTES:
            raise BodyTooLargeError(f"The body is larger than {MAX_REQUEST_BYTES} bytes.")
    return body


async def _stepwise(worker: Worker, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Take each step on the store's thread."""
    step: Callable[[Iterator[bytes], bytes], bytes] = next
    while piece := await worker.run(step, pieces, b""):
        yield piece


def _json(content: Any) -> Response:
    return Response(orjson.dumps(content), media_type="application/json")
