"""What may change at run time, under the bounds of the settings tree."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.admin.changes import BOUNDS, CONTROL, bounds, change_schema, changeable, read_change
from concur_proxy.config import ControlSettings, GateSettings, LawName, Settings
from concur_proxy.errors import InvalidSettingError
from concur_proxy.windows.base import WindowView

NOW = Settings(control={"window_min": 2, "aimd": {"alpha": 3}})


def view(window: float, active: int = 0, *, minimum: float = 2, maximum: float = math.inf) -> WindowView:
    return WindowView(
        window=window,
        minimum=minimum,
        maximum=maximum,
        active=active,
        running=active,
        held=0,
        bound=True,
        footprint_tokens=0,
        typical_footprint_tokens=None,
        records_age_s=0,
    )


def refused(body) -> str:
    with pytest.raises(InvalidSettingError) as caught:
        read_change(body, NOW)
    return caught.value.message


def test_what_is_shown_can_be_sent_back():
    assert read_change(changeable(NOW), NOW).settings == NOW


def test_bounds_are_shown_as_they_are_in_force():
    assert changeable(NOW)["window_max"] is None
    shown = changeable(NOW, [(2, 20.0), (2, 20.0)])
    assert (shown["window_min"], shown["window_max"]) == (2, 20)
    assert changeable(NOW, [(2, math.inf)])["window_max"] is None


def test_a_bound_in_which_backends_differ_is_left_out():
    shown = changeable(NOW, [(2, 20.0), (2, 7.0)])
    assert "window_max" not in shown
    assert shown["window_min"] == 2


@given(st.lists(st.tuples(st.floats(1, 10), st.floats(10, 100) | st.just(math.inf)), max_size=3))
def test_what_is_shown_changes_no_bound_when_it_is_sent_back(in_force):
    change = read_change(changeable(NOW, in_force), NOW)
    for minimum, maximum in in_force:
        assert bounds(change, view(40, minimum=minimum, maximum=maximum)) == (minimum, maximum)


def test_what_is_named_changes_and_the_rest_stays():
    change = read_change({"law": "fixed", "fixed": {"window": 7}, "aimd": {"beta": 0.7}, "max_wait_s": 60}, NOW)
    settings = change.settings
    assert change.names == {"law", "fixed", "aimd", "max_wait_s"}
    assert (settings.control.law, settings.control.fixed.window, settings.gate.max_wait_s) == ("fixed", 7, 60)
    assert (settings.control.aimd.alpha, settings.control.aimd.beta, settings.control.window_min) == (3, 0.7, 2)


def test_every_law_and_its_parameters_may_change():
    assert {name.value for name in LawName} & ControlSettings.model_fields.keys() <= set(CONTROL)
    for name in LawName:
        assert read_change({"law": name.value}, NOW).settings.control.law is name


def test_null_takes_the_upper_bound_away():
    now = Settings(control={"window_max": 9})
    assert read_change({"window_max": None}, now).settings.control.window_max is None


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (None, "as a JSON object"),
        ([], "as a JSON object"),
        ({}, "as a JSON object"),
        ({"windowmax": 3}, "windowmax: unknown key; did you mean window_max?"),
        ({"max_sessions": 3}, "max_sessions: unknown key"),
        ({"law": "best"}, "law = 'best': must be one of unlimited, fixed, aimd"),
        ({"window_max": 0}, "window_max = 0: must be a number, 1 to 1000000000000, or null"),
        ({"window_max": "half"}, "window_max = 'half': must be a number"),
        ({"window_max": "-5%"}, "window_max = '-5%': must be a number"),
        ({"max_wait_s": "50%"}, "max_wait_s = '50%': must be a number"),
        ({"max_wait_s": None}, "max_wait_s = None: must be a number"),
        ({"max_wait_s": True}, "max_wait_s = True: is true or false"),
        ({"aimd": {"beta": 1}}, "aimd.beta = 1: must be a number, above 0 and below 1"),
        ({"aimd": {"bta": 0.5}}, "aimd.bta: unknown key; did you mean beta?"),
        ({"aimd": 0.5}, "aimd: must be a mapping of alpha"),
        ({"window_max": 1}, "window_min = 2 must not be above window_max = 1"),
        ({"law": "footprint", "window_max": 64}, "window_max = 64 is in tokens with the law footprint"),
        ({"lease_min_s": 700}, "lease_min_s = 700 must not be above lease_max_s = 600"),
    ],
)
def test_a_mistake_is_named_with_value_and_range(body, said):
    assert said in refused(body)


def test_all_mistakes_are_named_and_nothing_changes():
    said = refused({"x": 1, "law": "best", "max_held": -1, "window_max": "50%"})
    assert all(word in said for word in ("x:", "law =", "max_held ="))


def test_a_share_is_of_the_window_in_force():
    change = read_change({"window_max": "50%"}, NOW)
    assert change.settings == NOW
    assert bounds(change, view(40)) == (2, 20)
    assert bounds(change, view(10)) == (2, 5)


def test_a_share_of_no_window_is_of_what_is_active():
    assert bounds(read_change({"window_max": "50%"}, NOW), view(math.inf, active=30)) == (2, 15)


def test_numbers_hold_for_every_backend():
    change = read_change({"window_min": 3, "window_max": 12}, NOW)
    assert bounds(change, view(40)) == bounds(change, view(5)) == (3, 12)
    assert bounds(read_change({"window_max": None}, NOW), view(5)) == (2, math.inf)


def test_a_bound_that_is_not_named_stays():
    assert bounds(read_change({"window_min": 3}, NOW), view(20, maximum=20)) == (3, 20)
    assert bounds(read_change({"window_max": 12}, NOW), view(20, minimum=7)) == (7, 12)


@given(st.floats(0, 9999), st.floats(1, 1e9) | st.just(math.inf), st.integers(0, 10**6), st.sampled_from(BOUNDS))
def test_bounds_are_always_in_order_and_leave_one_session(percent, window, active, name):
    least, most = bounds(read_change({name: f"{percent:.2f}%"}, NOW), view(window, active))
    assert 1 <= least <= most


def test_the_schema_names_what_may_change():
    properties = change_schema()["properties"]
    assert properties.keys() == changeable(NOW).keys()
    for name, schema in properties.items():
        section = ControlSettings if name in ControlSettings.model_fields else GateSettings
        assert schema["description"] == section.model_fields[name].description


def test_limits_of_tenants_may_change_and_their_bounds_are_checked():
    change = read_change({"limits": {"default": {"turns_per_minute": 60}}}, NOW)
    assert change.settings.gate.limits["default"].turns_per_minute == 60
    with pytest.raises(InvalidSettingError, match="turns_per_minute"):
        read_change({"limits": {"default": {"turns_per_minute": 0}}}, NOW)
    assert "$ref" not in str(change_schema())
