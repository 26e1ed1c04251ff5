"""The bookkeeping of llama.cpp's environment, and that its server starts or says why it does not."""

from pathlib import Path

import pytest

from tests.rig import llamacpp
from tests.rig.engine import LlamaEngine, LlamaOptions, RigError
from tests.rig.environments import Model
from tests.rig.gguf_model import gguf_name
from tests.rig.llamacpp import LlamaEnvironment, missing, prepare


def install(folder: Path) -> LlamaEnvironment:
    environment, model = LlamaEnvironment(folder), Model(folder)
    environment.python.parent.mkdir(parents=True)
    environment.python.write_text("#!/bin/sh\necho no such model\nexit 3\n")
    environment.python.chmod(0o755)
    model.root.mkdir()
    model.marker.write_text(model.hash)
    environment.marker.write_text(environment.hash)
    return environment


def test_what_is_missing_is_told_with_the_commands_that_make_it(tmp_path: Path) -> None:
    told = missing(tmp_path)
    assert told is not None
    assert told.endswith("tests/rig/prepare vllm && tests/rig/prepare llamacpp")
    with pytest.raises(RigError, match="tests/rig/prepare llamacpp"), LlamaEngine(folder=tmp_path):
        pass


def test_without_the_tiny_model_it_says_who_makes_it(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="tests/rig/prepare vllm"):
        prepare(tmp_path)


def test_what_is_there_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path)
    monkeypatch.setattr(llamacpp.environments, "_run", lambda _: pytest.fail("something was run"))
    assert missing(tmp_path) is None
    prepare(tmp_path)


def test_other_packages_or_another_model_make_it_unready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = install(tmp_path)
    assert environment.ready
    monkeypatch.setattr(llamacpp, "PACKAGES", ("xllamacpp==0",))
    assert not environment.ready


def test_a_server_that_cannot_start_shows_its_log(tmp_path: Path) -> None:
    install(tmp_path)
    with pytest.raises(RigError, match=r"(?s)ended with status 3 while starting.*no such model"):
        LlamaEngine(folder=tmp_path).__enter__()


def test_its_command_names_port_cache_slots_and_threads(tmp_path: Path) -> None:
    command = LlamaOptions(folder=tmp_path, kv_tokens=1024, slots=2, threads=3).command(8000)
    assert command[-5:] == [str(tmp_path / "llamacpp" / "tiny.gguf"), "8000", "1024", "2", "3"]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("model.embed_tokens.weight", "token_embd.weight"),
        ("lm_head.weight", "output.weight"),
        ("model.layers.1.self_attn.q_norm.weight", "blk.1.attn_q_norm.weight"),
        ("model.layers.0.mlp.down_proj.weight", "blk.0.ffn_down.weight"),
    ],
)
def test_tensors_have_other_names_there(name: str, found: str) -> None:
    assert gguf_name(name) == found
