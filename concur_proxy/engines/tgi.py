"""Text Generation Inference's ``/metrics``: load only, no share of KV in use."""

from __future__ import annotations

from concur_proxy.engines.base import Engine, EngineSample, total
from concur_proxy.engines.exposition import Page


def read(page: Page, at: float) -> EngineSample:
    return EngineSample(
        at=at,
        running=total(page, "tgi_batch_current_size"),
        waiting=total(page, "tgi_queue_size"),
    )


ENGINE: Engine = Engine(kind="tgi", prefixes=("tgi_",), read=read)
