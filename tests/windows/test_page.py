"""docs/laws.md tells of every law, and of all that can be set about it."""

import re
from pathlib import Path

import pytest

from concur_proxy.config.tree import ControlSettings
from concur_proxy.windows import LAWS, build_law

PAGE = (Path(__file__).parents[2] / "docs" / "laws.md").read_text()
SECTIONS = dict(re.findall(r"^## `(\w+)`\n(.*?)(?=^## |\Z)", PAGE, flags=re.MULTILINE | re.DOTALL))
ROWS = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", PAGE, flags=re.MULTILINE))


def test_there_is_a_section_for_every_law_and_no_other():
    assert SECTIONS.keys() == LAWS.keys() == ROWS.keys()


@pytest.mark.parametrize("name", sorted(LAWS))
def test_a_section_names_every_parameter(name):
    parameters = type(getattr(ControlSettings(), name)).model_fields if hasattr(ControlSettings(), name) else {}
    assert all(re.search(rf"\b{parameter}\b", SECTIONS[name]) for parameter in parameters)


@pytest.mark.parametrize("name", sorted(set(LAWS) - {"unlimited"}))
def test_the_table_has_each_laws_unit(name):
    assert build_law(name, {}, minimum=1.0, maximum=100.0).unit.value in ROWS[name]


@pytest.mark.parametrize("name", sorted(set(LAWS) - {"meanfield"}))
def test_a_section_says_where_its_law_fails(name):
    assert "**Fails**" in SECTIONS[name]
