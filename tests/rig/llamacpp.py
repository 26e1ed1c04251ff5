"""The rig's third engine: llama.cpp's own server, computing for real with the rig's tiny model. Prepared in seconds.

tests/rig/prepare vllm && tests/rig/prepare llamacpp

with LlamaEngine(slots=4) as engine: ...  # tests.rig.engine
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":  # as a script, by ``prepare``: the package is where we are from
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.rig import environments
from tests.rig.environments import HERE, Model, default_folder

KIND = "llamacpp"
PACKAGES = ("xllamacpp==2026.10.11549", "gguf==0.19.0", "numpy<3")


@dataclass(frozen=True)
class LlamaEnvironment:
    """The environment with the model in it, there or not."""

    folder: Path

    @property
    def root(self) -> Path:
        return self.folder / KIND

    @property
    def python(self) -> Path:
        return self.root / "bin" / "python"

    @property
    def weights(self) -> Path:
        return self.root / "tiny.gguf"

    @property
    def marker(self) -> Path:
        return self.root / ".concur-recipe"

    @property
    def hash(self) -> str:
        """Of all that it is made of, the model too."""
        recipe = "\n".join((*PACKAGES, (HERE / "gguf_model.py").read_text(), Model(self.folder).hash))
        return hashlib.sha256(recipe.encode()).hexdigest()[:16]

    @property
    def ready(self) -> bool:
        return self.python.exists() and self.marker.exists() and self.marker.read_text() == self.hash


def missing(folder: Path | None = None) -> str | None:
    """None when the rig can run it, else what to do about it."""
    if LlamaEnvironment(folder or default_folder()).ready:
        return None
    return "the rig has no llamacpp here; prepare it with: tests/rig/prepare vllm && tests/rig/prepare llamacpp"


def prepare(folder: Path) -> None:
    """Make what is not there; an interrupted run goes on. SystemExit without the tiny model: a vllm kind makes that."""
    environment, model = LlamaEnvironment(folder), Model(folder)
    if environment.ready:
        return
    if not model.ready:
        raise SystemExit("the tiny model is not there yet; make it with: tests/rig/prepare vllm")
    with environments._alone(folder):
        environments._run([environments._python(), "-m", "venv", environment.root])
        environments._run([environment.python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", *PACKAGES])
        environments._run([environment.python, HERE / "gguf_model.py", model.root, environment.weights])
        environment.marker.write_text(environment.hash)


def main() -> None:
    parser = argparse.ArgumentParser(description="Prepare llama.cpp's server for tests.")
    parser.add_argument("folder", nargs="?", type=Path, default=default_folder(), help="default: %(default)s")
    folder = parser.parse_args().folder.expanduser().absolute()
    prepare(folder)
    print(LlamaEnvironment(folder).root)


if __name__ == "__main__":
    main()
