"""The bookkeeping of SGLang's environment, its command, and the placeholders that stand for a GPU's modules."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rig import sglang
from tests.rig.engine import RigError, SglangEngine, SglangOptions
from tests.rig.environments import Model
from tests.rig.sglang import SglangEnvironment, missing, prepare

ADOPTED = "#!/bin/sh\nexit 0\n"
SERVER = Path(sglang.__file__).with_name("sglang_server.py")


def install(folder: Path, script: str) -> SglangEnvironment:
    environment, model = SglangEnvironment(folder=folder), Model(folder)
    environment.python.parent.mkdir(parents=True)
    environment.python.write_text(script)
    environment.python.chmod(0o755)
    model.root.mkdir()
    model.marker.write_text(model.hash)
    return environment


def test_what_is_missing_is_told_with_the_command_that_makes_it(tmp_path: Path) -> None:
    assert missing(tmp_path) == "the rig has no sglang here; prepare it with: tests/rig/prepare sglang"
    with pytest.raises(RigError, match="tests/rig/prepare sglang"), SglangEngine(folder=tmp_path):
        pass


def test_a_working_one_is_adopted_and_then_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = install(tmp_path, ADOPTED)
    assert not environment.ready
    prepare(tmp_path)
    assert missing(tmp_path) is None
    monkeypatch.setattr(sglang.environments, "_adopt_or_build", lambda _: pytest.fail("it was looked at again"))
    prepare(tmp_path)


def test_another_recipe_or_model_makes_it_unready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = install(tmp_path, ADOPTED)
    prepare(tmp_path)
    Model(tmp_path).marker.write_text("older")
    assert missing(tmp_path) is not None
    monkeypatch.setattr(sglang, "RECIPE", sglang.Recipe("sglang", "0", ""))
    assert not environment.ready


def test_the_command_prints_where_the_environment_is(tmp_path: Path) -> None:
    environment = install(tmp_path, ADOPTED)
    command = [SERVER.with_name("prepare"), "sglang", tmp_path]
    variables = os.environ | {"PYTHON": sys.executable}
    done = subprocess.run(command, env=variables, check=True, capture_output=True, text=True)
    assert done.stdout == f"{environment.root}\n"
    assert "taken over" in done.stderr


def test_a_server_that_cannot_start_shows_its_log(tmp_path: Path) -> None:
    environment = install(tmp_path, "#!/bin/sh\necho no such model\nexit 3\n")
    environment.marker.write_text(environment.recipe.hash)
    with pytest.raises(RigError, match=r"(?s)ended with status 3 while starting.*no such model"):
        SglangEngine(folder=tmp_path).__enter__()


def test_options_become_sglangs_flags(tmp_path: Path) -> None:
    options = SglangOptions(folder=tmp_path, kv_tokens=1024, max_seqs=3, prompt_tokens_details=False)
    command = options.command(8000)
    assert command[:3] == [str(tmp_path / "sglang" / "bin" / "python"), "-P", str(SERVER)]
    assert command[command.index("--max-total-tokens") + 1] == "1024"
    assert command[command.index("--max-running-requests") + 1] == "3"
    assert "--enable-cache-report" not in command


def test_placeholders_have_what_is_asked_of_them_and_real_modules_stay_real(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    specification = importlib.util.spec_from_file_location("server", SERVER)
    assert specification is not None
    assert specification.loader is not None
    specification.loader.exec_module(importlib.util.module_from_spec(specification))
    kernels = importlib.import_module("sgl_kernel.deep.below")
    decorated = kernels.jit(lambda: 1)
    assert decorated() == 1
    assert issubclass(type("Own", (kernels.Base,), {}), kernels.Base)
    assert kernels.Kind.FAST == "Kind.FAST"
    assert importlib.import_module("json").loads("1") == 1
