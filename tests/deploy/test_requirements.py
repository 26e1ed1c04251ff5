"""What goes into the image: every package pinned and known by its hashes, all of it asked for by pyproject.toml."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
import yaml

from tests.deploy.image import ROOT

packaging = pytest.importorskip("packaging.requirements", reason="it comes with pytest")
from packaging.utils import canonicalize_name  # noqa: E402 - it may not be there

FOLDER = ROOT / "deploy" / "requirements"


def lock():
    spec = importlib.util.spec_from_file_location("lock", ROOT / "deploy" / "lock.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


INPUTS = dict(lock().inputs())


def entries(name):
    """Yield each requirement of a file, its hashes, and who asks for it; nobody: pyproject.toml itself."""
    text = (FOLDER / f"{name}.txt").read_text()
    for block in re.split(r"^(?=\S)", text, flags=re.MULTILINE)[1:]:
        first, *rest = block.splitlines()
        hashes = [line.strip(" \\") for line in rest if "--hash" in line]
        asked_by = re.findall(r"^ +#(?: via| {2,}) *([a-z0-9][a-z0-9._-]*)", block, re.MULTILINE)
        yield packaging.Requirement(first.rstrip(" \\")), hashes, asked_by


def pins(name):
    return {canonicalize_name(pin.name): pin for pin, _, _ in entries(name)}


def test_there_is_a_file_for_each_kind_of_image_and_for_building():
    assert {path.stem for path in FOLDER.iterdir()} == set(INPUTS) == {"build", "slim", "full"}


@pytest.mark.parametrize("name", INPUTS)
def test_every_package_is_pinned_and_known_by_its_hashes(name):
    found = list(entries(name))
    assert len(found) > 10
    for pin, hashes, _ in found:
        assert re.fullmatch(r"==[^*]+", str(pin.specifier)), pin
        assert hashes, pin
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", one) for one in hashes), pin
    assert "://" not in (FOLDER / f"{name}.txt").read_text()


@pytest.mark.parametrize("name", INPUTS)
def test_it_is_what_pyproject_asks_for(name):
    known = pins(name)
    for text in INPUTS[name]:
        wanted = packaging.Requirement(text)
        pin = known.get(canonicalize_name(wanted.name))
        assert pin is not None, f"{text} is in pyproject.toml only: run python deploy/lock.py"
        (version,) = (one.version for one in pin.specifier)
        assert wanted.specifier.contains(version), f"{text}, but {pin}: run python deploy/lock.py"


@pytest.mark.parametrize("name", INPUTS)
def test_nothing_is_in_it_that_nobody_asks_for(name):
    wanted = {canonicalize_name(packaging.Requirement(text).name) for text in INPUTS[name]}
    known = pins(name)
    for pin, _, asked_by in entries(name):
        assert asked_by or canonicalize_name(pin.name) in wanted, f"{pin}: run python deploy/lock.py"
        assert {canonicalize_name(one) for one in asked_by} <= set(known), pin


def test_what_is_compiled_against_a_class_finds_that_class():
    """Both images are built with the uvicorn that they run with, and the larger one has all of the smaller one."""
    slim, full = pins("slim"), pins("full")
    assert slim.items() <= full.items()
    assert str(pins("build")["uvicorn"]) == str(slim["uvicorn"])


def test_the_image_is_made_of_these_files_and_of_nothing_else():
    text = re.sub(r"\\\n *", "", (ROOT / "Dockerfile").read_text())
    installs = re.findall(r"bin/pip (?:--python \S+ )?(?:install|wheel) ([^&\n]*)", text)
    assert len(installs) == 4
    for flags in installs:
        assert "--require-hashes --only-binary :all:" in flags or "--no-deps" in flags, flags
    assert set(re.findall(r"deploy/requirements/(\S+)\.txt", text)) == {"build", "${KIND}"}


def test_the_workflow_builds_and_audits_each_of_them():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    kinds = {one["kind"] for one in workflow["jobs"]["image"]["strategy"]["matrix"]["include"]}
    assert kinds == set(lock().IMAGES)
    steps = [step.get("run", "") for step in workflow["jobs"]["distribution"]["steps"]]
    (audit,) = [line for step in steps for line in step.splitlines() if line.strip().startswith("pip-audit")]
    assert all(option in audit for option in ("--require-hashes", "--disable-pip"))
    assert audit.count(" -r deploy/requirements/") == len(INPUTS)


def test_the_script_that_writes_them_is_named_where_they_are():
    for path in (ROOT / "CONTRIBUTING.md", ROOT / "docs" / "security.md"):
        assert "deploy/lock.py" in Path(path).read_text(), path
