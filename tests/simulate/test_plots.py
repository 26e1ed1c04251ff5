"""What is drawn of a run."""

import pytest

from concur_proxy.simulate.plots import windows_in
from tests.sim.worlds import play, scenario


@pytest.mark.parametrize(("law", "unit"), [("aimd", "sessions"), ("footprint", "tokens"), ("meanfield", "tokens")])
def test_windows_are_drawn_on_the_axis_of_their_unit(law, unit):
    (series,) = play(scenario(), law).series
    other = {"sessions": "tokens", "tokens": "sessions"}[unit]
    times, windows = windows_in(unit)(series)
    assert times == [moment.at for moment in series.moments]
    assert windows == [moment.window for moment in series.moments]
    assert windows_in(other)(series) == ([], [])
