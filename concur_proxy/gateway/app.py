"""The paths that are not forwarded: health, the merged list of models, and what the runtime mounts besides."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import orjson
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from concur_proxy import __version__
from concur_proxy.errors import (
    ConcurError,
    MethodNotAllowedError,
    ModelNotFoundError,
    NoBackendError,
    UnknownPathError,
)
from concur_proxy.gateway.headers import HeaderList
from concur_proxy.gateway.models import ModelList
from concur_proxy.gateway.paths import Shape
from concur_proxy.gateway.replies import error_json, retry_headers

CREDENTIALS = frozenset({b"authorization", b"x-api-key"})
READ = ["GET", "HEAD"]


@dataclass(frozen=True, slots=True)
class Readiness:
    """``detail`` goes into the answer as it is."""

    ready: bool
    detail: dict[str, object]


def create_app(*, models: Callable[[HeaderList], Awaitable[ModelList]], readiness: Callable[[], Readiness]) -> FastAPI:
    """Return the application. ``models`` gets the client's credentials; ``readiness`` must not block."""
    app = FastAPI(
        title="concur-proxy",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,  # it would lead to whatever host the request names
    )
    _add_health(app, readiness)
    _add_models(app, models)
    app.add_exception_handler(ConcurError, _on_error)
    app.add_exception_handler(HTTPException, _on_http_error)
    return app


def _add_health(app: FastAPI, readiness: Callable[[], Readiness]) -> None:
    async def livez() -> Response:
        """The process answers; says nothing about engines."""
        return _json({"status": "alive"})

    async def readyz() -> Response:
        """A backend is up and new turns are taken."""
        state = readiness()
        return _json({"status": "ready" if state.ready else "not ready", **state.detail}, 200 if state.ready else 503)

    app.add_api_route("/livez", livez, methods=READ)
    app.add_api_route("/readyz", readyz, methods=READ)
    app.add_api_route("/health", readyz, methods=READ)


def _add_models(app: FastAPI, models: Callable[[HeaderList], Awaitable[ModelList]]) -> None:
    async def answer(request: Request) -> ModelList:
        found = await models([(name, value) for name, value in request.headers.raw if name in CREDENTIALS])
        if found.status is None:
            raise NoBackendError("No backend answered.", retry_after_s=2.0)
        return found

    async def list_models(request: Request) -> Response:
        found = await answer(request)
        return _json(found.body, found.status or 200)

    async def one_model(request: Request, model: str) -> Response:
        found = await answer(request)
        if found.status != 200:
            return _json(found.body, found.status or 200)
        for entry in found.body["data"]:
            if entry.get("id") == model:
                return _json(entry)
        raise ModelNotFoundError(f"The model {model!r} is not served here.", param="model")

    app.add_api_route("/v1/models", list_models, methods=READ)
    app.add_api_route("/v1/models/{model:path}", one_model, methods=READ)


def _json(content: object, status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, media_type="application/json")


async def _on_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ConcurError)
    headers = {name.decode(): value.decode() for name, value in retry_headers(error)}
    return Response(error_json(error, Shape.OPENAI), error.status, headers, "application/json")


WHERE_TO = "Base URLs of OpenAI clients end in /v1; the live page is at /concur/ui."


async def _on_http_error(request: Request, error: Exception) -> Response:
    """Give unknown paths and wrong methods the shape that clients of the API read."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        ours: ConcurError = MethodNotAllowedError(f"{request.method} is not for this path.")
    elif error.status_code == 404:
        ours = UnknownPathError(f"{request.url.path} is not served here. {WHERE_TO}")
    else:
        ours = ConcurError(str(error.detail))
    return Response(error_json(ours, Shape.OPENAI), error.status_code, error.headers, "application/json")
