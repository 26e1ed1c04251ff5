from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.engines.base import Reading, add, counter, readings, total, usage
from tests.engines.pages import page


def test_sums_over_engines():
    assert total(page('a{engine="0"} 3\na{engine="1"} 4\n'), "a") == 7


def test_missing_or_nan_is_unknown_and_never_zero():
    assert total(page("b 1\n"), "a") is None
    assert total(page('a{engine="0"} 3\na{engine="1"} NaN\n'), "a") is None
    assert total(page("a +Inf\n"), "a") is None


def test_takes_one_of_the_ranks_that_report_the_same():
    text = 'a{dp_rank="%d",tp_rank="%d",pp_rank="0",moe_ep_rank="0"} %d\n'
    ranks = "".join(text % (dp, tp, 10 * (dp + 1)) for dp in (0, 1) for tp in (1, 0))
    assert total(page(ranks), "a") == 30


def test_takes_the_lowest_rank():
    assert total(page('a{tp_rank="10"} 1\na{tp_rank="9"} 2\n'), "a") == 2


def test_keeps_only_the_series_for_all_priorities():
    assert total(page('a{priority=""} 5\na{priority="1"} 2\na{priority="7"} 3\n'), "a") == 5
    assert total(page('a{priority="1"} 2\na{priority="7"} 3\n'), "a") == 5


def test_prefers_the_newer_name_and_never_adds_both():
    both = page("new_total 5\nold_total 7\n")
    assert counter(both, "new", "old") == 5
    assert counter(page("old_total 7\n"), "new", "old") == 7
    assert counter(page("new 7\n"), "new", "old") == 7


def test_adds_what_is_known():
    assert add(1.0, None, 2.0) == 3.0
    assert add(None, None) is None


def test_usage_is_highest_and_weighted_mean():
    found = readings(page('u{engine="0"} 0.2\nu{engine="1"} 0.8\n'), "u")
    assert usage(found, {"0": 300.0, "1": 100.0}) == (0.8, 0.35)
    assert usage(found, {"0": 300.0}) == (0.8, 0.5)
    assert usage([], {}) == (None, None)


@given(st.lists(st.floats(), max_size=5))
def test_usage_is_a_share_or_unknown(values):
    fullest, mean = usage([Reading(value, {"engine": str(i)}) for i, value in enumerate(values)], {})
    assert (fullest is None) == (mean is None)
    if fullest is not None and mean is not None:
        assert 0 <= mean <= fullest + 1e-9
        assert fullest <= 1
