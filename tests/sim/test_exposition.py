"""The metrics page is read with the reader that Prometheus users have, and by our own reader of vLLM's page."""

from prometheus_client.parser import text_string_to_metric_families

from concur_proxy.sim.context import Context
from concur_proxy.sim.engine import Engine
from concur_proxy.sim.exposition import render
from concur_proxy.sim.step import EngineConfig, Request, StepCost


def busy_engine() -> Engine:
    engine = Engine(EngineConfig(65, StepCost(0.02, 1e-4, 0, 0), max_num_seqs=1))
    for source in (1, 1, 2):
        context = Context(16)
        context.append(source, 120)
        engine.submit(Request(100, 20, context.hashes, 0.0))
    now = 0.0
    while engine.stats.generation_tokens < 25:
        now = engine.step(now).ended_at
    return engine


def samples(page: str) -> dict:
    found = {}
    for family in text_string_to_metric_families(page):
        assert family.documentation
        assert family.type != "unknown"
        for sample in family.samples:
            key = (
                sample.name,
                *sorted(item for item in sample.labels.items() if item[0] not in {"engine", "model_name"}),
            )
            assert key not in found
            found[key] = sample
    return found


def test_the_page_says_what_the_engine_counts():
    found = samples(render(busy_engine(), "tiny", 12.5))

    def value(name, **labels):
        return found[(name, *sorted(labels.items()))].value

    assert value("vllm:num_requests_running") == 1
    assert value("vllm:num_requests_waiting") == 1
    assert value("vllm:num_requests_waiting_by_reason", reason="capacity") == 1
    assert value("vllm:kv_cache_usage_perc") == 7 / 64
    assert value("vllm:prefix_cache_queries_total") == 200
    assert value("vllm:prefix_cache_hits_total") == 96
    assert value("vllm:prompt_tokens_total") == 200
    assert value("vllm:generation_tokens_total") == 25
    assert value("vllm:iteration_tokens_total_count") == 25
    assert value("vllm:iteration_tokens_total_sum") == 104 + 25
    assert value("vllm:iteration_tokens_total_bucket", le="1.0") == 23
    assert value("vllm:iteration_tokens_total_bucket", le="+Inf") == 25
    assert value("vllm:time_to_first_token_seconds_count") == 2
    assert value("vllm:request_success_total", finished_reason="length") == 1
    assert value("vllm:num_preemptions_total") == 0
    assert value("process_start_time_seconds") == 12.5
    config = next(sample for key, sample in found.items() if key[0] == "vllm:cache_config_info")
    assert (config.labels["num_gpu_blocks"], config.labels["block_size"]) == ("65", "16")
    assert config.labels["kv_cache_size_tokens"] == str(65 * 16)


def test_every_series_names_model_and_engine_whatever_the_models_name():
    name = 'a "quoted"\\ name'
    for family in text_string_to_metric_families(render(busy_engine(), name, 0.0)):
        for sample in family.samples:
            if sample.name not in {"vllm:cache_config_info", "process_start_time_seconds"}:
                assert (sample.labels["model_name"], sample.labels["engine"]) == (name, "0")


def test_buckets_are_cumulative():
    for family in text_string_to_metric_families(render(busy_engine(), "tiny", 0.0)):
        if family.type == "histogram":
            buckets = [sample.value for sample in family.samples if sample.name.endswith("_bucket")]
            count = next(sample.value for sample in family.samples if sample.name.endswith("_count"))
            assert buckets == sorted(buckets)
            assert buckets[-1] == count
