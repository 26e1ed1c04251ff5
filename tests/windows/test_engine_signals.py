"""From what engines print to what ``eviction`` and ``footprint`` go by: the series that their docstrings name."""

import pytest

from concur_proxy.core.signals import SignalTracker
from concur_proxy.engines import sglang, vllm
from concur_proxy.engines.exposition import read_page
from concur_proxy.windows.eviction import Eviction
from concur_proxy.windows.footprint import Footprint
from tests.windows.cases import view

VLLM = """\
vllm:kv_cache_usage_perc{{engine="0",model_name="m"}} 0.5
vllm:num_preemptions_total{{engine="0",model_name="m"}} {evictions}
vllm:request_success_total{{engine="0",finished_reason="stop",model_name="m"}} {requests}
vllm:request_success_total{{engine="0",finished_reason="length",model_name="m"}} 4
vllm:cache_config_info{{block_size="16",engine="0",num_gpu_blocks="1000"}} 1
"""
SGLANG = """\
sglang:token_usage{{model_name="m"}} 0.5
sglang:num_retracted_requests_total{{model_name="m"}} {evictions}
sglang:num_retracted_reqs{{model_name="m"}} 77
sglang:num_requests_total{{model_name="m"}} {requests}
sglang:max_total_num_tokens{{model_name="m"}} 16000
"""


@pytest.fixture(params=[(vllm, VLLM), (sglang, SGLANG)], ids=["vllm", "sglang"])
def told(request):
    engine, page = request.param
    tracker = SignalTracker()
    for at, evictions, requests in ((0.0, 100, 1000), (1.0, 106, 1010)):
        tracker.sample(engine.read(read_page(page.format(evictions=evictions, requests=requests)), at))
    return tracker.take(now=1.0)


def test_evictions_are_preemptions_and_retractions_of_the_interval(told):
    verdict = Eviction().update(told, view(32.0), now=1.0)
    assert verdict.window == 25
    assert verdict.reason.startswith("KV usage 0.50, 0.60 evictions per request: congestion 0.80")
    assert Eviction(product=True).update(told, view(32.0), now=1.0).window == 34


def test_the_capacity_is_the_engines(told):
    assert Footprint().update(told, view(), now=1.0).window == 0.95 * 16_000
