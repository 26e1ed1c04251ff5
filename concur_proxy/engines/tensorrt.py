"""TensorRT-LLM's ``/prometheus/metrics``: its hit rate is a gauge since the start, so turn records stand in for it."""

from __future__ import annotations

from concur_proxy.engines.base import Engine, EngineSample, readings, total, usage
from concur_proxy.engines.exposition import Page


def read(page: Page, at: float) -> EngineSample:
    fullest, mean = usage(readings(page, "trtllm_kv_cache_utilization"), {})
    blocks, size = total(page, "trtllm_kv_cache_max_blocks"), total(page, "trtllm_kv_cache_tokens_per_block")
    return EngineSample(
        at=at,
        running=total(page, "trtllm_num_requests_running"),
        waiting=total(page, "trtllm_num_requests_waiting"),
        kv_usage_max=fullest,
        kv_usage_mean=mean,
        capacity_tokens=blocks * size if blocks and size else None,
        block_size=int(size) if size else None,
        started_at=total(page, "process_start_time_seconds"),
    )


ENGINE: Engine = Engine(
    kind="tensorrt",
    prefixes=("trtllm_",),
    metrics_path="/prometheus/metrics",
    read=read,
)
