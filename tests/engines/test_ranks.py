from pathlib import Path

import pytest

from concur_proxy.engines import sglang, vllm
from concur_proxy.engines.exposition import Page, Series, read_page
from concur_proxy.engines.ranks import RankPage, of_rank

TWO = """\
vllm:num_requests_running{engine="0",model_name="m"} 3
vllm:num_requests_running{engine="1",model_name="m"} 5
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
vllm:cache_config_info{engine="0",kv_cache_size_tokens="1000"} 1
vllm:cache_config_info{engine="1",kv_cache_size_tokens="2000"} 1
process_start_time_seconds 17
"""


@pytest.mark.parametrize(("rank", "running", "usage", "capacity"), [(0, 3, 0.25, 1000), (1, 5, 0.75, 2000)])
def test_each_rank_is_an_engine_of_its_own(rank, running, usage, capacity):
    sample = vllm.read(RankPage(read_page(TWO).series, rank=rank), 1.0)
    assert (sample.running, sample.kv_usage_max, sample.capacity_tokens) == (running, usage, capacity)
    assert sample.started_at == 17


def test_a_rank_that_is_not_there_is_unknown_and_not_zero():
    assert vllm.read(RankPage(read_page(TWO).series, rank=2), 1.0).running is None


def test_the_ranks_of_a_real_page_are_its_engines():
    page = read_page((Path(__file__).parent / "data" / "vllm-0.32.txt").read_text())
    whole, first = vllm.read(page, 1.0), vllm.read(RankPage(page.series, rank=0), 1.0)
    assert whole == first


def test_one_rank_of_sglangs_json():
    told = {"loads": [{"dp_rank": 1, "num_running_reqs": 7, "max_total_num_tokens": 10}, {"num_running_reqs": 9}]}
    assert sglang.read_loads(of_rank({"loads": told["loads"][:1]}, 1), 1.0).running == 7
    assert sglang.read_loads(of_rank({"loads": [{}, told["loads"][1]]}, 1), 1.0).running == 9  # by its place
    assert sglang.read_loads(of_rank(told, 0), 1.0) is None
    assert sglang.read_capacity(of_rank({"max_total_num_tokens": 10, "dp_size": 4}, 2)) == 10
    assert of_rank([3], 0) == [3]


def test_sglangs_label_is_known_too():
    page = Page({"x": (Series(1.0, 'dp_rank="0"'), Series(2.0, 'dp_rank="1"'))})
    assert [one.value for one in RankPage(page.series, rank=1).get("x")] == [2.0]
