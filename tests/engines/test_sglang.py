import pytest
from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.engines import sglang
from concur_proxy.engines.base import EngineSample
from tests.engines.pages import SGLANG, page


def read(text):
    return sglang.read(page(text), 1.0)


def test_reads_a_real_scrape():
    assert read(SGLANG) == EngineSample(
        at=1.0,
        running=0,
        waiting=0,
        kv_usage_max=0,
        kv_usage_mean=0,
        prompt_tokens=160,
        generation_tokens=24,
        prefix_queries=160,
        prefix_hits=79,
        preemptions=None,
        requests_finished=2,
        steps=25,
        scheduled_tokens=104,
        evictable_tokens=12,
        capacity_tokens=16384,
        block_size=1,
    )


def test_one_tensor_rank_of_each_data_parallel_rank():
    labels = '{model_name="m",dp_rank="%d",tp_rank="%d",pp_rank="0",moe_ep_rank="%d"}'
    text = "".join(
        f"sglang:num_running_reqs{labels % (dp, tp, tp)} {dp + 2}\n"
        f"sglang:max_total_num_tokens{labels % (dp, tp, tp)} {1000 * (dp + 1)}\n"
        f"sglang:token_usage{labels % (dp, tp, tp)} {0.9 - 0.6 * dp:.2f}\n"
        for dp in (0, 1)
        for tp in (0, 1, 2)
    )
    sample = read(text)
    assert sample.running == 5
    assert sample.capacity_tokens == 3000
    assert sample.kv_usage_max == 0.9
    assert sample.kv_usage_mean == pytest.approx((0.9 + 2 * 0.3) / 3)


def test_counts_all_priorities_once():
    sample = read(
        'sglang:num_queue_reqs{priority=""} 5\nsglang:num_queue_reqs{priority="0"} 2\n'
        'sglang:num_queue_reqs{priority="9"} 3\n'
    )
    assert sample.waiting == 5


def test_hit_counters_are_cached_over_prompt_tokens_and_not_the_gauge():
    sample = read(
        'sglang:prompt_tokens_total{is_streaming="true"} 100\nsglang:prompt_tokens_total{is_streaming="false"} 100\n'
        'sglang:cached_tokens_total{cache_source="device"} 30\nsglang:cached_tokens_total{cache_source="host"} 20\n'
        "sglang:cache_hit_rate 0.99\n"
    )
    assert (sample.prefix_queries, sample.prefix_hits) == (200, 50)


def test_preemptions_are_the_counter_and_not_the_gauge_that_is_reset():
    sample = read("sglang:num_retracted_reqs 9\nsglang:num_retracted_requests_total 3\n")
    assert sample.preemptions == 3
    assert read("sglang:num_retracted_reqs 9\n").preemptions is None


def test_reads_names_with_underscores():
    assert read("sglang_num_running_reqs 4\nsglang_token_usage 0.5\n").running == 4


def test_loads_without_the_metrics_flag():
    document = {
        "loads": [
            {
                "dp_rank": 0,
                "num_running_reqs": 3,
                "num_waiting_reqs": 1,
                "token_usage": 0.8125,
                "max_total_num_tokens": 1000,
            },
            {
                "dp_rank": 1,
                "num_running_reqs": 2,
                "num_waiting_reqs": 0,
                "token_usage": 0.2,
                "max_total_num_tokens": 3000,
            },
        ]
    }
    sample = sglang.read_loads(document, 2.0)
    assert sample is not None
    assert (sample.at, sample.running, sample.waiting, sample.capacity_tokens) == (2.0, 5, 1, 4000)
    assert sample.kv_usage_max == 0.8125
    assert sample.kv_usage_mean == pytest.approx((0.8125 + 3 * 0.2) / 4)


def test_loads_leave_unknown_what_a_rank_does_not_tell():
    sample = sglang.read_loads({"loads": [{"num_running_reqs": 3}, {"num_running_reqs": None}]}, 2.0)
    assert sample == EngineSample(at=2.0)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["loads", "token_usage", "num_running_reqs", "max_total_num_tokens"]), inner)
    ),
    max_leaves=8,
)


@given(anything)
def test_any_document_is_read_or_refused(document):
    assert isinstance(sglang.read_loads(document, 0.0), EngineSample | None)
    sglang.read_capacity(document)


def test_capacity_of_server_info():
    assert sglang.read_capacity({"max_total_num_tokens": 5000}) == 5000
    assert sglang.read_capacity({"max_total_num_tokens": 5000, "dp_size": 4}) == 20000
    assert sglang.read_capacity({"version": "x"}) is None
    assert sglang.read_capacity([]) is None
