"""An engine's state as vLLM 0.33 prints it on ``/metrics``: the same names, labels and meanings."""

from __future__ import annotations

from collections.abc import Iterator

from concur_proxy.sim.engine import Engine
from concur_proxy.sim.stats import Histogram


def render(engine: Engine, model: str, started_at: float) -> str:
    """The page. ``started_at``: wall-clock seconds when the process started."""
    return "\n".join(_Page(engine, model).lines(started_at)) + "\n"


class _Page:
    def __init__(self, engine: Engine, model: str) -> None:
        self.engine = engine
        escaped = model.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        self.labels = f'engine="0",model_name="{escaped}"'

    def lines(self, started_at: float) -> Iterator[str]:
        yield from self._gauges()
        yield from self._counters()
        yield from self._histograms()
        yield from self._cache_config()
        yield from _described("process_start_time_seconds", "gauge", "Start of the process since the epoch.")
        yield f"process_start_time_seconds {started_at}"

    def _gauges(self) -> Iterator[str]:
        engine = self.engine
        yield from self._plain("num_requests_running", "gauge", "Requests in the running batch.", engine.running)
        yield from self._plain("num_requests_waiting", "gauge", "Requests waiting to be processed.", engine.waiting)
        by_reason = {"capacity": engine.waiting, "deferred": 0}
        yield from self._split("num_requests_waiting_by_reason", "gauge", "Waiting requests.", "reason", by_reason)
        awake = {"awake": 1, "weights_offloaded": 0, "discard_all": 0}
        yield from self._split("engine_sleep_state", "gauge", "Whether the engine is awake.", "sleep_state", awake)
        yield from self._plain("kv_cache_usage_perc", "gauge", "KV cache usage, 1 = all of it.", engine.pool.usage)

    def _counters(self) -> Iterator[str]:
        stats = self.engine.stats
        for name, text, value in (
            ("prefix_cache_queries", "Tokens looked up in the prefix cache.", stats.prefix_queries),
            ("prefix_cache_hits", "Tokens found in the prefix cache.", stats.prefix_hits),
            ("num_preemptions", "Requests preempted.", stats.preemptions),
            ("prompt_tokens", "Prompt tokens processed.", stats.prompt_tokens),
            ("prompt_tokens_cached", "Prompt tokens that were cached.", stats.cached_tokens),
            ("generation_tokens", "Tokens generated.", stats.generation_tokens),
        ):
            yield from self._plain(f"{name}_total", "counter", text, value)
        ended = {reason.value: number for reason, number in stats.ended.items()} | {"abort": 0, "error": 0}
        yield from self._split("request_success_total", "counter", "Requests that ended.", "finished_reason", ended)
        turned_away = {"max_num_queued_reqs": stats.rejections}
        yield from self._split("admission_rejections_total", "counter", "Requests refused.", "reason", turned_away)

    def _histograms(self) -> Iterator[str]:
        stats = self.engine.stats
        for name, text, histogram in (
            ("iteration_tokens_total", "Tokens per engine step.", stats.iteration_tokens),
            ("time_to_first_token_seconds", "Arrival to first token.", stats.first_token_s),
            ("inter_token_latency_seconds", "Between two tokens of a request.", stats.gap_s),
            ("request_queue_time_seconds", "Arrival to first scheduling.", stats.queue_s),
            ("e2e_request_latency_seconds", "Arrival to last token.", stats.request_s),
        ):
            yield from self._histogram(name, text, histogram)

    def _cache_config(self) -> Iterator[str]:
        pool = self.engine.pool
        config = (
            f'block_size="{pool.block_size}",enable_prefix_caching="True",engine="0",'
            f'kv_cache_size_tokens="{pool.total * pool.block_size}",num_gpu_blocks="{pool.total}"'
        )
        yield from _described("vllm:cache_config_info", "gauge", "Size of the KV cache.")
        yield f"vllm:cache_config_info{{{config}}} 1.0"

    def _plain(self, name: str, kind: str, text: str, value: float) -> Iterator[str]:
        yield from _described(f"vllm:{name}", kind, text)
        yield f"vllm:{name}{{{self.labels}}} {float(value)}"

    def _split(self, name: str, kind: str, text: str, label: str, values: dict[str, int]) -> Iterator[str]:
        yield from _described(f"vllm:{name}", kind, text)
        for key, value in values.items():
            yield f'vllm:{name}{{{self.labels},{label}="{key}"}} {float(value)}'

    def _histogram(self, name: str, text: str, histogram: Histogram) -> Iterator[str]:
        yield from _described(f"vllm:{name}", "histogram", text)
        seen = 0
        for bound, number in zip((*histogram.bounds, "+Inf"), histogram.buckets, strict=True):
            seen += number
            yield f'vllm:{name}_bucket{{{self.labels},le="{bound}"}} {float(seen)}'
        yield f"vllm:{name}_count{{{self.labels}}} {float(histogram.count)}"
        yield f"vllm:{name}_sum{{{self.labels}}} {float(histogram.sum)}"


def _described(name: str, kind: str, text: str) -> tuple[str, str]:
    return f"# HELP {name} {text}", f"# TYPE {name} {kind}"
