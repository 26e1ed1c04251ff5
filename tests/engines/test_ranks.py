from pathlib import Path

import pytest

from concur_proxy.engines import vllm
from concur_proxy.engines.exposition import Page, Series, read_page
from concur_proxy.engines.ranks import RankPage

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


def test_sglangs_label_is_known_too():
    page = Page({"x": (Series(1.0, 'dp_rank="0"'), Series(2.0, 'dp_rank="1"'))})
    assert [one.value for one in RankPage(page.series, rank=1).get("x")] == [2.0]
