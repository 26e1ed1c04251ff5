"""The documents and the code say the same: settings, commands, metrics, rules."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer
import yaml

from concur_proxy.cli import app
from concur_proxy.config import LawName, Settings
from concur_proxy.config.load import load
from concur_proxy.config.pages import render_example, render_reference
from concur_proxy.config.words import FLAGS, settings
from concur_proxy.core import lineage
from concur_proxy.core.identity import RULES
from concur_proxy.observe.catalogue import NAMES
from concur_proxy.observe.pages import render_metrics

ROOT = Path(__file__).parents[1]
COMMANDS = typer.main.get_command(app).commands


def page(name: str) -> str:
    return (ROOT / name).read_text()


def rows(text: str) -> dict[str, list[str]]:
    """Return the cells of each table row whose first cell is a name in backticks."""
    found = re.findall(r"^\| `([^`]+)` \| (.+) \|$", text, flags=re.MULTILINE)
    return {name: [cell.strip() for cell in cells.split("|")] for name, cells in found}


def test_the_example_file_is_the_one_that_the_code_makes():
    assert page("config.example.yaml") == render_example(), "run: python docs/generate.py"


def test_the_example_file_holds_the_defaults():
    assert load(ROOT / "config.example.yaml") == Settings()


def test_the_example_of_a_backend_is_complete_and_valid(tmp_path):
    lines = page("config.example.yaml").splitlines()
    start = lines.index("# backends:")
    block = [line.removeprefix("# ") for line in lines[start : lines.index("", start)]]
    assert yaml.safe_load("\n".join(block))["backends"][0].keys() == {
        setting.key for setting in settings() if "[]" in setting.path
    }
    path = tmp_path / "config.yaml"
    path.write_text("\n".join(block))
    assert load(path).backends[0].id == "10.0.0.5:8000"


def test_the_reference_of_settings_is_the_one_that_the_code_makes():
    assert render_reference() in page("docs/configuration.md"), "run: python docs/generate.py"


def test_every_setting_has_a_meaning_and_a_row():
    documented = rows(page("docs/configuration.md"))
    for setting in settings():
        assert setting.field.description, setting.path
        assert setting.field.description in documented[setting.path][-1]


def test_every_flag_of_a_setting_is_one_of_serve():
    flags = {option for parameter in COMMANDS["serve"].params for option in parameter.opts}
    assert set(FLAGS.values()) <= flags
    assert set(FLAGS) <= {setting.path for setting in settings()}


def test_the_help_of_serve_names_every_law():
    (law,) = [parameter for parameter in COMMANDS["serve"].params if parameter.name == "law"]
    assert all(name.value in law.help for name in LawName)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_is_in_the_documents(name):
    pages = page("README.md") + page("docs/getting-started.md")
    assert f"concur-proxy {name}" in pages


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_option_of_a_command_has_a_help_text(name):
    assert COMMANDS[name].help
    assert all(parameter.help for parameter in COMMANDS[name].params if parameter.name != "help")


def test_the_documents_name_no_command_that_is_not_there():
    pages = "".join(path.read_text() for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
    code = "\n".join(re.findall(r"^```.*?^```|`[^`\n]+`", pages, flags=re.MULTILINE | re.DOTALL))
    named = set(re.findall(r"concur-proxy ([a-z]+)", code))
    assert named <= set(COMMANDS)


def test_every_metric_is_documented_and_no_other():
    named = set(re.findall(r"\bconcur_[a-z_]+", page("docs/metrics.md")))
    assert {name.removesuffix("_bucket") for name in named} - {"concur_"} == set(NAMES)


def test_the_tables_of_metrics_are_those_that_the_code_makes():
    assert render_metrics() in page("docs/metrics.md"), "run: python docs/generate.py"


def test_every_rule_for_sessions_is_documented_in_order():
    *named, anonymous = RULES
    assert tuple(rows(page("docs/sessions.md"))) == (*named, *lineage.RULES, anonymous)
