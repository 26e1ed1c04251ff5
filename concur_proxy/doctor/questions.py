"""Asks one engine everything that the rules go by, from where the doctor runs."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from concur_proxy.control.health import HEALTH_PATH, MODELS_PATH, read_models
from concur_proxy.control.ports import Fetch, Reply, Unreached
from concur_proxy.control.probe import EngineProbe
from concur_proxy.control.reading import document
from concur_proxy.control.target import EngineTarget
from concur_proxy.doctor.facts import EngineFacts, Limits
from concur_proxy.doctor.patience import closes_after
from concur_proxy.doctor.warmth import warmth
from concur_proxy.engines.base import EngineSample, readings
from concur_proxy.engines.exposition import Unreadable, read_page
from concur_proxy.engines.sglang import INFO_PATHS

TIMEOUT_S = 5.0
SAMPLES, APART_S = 3, 1.0
"""Reads of the metrics, and the time between them: what waits in one moment only says nothing."""


async def ask_engine(
    target: EngineTarget, fetch: Fetch, *, keepalive_s: float, sends: bool, apart_s: float = APART_S
) -> EngineFacts:
    """Return what the engine tells. ``sends``: two tiny requests may be sent; ``keepalive_s``: the proxy's own."""
    facts = EngineFacts(name=target.backend, url=target.base_url, kind=target.kind)
    reply = await fetch(target, HEALTH_PATH, timeout_s=TIMEOUT_S)
    if isinstance(reply, Unreached):
        return replace(facts, unreachable=reply.reason)
    facts = await _models(facts, target, fetch)
    if sends and facts.model is not None:
        told = await warmth(target.base_url, facts.model, headers=_headers(target), salt=secrets.token_hex(8))
        facts = replace(facts, warmth=told)
    metrics, closes, limits = await asyncio.gather(
        _metrics(target, fetch, apart_s),
        closes_after(target.base_url, longest_s=keepalive_s),
        _limits(target, fetch),
    )
    kind, problem, samples = metrics
    return replace(
        facts,
        kind=kind or facts.kind,
        metrics_problem=problem,
        samples=samples,
        closes_after_s=closes,
        limits=limits,
    )


def _headers(target: EngineTarget) -> Mapping[str, str]:
    return {"authorization": f"Bearer {target.api_key}"} if target.api_key else {}


async def _models(facts: EngineFacts, target: EngineTarget, fetch: Fetch) -> EngineFacts:
    models = read_models(await fetch(target, MODELS_PATH, timeout_s=TIMEOUT_S), target)
    if isinstance(models, str):
        return replace(facts, models_problem=models)
    return replace(facts, model=str(models[0]["id"]) if models else None)


async def _metrics(
    target: EngineTarget, fetch: Fetch, apart_s: float
) -> tuple[str | None, str | None, tuple[EngineSample, ...]]:
    probe = EngineProbe(target, fetch, timeout_s=TIMEOUT_S)
    samples: list[EngineSample] = []
    for number in range(SAMPLES):
        if number:
            await asyncio.sleep(apart_s)
        scrape = await probe.scrape(clock=time.monotonic)
        if scrape.sample is None:
            return scrape.kind, scrape.problem or "no metrics are read of this engine", ()
        samples.append(scrape.sample)
    return probe.kind, None, tuple(samples)


async def _limits(target: EngineTarget, fetch: Fetch) -> Limits:
    """Read what the engine says of itself: vLLM beside its metrics, SGLang (and vLLM's developers) at /server_info."""
    page = await fetch(target, target.metrics_url or "/metrics", timeout_s=TIMEOUT_S)
    caching = _caching_label(page.text) if isinstance(page, Reply) and page.status == 200 else None
    for path in INFO_PATHS:
        reply = await fetch(target, f"{path}?config_format=json", timeout_s=TIMEOUT_S)
        if isinstance(reply, Reply) and reply.status == 200 and (told := document(reply.text)) is not None:
            return read_info(told, caching=caching)
    return Limits(prefix_caching=caching)


def _caching_label(text: str) -> bool | None:
    page = read_page(text)
    if isinstance(page, Unreadable):
        return None
    labels = [reading.labels.get("enable_prefix_caching") for reading in readings(page, "vllm:cache_config_info")]
    return None if not labels or None in labels else all(label == "True" for label in labels)


def read_info(told: Any, *, caching: bool | None) -> Limits:
    """Return what a ``/server_info`` says, at whatever depth; ``caching``: what the metrics have said already."""
    found = dict(_named(told, depth=6))
    radix_off = found.get("disable_radix_cache")
    if caching is None and isinstance(radix_off, bool):
        caching = not radix_off
    most = found.get("max_num_seqs") or found.get("max_running_requests")
    return Limits(caching, most if isinstance(most, int) and most > 0 else None)


NAMES = ("disable_radix_cache", "max_num_seqs", "max_running_requests")


def _named(told: Any, *, depth: int) -> list[tuple[str, Any]]:
    if not isinstance(told, Mapping) or depth == 0:
        return []
    inner = [pair for value in told.values() for pair in _named(value, depth=depth - 1)]
    return inner + [(name, told[name]) for name in NAMES if told.get(name) is not None]
