"""The image: built from the Dockerfile, small, without a compiler, run without rights on a root that stays as it is."""

from __future__ import annotations

import re
import stat
import subprocess
from pathlib import Path

import httpx
import pytest

from concur_proxy import __version__
from concur_proxy.auth.keys import new_key, with_key
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
    done = subprocess.run(["du", "-sxk", "--apparent-size", path], check=True, capture_output=True, text=True)
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


def test_it_serves_on_a_read_only_root_to_who_has_a_key(image):
    root, config = image
    key = new_key()
    env = {"CONCUR_SERVER__PORT": "0", "CONCUR_AUTH__KEYS": with_key("", "keys", key, "team-a", models=["m"])}
    with (
        EngineServer(EngineOptions(port=0, model="m", speed=100.0)) as engine,
        running(root, config, "serve", "--backend", engine.url, **env) as (process, log),
    ):
        port = wait_for(lambda: port_of(process, log))
        base = f"http://127.0.0.1:{port}"
        assert httpx.get(f"{base}/livez").status_code == 200
        wait_for(lambda: httpx.get(f"{base}/readyz").status_code == 200)
        asked = {"model": "m", "max_tokens": 2, "messages": [{"role": "user", "content": "hi"}]}
        statuses = [
            httpx.post(f"{base}/v1/chat/completions", json={**asked, **change}, headers=headers, timeout=30).status_code
            for change, headers in (
                ({}, {"authorization": f"Bearer {key}"}),
                ({"model": "n"}, {"x-api-key": key}),
                ({}, {"x-api-key": "ck_wrong"}),
                ({}, {}),
            )
        ]
        assert statuses == [200, 403, 401, 401]
        without_rights(process.pid)
        assert check_health(root, config, port) == 0
        assert check_health(root, config, "1") != 0
    assert process.returncode == 0


def port_of(process, log):
    assert process.poll() is None, log.read_text()
    found = re.search(r"listens on http://0\.0\.0\.0:(\d+)", log.read_text())
    return found[1] if found else None


def without_rights(pid):
    """Check that a process is nobody's, can do nothing special, and cannot write to its root."""
    status = Path(f"/proc/{pid}/status").read_text()
    assert re.search(r"^Uid:\s+65532\s+65532", status, re.MULTILINE)
    assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE)
    mounts = Path(f"/proc/{pid}/mountinfo").read_text()
    assert re.search(r"^\d+ \d+ \S+ \S+ / ro,", mounts, re.MULTILINE)


def check_health(root, config, port):
    kind, *command = config["Healthcheck"]["Test"]
    assert kind == "CMD"
    env = {**dict(pair.split("=", 1) for pair in config["Env"]), "CONCUR_SERVER__PORT": port}
    inside = ["chroot", "--userspec=65532:65532", root, *command]
    return subprocess.run(inside, check=False, env=env, capture_output=True).returncode


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
