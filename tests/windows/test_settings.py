"""What the settings tree says of the laws is what they take."""

import inspect

import pytest

from concur_proxy.config.tree import ControlSettings, LawName
from concur_proxy.windows import LAWS, build_law


def parameters(function):
    kinds = inspect.signature(function).parameters.values()
    return {each.name: each.default for each in kinds if each.kind is each.KEYWORD_ONLY}


def test_every_law_can_be_named():
    assert {name.value for name in LawName} == set(LAWS)


@pytest.mark.parametrize("name", sorted(LAWS))
def test_parameters_have_the_settings_names_and_defaults(name):
    section = getattr(ControlSettings(), name, None)
    assert parameters(LAWS[name]) == (section.model_dump() if section is not None else {})


def test_so_do_the_ages():
    taken = parameters(build_law)
    settings = ControlSettings()
    assert (taken["stale_after_s"], taken["decay_after_s"]) == (settings.stale_after_s, settings.decay_after_s)
