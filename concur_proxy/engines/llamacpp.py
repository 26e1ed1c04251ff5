"""llama.cpp's ``/metrics`` (404 without ``--metrics``): load only, no share of KV in use."""

from __future__ import annotations

from concur_proxy.engines.base import Engine, EngineSample, counter, total
from concur_proxy.engines.exposition import Page


def read(page: Page, at: float) -> EngineSample:
    return EngineSample(
        at=at,
        running=total(page, "llamacpp:requests_processing"),
        waiting=total(page, "llamacpp:requests_deferred"),
        generation_tokens=counter(page, "llamacpp:tokens_predicted"),
        steps=counter(page, "llamacpp:n_decode"),
    )


ENGINE: Engine = Engine(
    kind="llamacpp", prefixes=("llamacpp:",), read=read, enable_hint="start llama-server with --metrics"
)
