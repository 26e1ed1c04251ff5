"""LMDeploy's ``/metrics``."""

from __future__ import annotations

from concur_proxy.engines.base import Engine, EngineSample, readings, total, usage
from concur_proxy.engines.exposition import Page


def read(page: Page, at: float) -> EngineSample:
    fullest, mean = usage(readings(page, "lmdeploy:gpu_cache_usage_perc"), {})
    return EngineSample(
        at=at,
        running=total(page, "lmdeploy:num_requests_running"),
        waiting=total(page, "lmdeploy:num_requests_waiting"),
        kv_usage_max=fullest,
        kv_usage_mean=mean,
        started_at=total(page, "process_start_time_seconds"),
    )


ENGINE: Engine = Engine(kind="lmdeploy", prefixes=("lmdeploy:",), read=read)
