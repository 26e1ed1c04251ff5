"""``serve --vllm`` as people run it: with a stand-in for vLLM, and with the real one on the rig."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.clients.stack import PATIENCE_S, POLL_S, ProxyProcess, children, ended
from tests.rig.engine import PLUGIN, EngineOptions
from tests.rig.environments import missing

FAKE = str(Path(__file__).parent / "fake")
REPOSITORY = str(Path(__file__).parents[2])


def engine_of(proxy: int) -> int:
    """The engine's server: the proxy starts a warden, and that the server."""
    (warden,) = children(proxy)
    return children(warden)[0]


def test_the_engine_is_started_proxied_and_ended() -> None:
    with ProxyProcess([], flags=["--vllm", "m"], env={"PYTHONPATH": FAKE}) as proxy:
        status = httpx.get(f"{proxy.url}/concur/status").json()
        assert [backend["name"] for backend in status["backends"]] == ["vllm"]
        engine = engine_of(proxy.pid)
    assert ended(engine)


def test_the_engine_ends_with_a_proxy_that_is_killed() -> None:
    killed = 128 + signal.SIGKILL
    with ProxyProcess([], flags=["--vllm", "m"], env={"PYTHONPATH": FAKE}, status=killed) as proxy:
        engine = engine_of(proxy.pid)
        os.kill(proxy.pid, signal.SIGKILL)
        assert ended(engine)


@pytest.mark.parametrize(
    ("arguments", "variables", "status", "said"),
    [
        (["m"], {}, 1, "vLLM is not installed here; install it with: pip install 'concur-proxy[vllm]'"),
        (["m", "--", "--disable-log-stats"], {}, 2, "steers by the engine's metrics"),
        (["m"], {"PYTHONPATH": FAKE, "FAKE_FAILS": FAKE}, 1, "ValueError: the model does not fit"),
    ],
    ids=["not installed", "unusable flag", "does not start"],
)
def test_what_is_wrong_is_said_and_the_proxy_ends(
    arguments: list[str], variables: dict[str, str], status: int, said: str
) -> None:
    command = [sys.executable, "-m", "concur_proxy", "serve", "--port", "0", "--vllm", *arguments]
    done = subprocess.run(
        command, env=os.environ | variables, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == status, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.skipif(bool(missing("vllm")), reason=str(missing("vllm")))
def test_real_vllm_comes_up_behind_the_proxy_comes_back_after_a_crash_and_ends() -> None:
    """Proxy and engine in one environment, as ``pip install 'concur-proxy[vllm]'`` makes it."""
    options = EngineOptions("vllm", speed=20, prompt_tokens_details=False)
    path = {"PYTHONPATH": os.pathsep.join((REPOSITORY, str(PLUGIN)))}
    with ProxyProcess(
        [],
        flags=["--vllm", str(options.model_folder), "--", *options.arguments()],
        env=options.variables() | path,
        python=str(options.python),
        patience_s=180,
    ) as proxy:
        assert cached_tokens(proxy) == 0
        assert cached_tokens(proxy) > 0
        engine = engine_of(proxy.pid)
        workers = children(engine)
        assert workers
        os.kill(engine, signal.SIGKILL)
        wait_until_not_ready(proxy)
        assert all(ended(process) for process in (engine, *workers))
        proxy.wait_until_ready()
        assert cached_tokens(proxy) == 0
        engine = engine_of(proxy.pid)
        workers = children(engine)
    assert all(ended(process) for process in (engine, *workers))


def cached_tokens(proxy: ProxyProcess) -> int:
    body: dict[str, Any] = {"model": "tiny", "prompt": "again and again " * 20, "max_tokens": 2}
    answer = httpx.post(f"{proxy.url}/v1/completions", json=body, timeout=PATIENCE_S)
    assert answer.status_code == 200, answer.text
    return int(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])


def wait_until_not_ready(proxy: ProxyProcess) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while proxy.ready():
        assert time.monotonic() < deadline, "the proxy has not noticed"
        time.sleep(POLL_S)
