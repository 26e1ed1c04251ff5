"""The rig's fourth engine: SGLang's server, scheduler and radix cache, with a forward pass in plain torch.

tests/rig/prepare sglang

with SglangEngine(kv_tokens=16_384) as engine: ...  # tests.rig.engine
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":  # as a script, by ``prepare``: the package is where we are from
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.rig import environments
from tests.rig.environments import TORCH_FAMILY, Environment, Model, Recipe, default_folder

KIND = "sglang"
GPU_ONLY = (
    "flashinfer.*|apache-tvm-ffi|tilelang|nvidia-.*|nvtx|nvshmem.*|cuda-.*|flash-attn.*|quack-kernels|humming-.*|sgl-.*|"
    "sglang-kernel|kernels|torch_memory_saver"
)
PICTURES = "timm|decord2"
RECIPE = Recipe("sglang", "0.5.23", f"{TORCH_FAMILY}|{GPU_ONLY}|{PICTURES}")

IMPORT_TEST = """
import importlib.metadata, sys
assert importlib.metadata.version(sys.argv[1]) == sys.argv[2]
import tokenizers, torch, safetensors.torch, transformers, triton, uvicorn
"""


@dataclass(frozen=True)
class SglangEnvironment(Environment):
    """The environment with SGLang in it, there or not."""

    kind: str = KIND
    folder: Path = Path()

    @property
    def recipe(self) -> Recipe:
        return RECIPE

    @property
    def unwanted(self) -> tuple[str, ...]:
        """Nothing: SGLang imports triton everywhere, and calls it nowhere on a CPU."""
        return ()

    def works(self) -> bool:
        """It holds the recipe's version, and what its server stands on can be imported."""
        test = [self.python, "-c", IMPORT_TEST, self.recipe.distribution, self.recipe.version]
        return self.python.exists() and subprocess.run(test, capture_output=True, check=False).returncode == 0


def missing(folder: Path | None = None) -> str | None:
    """None when the rig can run it, else what to do about it."""
    folder = folder or default_folder()
    if SglangEnvironment(folder=folder).ready and Model(folder).ready:
        return None
    return "the rig has no sglang here; prepare it with: tests/rig/prepare sglang"


def prepare(folder: Path) -> None:
    """Make what is not there, as ``environments.prepare`` does; the tiny model too."""
    environment, model = SglangEnvironment(folder=folder), Model(folder)
    if environment.ready and model.ready:
        return
    folder.mkdir(parents=True, exist_ok=True)
    with environments._alone(folder):
        if not environment.ready:
            environments._adopt_or_build(environment)
        if not model.ready:
            environments._make_model(model, environment)


def main() -> None:
    parser = argparse.ArgumentParser(description="Prepare SGLang for tests.")
    parser.add_argument("folder", nargs="?", type=Path, default=default_folder(), help="default: %(default)s")
    folder = parser.parse_args().folder.expanduser().absolute()
    prepare(folder)
    print(SglangEnvironment(folder=folder).root)


if __name__ == "__main__":
    main()
