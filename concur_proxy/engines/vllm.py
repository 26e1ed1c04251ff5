"""vLLM's ``GET /metrics``: one series per data-parallel engine, read from the source of 0.33 and scrapes of 0.32."""

from __future__ import annotations

import math

from concur_proxy.engines.base import Engine, EngineSample, Reading, add, counter, readings, total, usage
from concur_proxy.engines.exposition import Page


def read(page: Page, at: float) -> EngineSample:
    pools = readings(page, "vllm:cache_config_info")
    capacity = capacity_by_engine(pools)
    fullest, mean = usage(readings(page, "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"), capacity)
    return EngineSample(
        at=at,
        running=total(page, "vllm:num_requests_running"),
        waiting=total(page, "vllm:num_requests_waiting"),
        kv_usage_max=fullest,
        kv_usage_mean=mean,
        prompt_tokens=counter(page, "vllm:prompt_tokens"),
        generation_tokens=counter(page, "vllm:generation_tokens"),
        prefix_queries=counter(page, "vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries"),
        # A token that comes back from offloaded KV needs no prefill either; it missed in the first lookup.
        prefix_hits=add(
            counter(page, "vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits"),
            counter(page, "vllm:external_prefix_cache_hits"),
        ),
        preemptions=counter(page, "vllm:num_preemptions"),
        requests_finished=counter(page, "vllm:request_success"),
        steps=total(page, "vllm:iteration_tokens_total_count"),
        scheduled_tokens=total(page, "vllm:iteration_tokens_total_sum"),
        rejections=counter(page, "vllm:admission_rejections"),
        capacity_tokens=sum(capacity.values()) if capacity else None,
        block_size=_block_size(pools),
        asleep=_asleep(page),
        started_at=total(page, "process_start_time_seconds"),
    )


def capacity_by_engine(pools: list[Reading]) -> dict[str, float]:
    """Return the KV tokens of each engine.

    ``kv_cache_size_tokens`` is per engine. Older versions only tell blocks times block size, and there a front end
    of several engines has already summed their blocks into the one configuration that it prints for each of them.
    """
    shared = len({_without_engine(pool) for pool in pools}) == 1
    capacity: dict[str, float] = {}
    for pool in pools:
        tokens = _number(pool.labels.get("kv_cache_size_tokens"))
        if tokens is None:
            blocks, size = _number(pool.labels.get("num_gpu_blocks")), _number(pool.labels.get("block_size"))
            if blocks is None or size is None:
                continue
            tokens = blocks * size / (len(pools) if shared else 1)
        capacity[pool.pool] = capacity.get(pool.pool, 0.0) + tokens
    return capacity


def _without_engine(pool: Reading) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(item for item in pool.labels.items() if item[0] != "engine"))


def _block_size(pools: list[Reading]) -> int | None:
    # The largest: only whole blocks hit, so it is the safe rounding for all engines of the target.
    sizes = [size for pool in pools if (size := _number(pool.labels.get("block_size"))) is not None]
    return int(max(sizes)) if sizes else None


def _asleep(page: Page) -> bool | None:
    awake = [state for state in readings(page, "vllm:engine_sleep_state") if state.labels.get("sleep_state") == "awake"]
    return min(state.value for state in awake) == 0 if awake else None


def _number(text: str | None) -> float | None:
    """Read a label that holds a number, or ``None`` as Python prints it."""
    try:
        value = float(text) if text else 0.0
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None


ENGINE: Engine = Engine(
    kind="vllm",
    prefixes=("vllm:",),
    read=read,
    enable_hint="start vLLM without --disable-log-stats",
)
