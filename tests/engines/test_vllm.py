import pytest

from concur_proxy.engines import vllm
from concur_proxy.engines.base import EngineSample
from tests.engines.pages import VLLM, page


def read(text):
    return vllm.read(page(text), 1.0)


def test_reads_a_real_scrape():
    assert read(VLLM) == EngineSample(
        at=1.0,
        running=0,
        waiting=0,
        kv_usage_max=0,
        kv_usage_mean=0,
        prompt_tokens=320,
        generation_tokens=40,
        prefix_queries=320,
        prefix_hits=192,
        preemptions=0,
        requests_finished=4,
        steps=40,
        scheduled_tokens=168,
        rejections=0,
        capacity_tokens=16384,
        block_size=32,
        asleep=False,
        started_at=1795961281.54,
    )


def test_sums_data_parallel_engines_and_brakes_on_the_fullest():
    sample = read(
        'vllm:num_requests_running{engine="0",model_name="m"} 3\n'
        'vllm:num_requests_running{engine="1",model_name="m"} 4\n'
        'vllm:num_requests_waiting{engine="0",model_name="m"} 5\n'
        'vllm:num_requests_waiting{engine="1",model_name="m"} 0\n'
        'vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 5\n'
        'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 9.0e-01\n'
        'vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.1\n'
        'vllm:cache_config_info{engine="0",kv_cache_size_tokens="3000"} 1\n'
        'vllm:cache_config_info{engine="1",kv_cache_size_tokens="1000"} 1\n'
    )
    assert (sample.running, sample.waiting) == (7, 5)
    assert sample.kv_usage_max == 0.9
    assert sample.kv_usage_mean == pytest.approx(0.7)
    assert sample.capacity_tokens == 4000


@pytest.mark.parametrize(
    ("engines", "capacity"),
    [
        ([("0", "100", "16")], 1600),
        ([("0", "100", "16"), ("1", "300", "16")], 6400),
        # One front end of two engines prints the sum of their blocks for both.
        ([("0", "400", "16"), ("1", "400", "16")], 6400),
    ],
    ids=["one", "own configurations", "shared configuration"],
)
def test_capacity_from_blocks_of_older_versions(engines, capacity):
    text = 'vllm:cache_config_info{engine="%s",num_gpu_blocks="%s",block_size="%s",kv_cache_size_tokens="None"} 1.0\n'
    sample = read("".join(text % engine for engine in engines))
    assert sample.capacity_tokens == capacity
    assert sample.block_size == 16


def test_capacity_is_unknown_without_figures():
    assert read('vllm:cache_config_info{engine="0",num_gpu_blocks="None",block_size="16"} 1\n').capacity_tokens is None
    assert read("vllm:num_requests_running 1\n").capacity_tokens is None


def test_reads_the_older_names():
    sample = read(
        "vllm:gpu_cache_usage_perc 0.25\n"
        "vllm:gpu_prefix_cache_queries_total 100\n"
        "vllm:gpu_prefix_cache_hits_total 9.75e+01\n"
    )
    assert (sample.kv_usage_max, sample.prefix_queries, sample.prefix_hits) == (0.25, 100, 97.5)


def test_does_not_add_older_and_newer_names_of_the_same_thing():
    sample = read("vllm:kv_cache_usage_perc 0.5\nvllm:gpu_cache_usage_perc 0.5\nvllm:prefix_cache_hits_total 7\n")
    assert (sample.kv_usage_max, sample.prefix_hits) == (0.5, 7)


def test_offloaded_kv_counts_as_a_hit():
    sample = read(
        "vllm:prefix_cache_queries_total 100\nvllm:prefix_cache_hits_total 40\n"
        "vllm:external_prefix_cache_queries_total 60\nvllm:external_prefix_cache_hits_total 20\n"
    )
    assert (sample.prefix_queries, sample.prefix_hits) == (100, 60)


def test_sums_finished_requests_and_rejections_over_their_reasons():
    sample = read(
        'vllm:request_success_total{engine="0",finished_reason="stop"} 3\n'
        'vllm:request_success_total{engine="0",finished_reason="length"} 4\n'
        'vllm:admission_rejections_total{reason="max_num_queued_reqs"} 1\n'
        'vllm:admission_rejections_total{reason="max_num_queued_tokens"} 1\n'
    )
    assert (sample.requests_finished, sample.rejections) == (7, 2)


@pytest.mark.parametrize(("awake", "asleep"), [((1, 1), False), ((1, 0), True), ((0, 0), True)])
def test_a_sleeping_engine_is_seen(awake, asleep):
    text = 'vllm:engine_sleep_state{engine="%d",sleep_state="awake"} %d\n'
    other = 'vllm:engine_sleep_state{engine="0",sleep_state="discard_all"} 0\n'
    assert read(other + "".join(text % (i, value) for i, value in enumerate(awake))).asleep is asleep


def test_what_the_engine_does_not_tell_is_unknown():
    assert read("vllm:num_requests_running 2\n") == EngineSample(at=1.0, running=2)
