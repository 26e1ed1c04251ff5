import pytest

from concur_proxy.windows.warm import FIRST_WINDOW, what_fits


@pytest.mark.parametrize(
    ("capacity", "typical", "first"),
    [
        (None, None, FIRST_WINDOW),
        (1000.0, None, FIRST_WINDOW),
        (0.0, 5.0, FIRST_WINDOW),
        (1000.0, 40.0, 25),
        (5, 10, 1),
    ],
)
def test_what_fits(capacity, typical, first):
    assert what_fits(capacity, typical) == first
