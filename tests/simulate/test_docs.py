"""The documents' examples run, and no key of a scenario goes unmentioned."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from concur_proxy.cli import app
from concur_proxy.sim import scenario
from concur_proxy.simulate import scenario_names
from concur_proxy.simulate.files import parse

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "simulator.md").read_text()


def example(name):
    (found,) = re.findall(rf"<!-- {name} -->\n```\w+\n(.*?)```\n<!-- end -->", PAGE, flags=re.DOTALL)
    return found


def test_the_example_runs_from_the_command_line_and_as_a_library(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(example("scenario"))
    done = CliRunner().invoke(app, ["simulate", "mine.yaml", "--laws", "unlimited,aimd", "--jobs", "1"])
    assert done.exit_code == 0
    assert "makespan" in done.output
    exec(example("library"), {})
    assert len(capsys.readouterr().out.splitlines()) == 3


@pytest.mark.parametrize(
    "part", [name for name in dir(scenario) if name.endswith("Part") and name != "Part"] + ["Scenario"]
)
def test_every_key_of_a_scenario_is_explained(part):
    for key in getattr(scenario, part).model_fields:
        assert re.search(rf"`{key}\b", PAGE), f"{part}.{key} is missing in docs/simulator.md"


def test_the_cases_of_the_page_on_capacity_are_scenarios():
    found = re.findall(r"```yaml\n(.*?)```", (DOCS / "capacity.md").read_text(), flags=re.DOTALL)
    assert [sum(part.count for part in parse(text, "capacity.md", "x").backends) for text in found] == [1, 4]


def test_the_number_of_scenarios_is_said():
    assert len(scenario_names()) == 38
    assert "Thirty-eight scenarios" in PAGE


def test_every_option_is_explained():
    help_text = (
        CliRunner().invoke(app, ["simulate", "--help"], env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}).output
    )
    for option in set(re.findall(r"--[a-z]+", help_text)) - {"--help"}:
        assert option in PAGE
