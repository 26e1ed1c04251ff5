from concur_proxy.sim.stats import Histogram


def test_a_value_on_a_bound_counts_below_it_as_in_prometheus():
    histogram = Histogram((1.0, 2.0))
    histogram.observe(1.0)
    histogram.observe(1.5, times=3)
    histogram.observe(9.0)
    assert histogram.buckets == [1, 3, 1]
    assert (histogram.count, histogram.sum) == (5, 14.5)
