from random import Random

import pytest
from pydantic import ValidationError

from concur_proxy.sim.quantities import Quantity


def mean(written, draws=20_000):
    one, random = Quantity.model_validate(written), Random(1)
    return sum(one.draw(random) for _ in range(draws)) / draws


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (7, 7),
        ({"mean": 20, "sigma": 0.5}, 20),
        ({"median": 20, "sigma": 0.5}, 20 * 1.1331),
        ({"exponential": 3}, 3),
        ({"exponential": 0}, 0),
        ({"pareto": 3, "least": 2}, 3),
        ({"constant": 5, "most": 4}, 4),
    ],
)
def test_what_is_written_is_what_is_drawn(written, expected):
    assert mean(written) == pytest.approx(expected, rel=0.03)


def test_tokens_are_whole_and_at_least_one():
    assert Quantity(constant=0).tokens(Random(1)) == 1
    assert Quantity(constant=2.6).tokens(Random(1)) == 3


@pytest.mark.parametrize("written", [{}, {"mean": 1, "median": 1}, {"pareto": 2}, {"mean": -1}, "much", True])
def test_nonsense_is_refused(written):
    with pytest.raises(ValidationError):
        Quantity.model_validate(written)
