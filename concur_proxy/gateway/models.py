"""``GET /v1/models`` over all backends: every field as the engines send it, each model once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from concur_proxy.gateway.headers import HeaderList
from concur_proxy.gateway.upstream import UpstreamPool
from concur_proxy.model import BackendId

TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class ModelList:
    """What the engines answered together. ``status`` is 200 as soon as one of them did; None: none answered at all."""

    status: int | None
    body: Mapping[str, Any]


def merge(lists: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one list of models: fields of the first list and, per id, the first entry that names it."""
    merged: dict[str, Any] = {"object": "list"}
    models: dict[str, Any] = {}
    for one in lists:
        merged = {**one, **merged}
        for model in one.get("data") or ():
            if isinstance(model, dict):
                models.setdefault(str(model.get("id")), model)
    return {**merged, "data": list(models.values())}


def allowed(found: ModelList, may_use: Callable[[str], bool]) -> ModelList:
    """Return the list without the models that somebody may not use."""
    if found.status != 200:
        return found
    data = [model for model in found.body["data"] if may_use(str(model.get("id")))]
    return ModelList(found.status, {**found.body, "data": data})


async def ask_all(pools: Mapping[BackendId, UpstreamPool], headers: HeaderList) -> ModelList:
    """Ask every backend for its models, with the client's ``headers`` (its key), and merge the answers."""
    answers = await asyncio.gather(*(_ask(pool, headers) for pool in pools.values()))
    good = [body for status, body in answers if status == 200]
    if good:
        return ModelList(200, merge(good))
    status, body = next((answer for answer in answers if answer[0] is not None), (None, {}))
    return ModelList(status, body)


async def _ask(pool: UpstreamPool, headers: HeaderList) -> tuple[int | None, Mapping[str, Any]]:
    try:
        async with asyncio.timeout(TIMEOUT_S):
            head, body = await pool.fetch("/v1/models", headers)
        parsed = orjson.loads(body)
    except (OSError, TimeoutError, orjson.JSONDecodeError):
        return None, {}
    return head.status, parsed if isinstance(parsed, dict) else {}
