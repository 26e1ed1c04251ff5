"""What a proxy reads of an engine: one sample with vLLM's meanings, noise where a scenario wants it."""

from __future__ import annotations

from random import Random

from concur_proxy.engines.base import EngineSample
from concur_proxy.sim.runner import Runner
from concur_proxy.sim.scenario import SignalsPart


def read(runner: Runner, signals: SignalsPart, capacity: float, random: Random, *, now: float) -> EngineSample:
    """Read an engine as its metrics page would tell. ``capacity``: tokens of KV that it says it has."""
    engine, stats = runner.engine, runner.engine.stats
    usage = runner.usage
    if signals.usage_noise:
        usage = min(1.0, max(0.0, usage + random.gauss(0.0, signals.usage_noise)))
    return EngineSample(
        at=now,
        running=float(engine.running),
        waiting=float(engine.waiting),
        kv_usage_max=usage,
        kv_usage_mean=usage,
        prompt_tokens=float(stats.prompt_tokens),
        generation_tokens=float(stats.generation_tokens),
        prefix_queries=float(stats.prefix_queries),
        prefix_hits=float(stats.prefix_hits),
        preemptions=float(stats.preemptions),
        requests_finished=float(sum(stats.ended.values())),
        steps=float(stats.iteration_tokens.count),
        scheduled_tokens=stats.iteration_tokens.sum,
        rejections=float(stats.rejections),
        capacity_tokens=capacity if signals.capacity else None,
        block_size=runner.config.block_size,
        started_at=runner.started_at,
    )
