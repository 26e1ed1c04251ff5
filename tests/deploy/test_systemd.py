"""The unit of systemd: systemd understands it, thinks well of it, and the proxy can live in it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from concur_proxy.config import ServerSettings
from concur_proxy.sim.server import EngineOptions, EngineServer
from tests.clients.stack import ProxyProcess

UNIT = Path(__file__).parents[2] / "deploy" / "systemd" / "concur-proxy.service"
PAGE = Path(__file__).parents[2] / "docs" / "deploy.md"
needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here")


def settings():
    lines = [line for line in UNIT.read_text().splitlines() if "=" in line and not line.startswith("#")]
    found: dict[str, list[str]] = {}
    for line in lines:
        name, _, value = line.partition("=")
        found.setdefault(name, []).append(value)
    return found


@pytest.fixture
def unit(tmp_path):
    """The unit with a program that exists."""
    path = tmp_path / UNIT.name
    path.write_text(UNIT.read_text().replace("/opt/concur-proxy/bin/concur-proxy", sys.executable))
    return path


@needs_systemd
def test_systemd_understands_all_of_it(unit):
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], check=False, capture_output=True, text=True)
    said = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert (done.returncode, said) == (0, [])


@needs_systemd
def test_systemd_thinks_that_little_is_exposed(unit):
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--threshold=20", unit],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-500:] + done.stderr


def test_streams_have_time_to_end():
    assert int(settings()["TimeoutStopSec"][0]) > ServerSettings().grace_s + 10


def test_its_commands_bring_up_what_the_page_configures(tmp_path):
    """The steps of docs/deploy.md, with folders and ports of our own in place of the system's."""
    section = PAGE.read_text().partition("## On a server, with systemd")[2].partition("\n## ")[0]
    (text,) = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    keygen = re.search(r"^/opt/concur-proxy/bin/concur-proxy (keygen .*)$", section, re.MULTILINE)[1]
    program = [sys.executable, "-m", "concur_proxy"]
    key = subprocess.run([*program, *keygen.split()], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    with EngineServer(EngineOptions(port=0, model="m", speed=100.0)) as engine:
        for theirs, ours in (("/etc/concur-proxy", tmp_path), ("/var/lib/concur-proxy", tmp_path)):
            text = text.replace(theirs, str(ours))
        (tmp_path / "config.yaml").write_text(text.replace("http://127.0.0.1:8000", engine.url))
        check, serve = (
            settings()[name][0].removeprefix("/opt/concur-proxy/bin/concur-proxy ").replace("/etc/concur-proxy/", "")
            for name in ("ExecStartPre", "ExecStart")
        )
        checked = subprocess.run([*program, *check.split()], cwd=tmp_path, check=False, capture_output=True, text=True)
        assert checked.returncode == 0, checked.stderr
        assert serve == "serve --config config.yaml"
        with ProxyProcess([], flags=["--config", str(tmp_path / "config.yaml")]) as proxy:
            assert httpx.get(f"{proxy.url}/livez").status_code == 200
            asked = {"model": "m", "max_tokens": 2, "messages": [{"role": "user", "content": "hi"}]}
            for headers, status in (({}, 401), ({"authorization": f"Bearer {key.strip()}"}, 200)):
                answer = httpx.post(f"{proxy.url}/v1/chat/completions", json=asked, headers=headers, timeout=30)
                assert answer.status_code == status


def test_the_proxy_lives_without_memory_that_is_writable_and_executable(tmp_path):
    assert settings()["MemoryDenyWriteExecute"] == ["yes"]
    denied = tmp_path / "python"
    denied.write_text(
        f"#!{sys.executable}\n"
        "import ctypes, os, sys\n"
        "if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0):\n"
        "    sys.exit('no PR_SET_MDWE')\n"
        f"os.execv({sys.executable!r}, [{sys.executable!r}, *sys.argv[1:]])\n"
    )
    denied.chmod(0o755)
    if subprocess.run([denied, "-c", ""], check=False, capture_output=True).returncode:
        pytest.skip("this kernel cannot deny such memory to a process")
    with (
        EngineServer(EngineOptions(port=0, model="m", speed=100.0)) as engine,
        ProxyProcess([engine.url], python=str(denied)) as proxy,
    ):
        asked = {"model": "m", "max_tokens": 2, "messages": [{"role": "user", "content": "hi"}]}
        assert httpx.post(f"{proxy.url}/v1/chat/completions", json=asked, timeout=30).status_code == 200
        for path in ("/livez", "/metrics", "/concur/status"):
            assert httpx.get(f"{proxy.url}{path}").status_code == 200
