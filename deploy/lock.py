"""Write deploy/requirements: every package that goes into an image, in one version each, with the hashes of its files.

    python deploy/lock.py              after a change of pyproject.toml; what is pinned already stays as it is
    python deploy/lock.py --upgrade    takes the newest versions that pyproject.toml allows

A test fails where this was forgotten. Needs the extra `deploy` and the package index.
"""  # noqa: INP001 - a script

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "deploy" / "requirements"
IMAGES = {"slim": ("redis", "jwt"), "full": ("redis", "jwt", "otel", "k8s", "postgres")}
"""Kinds of images, and the extras of the package that each of them has."""
PYTHON = "3.11"
"""The oldest that must do; markers tell what newer ones need."""


def main(options: list[str]) -> None:
    for name, wanted in inputs():
        path = FOLDER / f"{name}.txt"
        command = ["uv", "pip", "compile", "--quiet", "--universal", "--python-version", PYTHON, "--generate-hashes"]
        command += ["--no-header", "--no-config", "--output-file", str(path), *options, "-"]
        subprocess.run(command, input="\n".join(wanted), text=True, check=True, stdout=subprocess.DEVNULL)  # noqa: S603


def inputs() -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each file, and what pyproject.toml asks for in it."""
    said = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = said["project"]
    yield "build", said["build-system"]["requires"]
    for name, extras in IMAGES.items():
        more = [wanted for extra in extras for wanted in project["optional-dependencies"][extra]]
        yield name, project["dependencies"] + more


if __name__ == "__main__":
    main(sys.argv[1:])
