"""The status table, against a small server."""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

from rich.console import Console

from concur_proxy.admin.reports import BackendReport, HotLaneReport, SessionState, SignalsReport, StatusReport
from concur_proxy.admin.view import render

STATUS = StatusReport(
    version="1.2",
    uptime_s=3723,
    mode="enforce",
    law="aimd",
    held=5,
    sessions={SessionState.RUNNING: 3, SessionState.PAUSED: 2},
    turns={"arrived": 10},
    backends=[
        BackendReport(
            name="gpu:8000",
            url="http://gpu:8000",
            state="up",
            unit="sessions",
            window=12.4,
            window_min=1,
            window_max=None,
            reason="KV usage 0.12 is below 0.2: the window grows",
            running=3,
            active=4,
            idle=1,
            held=5,
            footprint_tokens=41_000,
            capacity_tokens=131_072,
            signals=SignalsReport(age_s=0.4, stale=False, kv_usage=0.12, hit_rate=0.875, waiting=0),
        ),
        BackendReport(
            name="spare",
            url="http://spare",
            state="lost",
            problem="connection refused",
            unit="sessions",
            window=None,
            window_min=1,
            window_max=None,
            running=0,
            idle=0,
            footprint_tokens=0,
            signals=SignalsReport(age_s=None, stale=True, problem="/metrics is missing (404)"),
        ),
    ],
)


@contextmanager
def serving(status: int, body: str):
    seen = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append((self.path, self.headers.get("authorization")))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", seen
        finally:
            server.shutdown()
            thread.join()


def test_a_window_of_tokens_is_set_against_tokens():
    backend = STATUS.backends[0].model_copy(update={"unit": "tokens", "window": 124_518.4})
    console = Console(width=80)
    with console.capture() as captured:
        console.print(render(STATUS.model_copy(update={"law": "footprint", "backends": [backend]})))
    shown = captured.get()
    assert "law footprint (counts tokens)" in shown
    rows = [re.split(r"  +", line.strip()) for line in shown.splitlines()]
    assert ["gpu:8000", "up", "4", "5", "41k of 125k", "12%", "88%", "0"] in rows


def test_hits_are_those_of_many_turns_and_old_samples_say_nothing_of_now():
    old = SignalsReport(age_s=60, stale=True, kv_usage=0.12, hit_rate=0.0, waiting=7)
    backend = STATUS.backends[0].model_copy(update={"recent_hit_rate": 0.79, "signals": old})
    console = Console(width=80)
    with console.capture() as captured:
        console.print(render(STATUS.model_copy(update={"backends": [backend]})))
    rows = [re.split(r"  +", line.strip()) for line in captured.get().splitlines()]
    assert ["gpu:8000", "up", "4 of 12", "5", "41k of 131k", "?", "79%", "?"] in rows


def test_the_table_shows_every_backend_and_why():
    console = Console(width=80)
    with console.capture() as captured:
        console.print(render(STATUS))
    shown = captured.get()
    assert "concur-proxy 1.2, up 1 h 2 min, enforce, law aimd (counts sessions)" in shown
    assert "sessions: 3 running, 2 paused; turns held: 5" in shown
    rows = [re.split(r"  +", line.strip()) for line in shown.splitlines()]
    assert ["gpu:8000", "up", "4 of 12", "5", "41k of 131k", "12%", "88%", "0"] in rows
    assert ["spare", "lost", "? of any", "?", "0 of ?", "?", "?", "?"] in rows
    assert "gpu:8000: window: KV usage 0.12 is below 0.2: the window grows" in shown
    assert "spare: connection refused" in shown
    assert "spare: metrics: /metrics is missing (404)" in shown


def test_it_shows_how_interactive_turns_fare_where_they_have_an_objective():
    lanes = [
        HotLaneReport(pool="a", p99_s=2.345, objective_s=2, batch="held"),
        HotLaneReport(pool="b", p99_s=None, objective_s=2, batch="open"),
    ]
    console = Console(width=120)
    with console.capture() as captured:
        console.print(render(STATUS.model_copy(update={"hot_lanes": lanes})))
    shown = captured.get()
    assert "a: first token of interactive turns: p99 2.35 s, objective 2 s; batch work is held back" in shown
    assert "b: first token of interactive turns: nobody asks, objective 2 s; batch work goes on" in shown
