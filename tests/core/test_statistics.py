"""Running estimates."""

import math

import pytest

from concur_proxy.core.statistics import Mean, Peak, ThinkTime


def test_a_mean_begins_plain_and_forgets_slowly():
    mean = Mean(7.0, floor=0.1)
    for sample in (1.0, 2.0, 3.0):
        mean.add(sample)
    assert mean.value == pytest.approx(2.0)
    for _ in range(200):
        mean.add(10.0)
    assert mean.value == pytest.approx(10.0)
    mean.add(20.0)
    assert mean.value == pytest.approx(11.0)


def test_think_times_have_an_upper_end():
    think = ThinkTime()
    assert think.upper() is None
    think.add(10.0)
    assert think.upper() == pytest.approx(30.0)
    for _ in range(100):
        think.add(10.0)
    assert think.upper() == pytest.approx(20.0)  # never less than the mean again, however regular
    think.add(30.0)
    assert think.mean == pytest.approx(12.0)


def test_a_peak_fades():
    peak = Peak(horizon_s=100.0)
    assert peak.at(5.0) == 0.0
    peak.see(8.0, now=0.0)
    peak.see(2.0, now=10.0)
    assert peak.at(0.0) == 8.0
    assert peak.at(100.0) == pytest.approx(8.0 / math.e)
    peak.see(4.0, now=100.0)
    assert peak.at(100.0) == 4.0
