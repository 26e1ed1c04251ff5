"""SGLang's ``/metrics`` (needs ``--enable-metrics``) and its JSON ``/v1/loads``, which needs no flag.

The gauge ``cache_hit_rate`` is the last prefill batch only and ``num_retracted_reqs`` is reset, so neither is used.
Gauges move at prefills and every 40 decode steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from concur_proxy.engines.base import Engine, EngineSample, Reading, counter, readings, total, usage
from concur_proxy.engines.exposition import Page

LOADS_PATH = "/v1/loads?include=core"
INFO_PATHS = ("/server_info", "/get_server_info")
"""Where the capacity stands when the metrics do not tell it; the second is the older name."""


def read(page: Page, at: float) -> EngineSample:
    capacity = {reading.pool: reading.value for reading in readings(page, *_names("max_total_num_tokens"))}
    fullest, mean = usage(readings(page, *_names("token_usage")), capacity)
    page_size = total(page, *_names("page_size"))
    return EngineSample(
        at=at,
        running=total(page, *_names("num_running_reqs")),
        waiting=total(page, *_names("num_queue_reqs")),
        kv_usage_max=fullest,
        kv_usage_mean=mean,
        prompt_tokens=counter(page, *_names("prompt_tokens")),
        generation_tokens=counter(page, *_names("generation_tokens")),
        prefix_queries=counter(page, *_names("prompt_tokens")),
        prefix_hits=counter(page, *_names("cached_tokens")),
        preemptions=counter(page, *_names("num_retracted_requests")),
        requests_finished=counter(page, *_names("num_requests")),
        steps=counter(page, *_names("cuda_graph_passes")),
        scheduled_tokens=_computed_tokens(page),
        evictable_tokens=total(page, *_names("kv_evictable_tokens")),
        capacity_tokens=total(page, *_names("max_total_num_tokens")),
        block_size=int(page_size) if page_size else None,
        started_at=total(page, "process_start_time_seconds"),
    )


def read_loads(document: Any, at: float) -> EngineSample | None:
    """Return the sample of a ``/v1/loads`` answer, one entry per data-parallel rank; None where it is not one."""
    loads = document.get("loads") if isinstance(document, Mapping) else None
    if not isinstance(loads, list) or not loads or not all(isinstance(load, Mapping) for load in loads):
        return None
    capacity = {str(rank): size for rank, load in enumerate(loads) if (size := _field(load, "max_total_num_tokens"))}
    shares = [
        Reading(share, {"dp_rank": str(rank)})
        for rank, load in enumerate(loads)
        if (share := _field(load, "token_usage")) is not None
    ]
    fullest, mean = usage(shares, capacity)
    return EngineSample(
        at=at,
        running=_sum(loads, "num_running_reqs"),
        waiting=_sum(loads, "num_waiting_reqs"),
        kv_usage_max=fullest,
        kv_usage_mean=mean,
        capacity_tokens=_sum(loads, "max_total_num_tokens"),
    )


def read_capacity(document: Any) -> float | None:
    """Return the KV tokens that ``/server_info`` tells: of one rank, times the data-parallel ranks."""
    if not isinstance(document, Mapping):
        return None
    tokens, ranks = _field(document, "max_total_num_tokens"), _field(document, "dp_size")
    return tokens * max(1.0, ranks or 1.0) if tokens else None


def _names(name: str) -> tuple[str, str]:
    """The colon is the rule; the underscore stands where a collector has rewritten the names."""
    return f"sglang:{name}", f"sglang_{name}"


def _computed_tokens(page: Page) -> float | None:
    """Sum the tokens that went through a forward pass; those found in the cache are counted beside them."""
    modes = readings(page, *(f"{name}_total" for name in _names("realtime_tokens")))
    values = [reading.value for reading in modes if reading.labels.get("mode") in ("prefill_compute", "decode")]
    return sum(values) if values and all(map(math.isfinite, values)) else None


def _field(load: Mapping[str, Any], name: str) -> float | None:
    value = load.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _sum(loads: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [_field(load, name) for load in loads]
    return sum((value for value in values if value is not None), 0.0) if None not in values else None


ENGINE: Engine = Engine(
    kind="sglang",
    prefixes=("sglang:", "sglang_"),
    read=read,
    enable_hint="start SGLang with --enable-metrics",
)
