import pytest

from concur_proxy.simulate.tables import count, seconds


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0.0"), (0.532, "0.53"), (5.25, "5.2"), (99.94, "99.9"), (1234.5, "1,234")]
)
def test_seconds_have_the_digits_that_matter(value, text):
    assert seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (9_999, "9,999"), (12_345, "12.3k"), (9_320_000, "9.32M"), (2e9, "2G")]
)
def test_counts_are_short(value, text):
    assert count(value) == text
