import io
import os
import re
import signal
import socket
import subprocess
import sys
from dataclasses import replace

import pytest
from rich.console import Console

from concur_proxy.bench import demo
from concur_proxy.bench.demo import AGENTS, ENGINE, DemoOptions, run_demo
from concur_proxy.bench.proxy_process import ProxyProcess
from concur_proxy.errors import BackendError
from concur_proxy.sim.server import EngineServer

SMALL = DemoOptions(agents=replace(AGENTS, sessions=6, turns=4), engine=replace(ENGINE, speed=300))


def children():
    """Processes below this one, whatever they are."""
    with subprocess.Popen(["ps", "-eo", "pid=,ppid="], stdout=subprocess.PIPE, text=True) as ps:
        listing = ps.stdout.read()
    parents = dict(map(int, row.split()) for row in listing.splitlines())
    below = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    return below - {os.getpid(), ps.pid}


def test_both_ways_are_played_and_nothing_is_left_behind():
    before = children()
    out = io.StringIO()
    assert run_demo(SMALL, Console(file=out, width=100)) == 0
    text = out.getvalue()
    assert re.search(r"output tokens per second +[\d,]+ +[\d,]+", text)
    assert re.search(r"[\d.]+ times the throughput", text)
    assert "through concur-proxy: done" in text
    assert children() <= before


@pytest.mark.parametrize("where", ["_play_direct", "_play_proxied"])
def test_an_interrupted_demo_ends_its_children(monkeypatch, where):
    def interrupt(*_):
        raise KeyboardInterrupt

    before = children()
    monkeypatch.setattr(demo, where, interrupt)
    out = io.StringIO()
    assert run_demo(SMALL, Console(file=out)) == 130
    assert "interrupted" in out.getvalue()
    assert children() <= before


KILLED = """
import sys
from concur_proxy.bench.proxy_process import ProxyProcess
from concur_proxy.sim.server import EngineOptions, EngineServer
with EngineServer(EngineOptions(port=0)) as engine, ProxyProcess([engine.url]) as proxy:
    print(proxy.url, flush=True)
    sys.stdin.read()
"""


def test_a_demo_that_is_killed_leaves_no_proxy_behind():
    with subprocess.Popen([sys.executable, "-c", KILLED], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        port = int(child.stdout.readline().rpartition(b":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            connection.sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
            child.send_signal(signal.SIGKILL)
            while connection.recv(1000):
                pass


def test_a_proxy_that_cannot_start_says_why():
    with pytest.raises(BackendError, match="did not start") as caught:
        ProxyProcess(["http://127.0.0.1:1"], flags=["--law", "nonsense"])
    assert "nonsense" in caught.value.message


def test_the_environment_does_not_configure_the_proxy(monkeypatch):
    monkeypatch.setenv("CONCUR_CONTROL__LAW", "nonsense")
    with EngineServer(ENGINE) as engine, ProxyProcess([engine.url]) as proxy:
        assert proxy.url.startswith("http://127.0.0.1:")
