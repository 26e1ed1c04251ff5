from concur_proxy.engines import llamacpp, lmdeploy, plain, tensorrt, tgi
from concur_proxy.engines.base import EngineSample
from tests.engines.pages import page


def test_tensorrt():
    text = (
        "trtllm_kv_cache_utilization 0.5\ntrtllm_num_requests_running 3\ntrtllm_num_requests_waiting 2\n"
        "trtllm_kv_cache_max_blocks 100\ntrtllm_kv_cache_tokens_per_block 32\n"
    )
    assert tensorrt.read(page(text), 1.0) == EngineSample(
        at=1.0, running=3, waiting=2, kv_usage_max=0.5, kv_usage_mean=0.5, capacity_tokens=3200, block_size=32
    )
    assert tensorrt.ENGINE.metrics_path == "/prometheus/metrics"


def test_lmdeploy():
    text = "lmdeploy:gpu_cache_usage_perc 0.25\nlmdeploy:num_requests_running 3\nlmdeploy:num_requests_waiting 2\n"
    assert lmdeploy.read(page(text), 1.0) == EngineSample(
        at=1.0, running=3, waiting=2, kv_usage_max=0.25, kv_usage_mean=0.25
    )


def test_llamacpp():
    text = "llamacpp:requests_processing 3\nllamacpp:requests_deferred 2\nllamacpp:tokens_predicted_total 70\n"
    assert llamacpp.read(page(text), 1.0) == EngineSample(at=1.0, running=3, waiting=2, generation_tokens=70)


def test_tgi():
    text = "tgi_batch_current_size 3\ntgi_queue_size 2\n"
    assert tgi.read(page(text), 1.0) == EngineSample(at=1.0, running=3, waiting=2)


def test_an_engine_without_metrics_has_nothing_to_read():
    assert plain.ENGINE.read is None
    assert plain.ENGINE.metrics_path is None
