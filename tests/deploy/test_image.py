"""The image: built from the Dockerfile, small, without a compiler, run without rights on a root that stays as it is."""

from __future__ import annotations

import re
import stat
import subprocess
from pathlib import Path

import httpx
import pytest

from concur_proxy import __version__
from concur_proxy.sim.server import EngineOptions, EngineServer
from tests.deploy.image import ROOT, Builder, missing, running, wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]
LARGEST_MB = 200


@pytest.fixture(scope="module")
def image():
    builder = Builder()
    builder.build(BASE="localhost/concur-base", VERSION=__version__, REVISION="abc")
    try:
        with builder.mounted() as (root, inspected):
            yield root, inspected["Docker"]["config"]
    finally:
        builder.remove()


def megabytes(path: Path) -> float:
    done = subprocess.run(["du", "-sxk", path], check=True, capture_output=True, text=True)
    return int(done.stdout.split()[0]) / 1000


def test_it_is_small(image):
    root, _ = image
    assert megabytes(root) < LARGEST_MB
    assert megabytes(root / "opt") < LARGEST_MB - 125  # what is left beside python:slim


def test_it_has_no_compiler_no_sources_and_no_installer_of_ours(image):
    root, _ = image
    names = {path.name for path in (root / "usr/bin").iterdir()} | {
        path.name for path in (root / "opt/concur-proxy/bin").iterdir()
    }
    assert not {
        name for name in names if re.fullmatch(r"(x86_64-linux-gnu-)?(gcc|cc|g\+\+|ld|as|make)(-\d+)?|pip\d?", name)
    }
    assert not (root / "source").exists()
    assert not (root / "wheels").exists()


def test_it_says_what_it_is_and_runs_as_nobody(image):
    _, config = image
    assert config["User"] == "65532:65532"
    assert config["Entrypoint"] == ["concur-proxy"]
    assert config["Cmd"] == ["serve"]
    assert set(config["ExposedPorts"]) == {"8080/tcp"}
    labels = {name.removeprefix("org.opencontainers.image."): value for name, value in config["Labels"].items()}
    assert (labels["title"], labels["version"], labels["revision"]) == ("concur-proxy", __version__, "abc")
    assert labels["licenses"] == "Apache-2.0"


def test_nothing_in_it_belongs_to_the_user_that_it_runs_as_or_can_be_written_by_all(image):
    root, _ = image
    found = (path.lstat() for path in (root / "opt").rglob("*"))
    assert not any(
        one.st_uid == 65532 or (one.st_mode & stat.S_IWOTH and not stat.S_ISLNK(one.st_mode)) for one in found
    )


def test_it_serves_on_a_read_only_root_and_its_health_check_agrees(image):
    root, config = image
    with EngineServer(EngineOptions(port=0, model="m", speed=100.0)) as engine:
        with running(root, config, "serve", "--backend", engine.url, CONCUR_SERVER__PORT="0") as (process, log):
            url = wait_for(
                lambda: (
                    (re.search(r"listens on (http://\S+)", log.read_text()) or [None, None])[1] or ended(process, log)
                )
            )
            port = url.rpartition(":")[2]
            assert url.startswith("http://0.0.0.0:")
            base = f"http://127.0.0.1:{port}"
            assert httpx.get(f"{base}/livez").status_code == 200
            wait_for(lambda: httpx.get(f"{base}/readyz").status_code == 200)
            asked = {"model": "m", "max_tokens": 2, "messages": [{"role": "user", "content": "hi"}]}
            assert httpx.post(f"{base}/v1/chat/completions", json=asked, timeout=30).status_code == 200
            status = Path(f"/proc/{process.pid}/status").read_text()
            assert re.search(r"^Uid:\s+65532\s+65532", status, re.MULTILINE)
            assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE)
            mounts = Path(f"/proc/{process.pid}/mountinfo").read_text()
            assert re.search(rf" {re.escape(str(root))} ro,", mounts) or " / / ro" in mounts
            check = config["Healthcheck"]["Test"]
            assert check[0] == "CMD"
            command = ["chroot", "--userspec=65532:65532", root, *check[1:]]
            env = {**dict(pair.split("=", 1) for pair in config["Env"]), "CONCUR_SERVER__PORT": port}
            assert subprocess.run(command, check=False, env=env).returncode == 0
            assert (
                subprocess.run(
                    command, check=False, env={**env, "CONCUR_SERVER__PORT": "1"}, capture_output=True
                ).returncode
                != 0
            )
        assert process.returncode == 0, log


def ended(process, log):
    assert process.poll() is None, log.read_text()


def test_the_data_path_in_it_is_compiled(image):
    root, config = image
    with running(root, config, "--version") as (process, log):
        process.wait(60)
        assert log.read_text().strip() == f"concur-proxy {__version__} (compiled)"


def test_what_goes_into_the_build_is_listed_and_nothing_else_does():
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    assert all((ROOT / line.removeprefix("!")).exists() for line in lines if line.startswith("!"))
    assert not any(Path(line).name.startswith(".") for line in lines if line.startswith("!"))
