import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.bench.pairs import ratio, student_95


def test_three_pairs_by_hand():
    found = ratio([200.0, 300.0, 240.0], [100.0, 100.0, 100.0])
    assert found.each == pytest.approx((2.0, 3.0, 2.4))
    assert found.mean == pytest.approx((2 * 3 * 2.4) ** (1 / 3))
    assert found.least == pytest.approx(2.0)
    logs = [math.log(2), math.log(3), math.log(2.4)]
    middle = sum(logs) / 3
    spread = math.sqrt(sum((log - middle) ** 2 for log in logs) / 2)
    assert found.lower_95 == pytest.approx(math.exp(middle - 2.920 * spread / math.sqrt(3)))


def test_one_pair_has_no_bound():
    assert ratio([2.0], [1.0]).lower_95 is None


@pytest.mark.parametrize(("values", "baseline"), [([], []), ([1.0], []), ([0.0], [1.0]), ([1.0], [0.0])])
def test_no_ratio(values, baseline):
    assert ratio(values, baseline) is None


@given(st.lists(st.tuples(st.floats(0.1, 100), st.floats(0.1, 100)), min_size=2, max_size=20))
def test_the_bound_is_below_the_mean(pairs):
    found = ratio(*zip(*pairs, strict=True))
    assert found.lower_95 <= found.mean * (1 + 1e-9)
    assert found.lower_95 * found.upper_95 == pytest.approx(found.mean**2, rel=1e-6)
    assert found.least <= found.mean * (1 + 1e-9)


def test_the_quantiles_fall_towards_the_normal_one():
    quantiles = [student_95(freedom) for freedom in range(1, 60)]
    assert quantiles == sorted(quantiles, reverse=True)
    assert student_95(20) == pytest.approx(1.725, abs=0.002)
    assert student_95(120) == pytest.approx(1.658, abs=0.002)
