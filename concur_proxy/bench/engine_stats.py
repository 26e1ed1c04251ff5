"""Asks an engine itself what a run has cost it: its counters before and after, and an empty cache to begin with."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import orjson

from concur_proxy.bench.client import Client
from concur_proxy.engines.base import EngineSample
from concur_proxy.engines.exposition import Unreadable, read_page
from concur_proxy.engines.registry import ENGINES, detect
from concur_proxy.errors import BackendError

RESET_PATH = "/reset_prefix_cache"
RESET_TRIES = 50
RESET_INTERVAL_S = 0.1
QUIET_PERIOD_S = 0.3
"""Engines count a request's tokens shortly after its answer."""


@dataclass(frozen=True, slots=True)
class EngineDelta:
    """What happened between two samples; None where the engine does not tell."""

    prefix_hits: float | None = None
    """Prompt tokens that were found in the cache."""
    prefix_queries: float | None = None
    """Prompt tokens that were looked for."""
    prompt_tokens: float | None = None
    generation_tokens: float | None = None
    preemptions: float | None = None


class EngineStats:
    """One engine's counters. It never fails a run: what cannot be read is unknown."""

    def __init__(self, url: str) -> None:
        self._client = Client(url, keepalive_s=1.0)
        self._before: EngineSample | None = None

    async def begin(self) -> None:
        self._before = await self._sample()

    async def end(self) -> EngineDelta:
        """Return what happened since ``begin``."""
        await asyncio.sleep(QUIET_PERIOD_S)
        after = await self._sample()
        if self._before is None or after is None:
            return EngineDelta()
        return delta(self._before, after)

    async def reset_cache(self) -> None:
        """Empty the prefix cache. BackendError where the engine does not do it, for example because it is busy."""
        for _ in range(RESET_TRIES):
            if await self._reset():
                return
            await asyncio.sleep(RESET_INTERVAL_S)
        raise BackendError(f"{self._client.base_url}{RESET_PATH} says that the cache is in use")

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _reset(self) -> bool:
        try:
            reply = await self._client.request("POST", RESET_PATH, body=b"")
        except (OSError, TimeoutError) as error:
            raise BackendError(f"{self._client.base_url} does not answer: {error}") from error
        if reply.status >= 300:
            raise BackendError(
                f"{self._client.base_url}{RESET_PATH} answers {reply.status}; "
                "vLLM has it when started with VLLM_SERVER_DEV_MODE=1"
            )
        return _says_yes(reply.body)

    async def _sample(self) -> EngineSample | None:
        try:
            reply = await self._client.request("GET", "/metrics")
        except (OSError, TimeoutError):
            return None
        page = read_page(reply.body.decode(errors="replace"))
        kind = None if isinstance(page, Unreadable) else detect(page)
        read = ENGINES[kind].read if kind else None
        return None if isinstance(page, Unreadable) or read is None else read(page, 0.0)


def delta(before: EngineSample, after: EngineSample) -> EngineDelta:
    """Return the growth of each counter; unknown where one went back, as after a restart."""

    def growth(name: str) -> float | None:
        old, new = getattr(before, name), getattr(after, name)
        return None if old is None or new is None or new < old else new - old

    return EngineDelta(
        prefix_hits=growth("prefix_hits"),
        prefix_queries=growth("prefix_queries"),
        prompt_tokens=growth("prompt_tokens"),
        generation_tokens=growth("generation_tokens"),
        preemptions=growth("preemptions"),
    )


def _says_yes(body: bytes) -> bool:
    """Old versions of vLLM answer with nothing at all."""
    try:
        return bool(orjson.loads(body).get("success", True))
    except (ValueError, AttributeError):
        return True
