"""Backends by hand: take one in, let it go, drain it. What is changed here is forgotten at the next start."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from concur_proxy.admin.schemas import json_body, schema_of
from concur_proxy.config import BackendSettings
from concur_proxy.config.problems import describe
from concur_proxy.errors import BackendNotFoundError, InvalidSettingError

ReadJson = Callable[[Request], Awaitable[Any]]


class BackendsPort(Protocol):
    """What the running proxy does. All calls return at once."""

    def add_backend(self, settings: BackendSettings) -> None:
        """Take a backend in; raise ``InvalidSettingError`` where there is one of its name or URL already."""
        ...

    def remove_backend(self, name: str) -> bool:
        """Let a backend go when what runs there has ended; False where there is none of that name.

        Raises ``InvalidSettingError`` for one that a file, DNS or Kubernetes names: it would come back.
        """
        ...

    def drain_backend(self, name: str, *, drained: bool) -> bool:
        """Let no more turns go to a backend, or let them again; False where there is none of that name."""
        ...


class BackendState(BaseModel):
    """What was done. ``GET /concur/status`` tells how it goes on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    state: str = Field(description="added, leaving, draining, or active.")


def add_backends(managed: APIRouter, port: BackendsPort, read_json: ReadJson) -> None:
    """Add the calls to a router whose callers may manage the proxy."""

    @managed.post("/concur/backends", status_code=201, openapi_extra=json_body(schema_of(BackendSettings)))
    async def add(request: Request) -> BackendState:
        """Take a backend in, with the keys that it has in the configuration; it takes turns when it is healthy."""
        settings = read_backend(await read_json(request))
        port.add_backend(settings)
        return BackendState(name=settings.id, state="added")

    @managed.delete("/concur/backends/{name:path}", status_code=202)
    async def remove(name: str) -> BackendState:
        """Let a backend go: it takes no more turns, finishes those that run, and is forgotten."""
        return _done(name, "leaving", found=port.remove_backend(name))

    @managed.post("/concur/backends/{name:path}/drain")
    async def drain(name: str) -> BackendState:
        """Let no more turns go to a backend; those that run end by themselves, its sessions move."""
        return _done(name, "draining", found=port.drain_backend(name, drained=True))

    @managed.post("/concur/backends/{name:path}/undrain")
    async def undrain(name: str) -> BackendState:
        """Let turns go to a backend again."""
        return _done(name, "active", found=port.drain_backend(name, drained=False))


def read_backend(body: Any) -> BackendSettings:
    """Check a backend's settings, a mapping or a bare URL; raise ``InvalidSettingError`` with all that is wrong."""
    try:
        return BackendSettings.model_validate(body)
    except ValidationError as error:
        problems = (describe(detail, None, root=BackendSettings) for detail in error.errors())
        raise InvalidSettingError("; ".join(problems)) from None


def _done(name: str, state: str, *, found: bool) -> BackendState:
    if not found:
        raise BackendNotFoundError(f"There is no backend {name!r}; GET /concur/status lists them.", param="name")
    return BackendState(name=name, state=state)
