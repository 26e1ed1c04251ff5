"""What the pages on deploying and security tell people: settings load, commands parse, files are there."""

from __future__ import annotations

import re
import shlex

import pytest
import typer
import yaml

from concur_proxy.cli import app
from concur_proxy.config.load import load
from tests.deploy.image import ROOT

PAGES = [ROOT / "docs" / name for name in ("deploy.md", "security.md")]
BLOCKS = [
    (path.stem, language, text)
    for path in PAGES
    for language, text in re.findall(r"^```(\w*)\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)
]
SETTINGS = [text for _, language, text in BLOCKS if language == "yaml"]
COMMANDS = [
    line
    for _, language, text in BLOCKS
    if language == "console"
    for line in text.replace("\\\n", " ").splitlines()
    if "concur-proxy " in line
]


@pytest.mark.parametrize("text", SETTINGS)
def test_settings_load(text, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    load(path)


def test_there_are_settings_and_commands():
    assert len(SETTINGS) >= 4
    assert len(COMMANDS) >= 8


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_parse(line):
    """Whatever calls the program has a verb and options that it knows."""
    words = shlex.split(line)
    called = [at for at, word in enumerate(words) if re.fullmatch(r"(\S*/bin/)?concur-proxy", word)]
    known = typer.main.get_command(app).commands
    for at in called:
        rest = words[at + 1 :]
        if rest and rest[0] in known:
            known[rest[0]].make_context(rest[0], [word for word in rest[1:] if word != "&"])
        else:
            assert at > 0, "it is no command of ours"  # but a user, a unit, a package or an image of this name


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_links_lead_somewhere(path):
    text = path.read_text()
    for target in re.findall(r"\]\(([^)#\s]*)(?:#[^)]*)?\)", text):
        assert not target or (path.parent / target).exists(), target
    headings = re.findall(r"^#+ (.*)", text, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
    assert set(re.findall(r"\]\(#([^)]*)\)", text)) <= anchors


def test_files_that_the_threat_model_cites_are_there():
    text = PAGES[1].read_text()
    for named in re.findall(r"`((?:tests|docs|bench|\.github)/[^`]*)`", text):
        assert list(ROOT.glob(named)), named


def test_the_table_of_who_may_call_is_the_policy_that_is_tested():
    from tests.auth.test_routes import opens

    text = PAGES[0].read_text()
    rows = re.findall(r"^\| (`/.*?|`DELETE.*?) \| (.*?) \| (.*?) \| (.*?) \|$", text, re.MULTILINE)
    assert len(rows) == 4
    examples = ["/v1/chat/completions", "/concur/config", "/programs/release", "/livez"]
    for path, (_, *cells) in zip(examples, rows, strict=True):
        for caller, cell in zip(("nobody", "client", "manager"), cells, strict=True):
            assert (cell != "401") == opens(path, caller)


def test_settings_of_the_compose_file_and_chart_examples_are_yaml():
    for path in (ROOT / "helm" / "concur-proxy" / "examples").glob("*.yaml"):
        assert isinstance(yaml.safe_load(path.read_text()), dict)
