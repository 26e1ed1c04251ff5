"""What a person types, run as a person would: as a program."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from concur_proxy import __version__, build
from concur_proxy.core import gate
from concur_proxy.sim.server import EngineOptions, EngineServer

COMMANDS = ("serve", "check", "status", "engine", "demo", "bench")


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("CONCUR_")}
    return subprocess.run(
        [sys.executable, "-m", "concur_proxy", *arguments],
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
        env={**clean, "COLUMNS": "200", **environment},
    )


def refused(*arguments: str, **environment: str) -> str:
    done = run(*arguments, **environment)
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.stderr


def test_version():
    assert run("--version").stdout in {
        f"concur-proxy {__version__} (compiled)\n",
        f"concur-proxy {__version__} (pure Python)\n",
    }


def test_the_version_tells_what_serves():
    loaded = "compiled" if gate.__file__.endswith(".so") else "pure Python"
    assert build() == loaded


def test_help_names_every_command():
    shown = run("--help").stdout
    assert all(f"│ {command} " in shown for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_has_an_example(command):
    assert f"concur-proxy {command}" in run(command, "--help").stdout.partition("Usage:")[2].partition("\n")[2]


def test_help_imports_nothing_heavy():
    heavy = ["pydantic", "fastapi", "httpx", "yaml", "uvicorn"]
    code = f"import sys; from concur_proxy import cli; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_serve_without_an_engine_shows_how_to_name_one():
    said = refused("serve")
    assert "there is no engine to proxy" in said
    assert "concur-proxy serve --backend http://localhost:8000" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--backend", "http://a", "--law", "best"],
            "--law: control.law = 'best': must be one of unlimited, fixed, aimd",
        ),
        (["--backend", "localhost"], "--backend: backends[0].url = 'localhost': must be a URL"),
        (
            ["--backend", "http://a", "--port", "99999"],
            "--port: server.port = 99999: must be a whole number, 0 to 65535",
        ),
        (["--backend", "http://a", "--port", "http"], "Invalid value for '--port'"),
        (["--backend", "http://a", "--window", "4", "--law", "aimd"], "--window belongs to the law fixed"),
        (["--backend", "http://a", "--window", "0"], "--window: control.fixed.window = 0.0: must be a number, 1 to"),
        (["http://a:8000"], "unexpected argument http://a:8000; did you mean --backend http://a:8000?"),
        (["localhost:8000"], "unexpected argument localhost:8000; did you mean --backend http://localhost:8000?"),
        (["--backend", "http://a", "--", "--max-model-len", "9"], "engine flags go with --vllm MODEL"),
        (["--config", "none.yaml"], "none.yaml: cannot be read"),
        (["--config", "none.yaml", "--config", "other.yaml"], "--config is given twice"),
        (["--vllm", ""], "--vllm names no model"),
        (["--bakend", "http://a"], "No such option: --bakend"),
    ],
)
def test_a_wrong_command_line_is_refused_in_plain_words(arguments, said):
    assert said in refused("serve", *arguments)


def test_workers_without_the_library_of_their_state_do_not_start():
    code = "import sys; sys.modules['redis'] = None; from concur_proxy.cli import main; main()"
    flags = ["serve", "--backend", "http://a", "--port", "0", "--workers", "2", "--state", "redis://a"]
    done = subprocess.run([sys.executable, "-c", code, *flags], capture_output=True, check=False, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.count("pip install 'concur-proxy[redis]'") == 1, done.stderr


def test_the_environment_may_name_the_file(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("server: {port: -1}\n")
    assert f"{path}:1: server.port = -1" in refused("serve", CONCUR_CONFIG=str(path))


def test_check_finds_what_serve_would(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("backends: [http://a]\ngate:\n  max_wait: 3\n")
    said = refused("check", str(path), CONCUR_LOG__LEVEL="loud")
    assert f"{path}:3: gate.max_wait: unknown key; did you mean max_wait_s?" in said
    assert "CONCUR_LOG__LEVEL: log.level = 'loud'" in said


def test_check_shows_what_differs_from_the_defaults_without_secrets(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(
        "backends: [http://a, {url: http://b, api_key: hidden}]\nserver: {port: 8080, admin_token: hidden}\n"
        "control: {law: fixed, fixed: {window: 4}}\n"
    )
    done = run("check", str(path), CONCUR_GATE__MAX_WAIT_S="60")
    assert done.returncode == 0
    assert done.stdout.splitlines()[1:] == [
        "  backends[0].url = http://a",
        "  backends[1].url = http://b",
        "  backends[1].api_key = ********",
        "  server.admin_token = ********",
        "  control.law = fixed",
        "  control.fixed.window = 4",
        "  gate.max_wait_s = 60",
    ]


def test_check_says_that_backends_are_missing(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("")
    assert "there are no backends" in run("check", str(path)).stdout


def test_a_key_in_a_folder_that_is_not_there(tmp_path):
    done = run("keygen", "team-a", "--file", str(tmp_path / "nowhere" / "keys.yaml"))
    assert done.returncode == 2
    assert done.stderr.endswith("keys.yaml: cannot be read and written: No such file or directory\n")
    assert done.stdout == ""


def test_status_of_nobody():
    done = run("status", "http://127.0.0.1:9")
    assert done.returncode == 1
    assert "no answer from http://127.0.0.1:9" in done.stderr
    assert "Traceback" not in done.stderr


def test_serve_and_status_and_an_orderly_end():
    command = [sys.executable, "-m", "concur_proxy", "serve", "--backend", "http://127.0.0.1:9", "--port", "0"]
    command += ["--window", "3", "--observe"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as proxy:
        try:
            greeting = proxy.stdout.readline()
            url = re.search(r"http://127\.0\.0\.1:\d+", greeting)[0]
            shown = run("status", url).stdout
        finally:
            proxy.terminate()
    assert proxy.returncode == 0
    assert "observing: nothing is held" in greeting
    assert "observe, law fixed (counts sessions)" in shown
    assert "of 3 " in shown


def test_engine_profiles_are_listed_with_their_sizes():
    shown = run("engine", "--list-profiles").stdout
    assert "qwen3-32b-1xh100" in shown
    assert "KV tokens" in shown


def test_an_unknown_profile_is_refused():
    assert "profile: 'abacus' is not one of laptop" in refused("engine", "--profile", "abacus")


def test_a_port_that_cannot_be_is_refused_by_the_engine():
    assert "Invalid value for '--port'" in refused("engine", "--port", "99999")


def test_an_unknown_law_is_refused_before_the_demo_starts():
    assert "--law = 'best': must be one of unlimited, fixed, aimd" in refused("demo", "--law", "best")


def test_bench_plays_agents_and_writes_every_figure(tmp_path):
    path = tmp_path / "figures.json"
    size = [
        "--agents",
        "2",
        "--turns",
        "2",
        "--new-tokens",
        "20",
        "--output-tokens",
        "3",
        "--think",
        "0",
        "--rounds",
        "1",
    ]
    with EngineServer(EngineOptions(port=0, speed=1000)) as engine:
        done = run(
            "bench", f"one={engine.url}", f"two={engine.url}", "--engine", engine.url, *size, "--json", str(path)
        )
    assert done.returncode == 0, done
    assert "How many times one's" in done.stdout
    written = json.loads(path.read_text())
    assert (written["asked"][0], written["agents"], written["turns"]) == ("bench", 2, 4)
    runs = written["runs"]
    assert [[run["turns"] for run in runs[label]] for label in ("one", "two")] == [[4], [4]]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["x"], "'x' is not an http:// or https:// URL"),
        (["a=http://127.0.0.1:9", "a=http://127.0.0.1:9"], "at least one is needed, with different labels"),
        (["http://127.0.0.1:9", "--rounds", "0"], "Invalid value for '--rounds'"),
        ([], "Missing argument 'TARGET...'"),
    ],
)
def test_a_wrong_bench_is_refused(arguments, said):
    assert said in refused("bench", *arguments)
