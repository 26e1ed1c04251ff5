"""A small fleet under Prometheus: engines, the proxy, agents, and faults that are made on purpose."""

from __future__ import annotations

import contextlib
import itertools
import random
import re
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

import httpx
import yaml

from concur_proxy.fleet import warden
from tests.ports import free_port

PATIENCE_S = 180.0
POLL_S = 0.05
RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "rules"

DCGM = """\
# TYPE DCGM_FI_PROF_SM_ACTIVE gauge
DCGM_FI_PROF_SM_ACTIVE{gpu="0",Hostname="gpu-node"} 0.82
# TYPE DCGM_FI_PROF_DRAM_ACTIVE gauge
DCGM_FI_PROF_DRAM_ACTIVE{gpu="0",Hostname="gpu-node"} 0.41
# TYPE DCGM_FI_PROF_PIPE_TENSOR_ACTIVE gauge
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu="0",Hostname="gpu-node"} 0.37
# TYPE DCGM_FI_DEV_GPU_TEMP gauge
DCGM_FI_DEV_GPU_TEMP{gpu="0",Hostname="gpu-node"} 61
"""
"""What NVIDIA's exporter says of one GPU, as far as the dashboards ask."""


class Page:
    """An HTTP server with one page, made anew for each request; None breaks it."""

    def __init__(self, read: Callable[[], bytes | None]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                with contextlib.suppress(ConnectionError):  # whoever asked may be gone
                    self._answer(read())

            def _answer(self, body: bytes | None) -> None:
                self.send_response(500 if body is None else 200)
                self.send_header("content-type", "text/plain; version=0.0.4")
                self.send_header("content-length", str(len(body or b"")))
                self.end_headers()
                self.wfile.write(body or b"")

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Relayed(Page):
    """The metrics of an engine that can be broken while the engine itself goes on."""

    def __init__(self, url: str) -> None:
        self.broken = False
        self._url = url
        super().__init__(self._ask)

    def _ask(self) -> bytes | None:
        with contextlib.suppress(httpx.HTTPError):
            return None if self.broken else httpx.get(f"{self._url}/metrics").content
        return None


@dataclass(frozen=True)
class Habits:
    """``words``: of a first prompt; ``result``: what a tool call adds; ``tokens``: of answers, on average."""

    words: int
    think_s: float
    turns: int = 8
    result: int = 4
    tokens: int = 8


class Agents:
    """Agents that talk until they are stopped; each says goodbye after its turns, and begins anew."""

    def __init__(self, url: str, count: int, habits: Habits, *, first: int = 0) -> None:
        """``first``: number of the first one; agents of one number have the same sessions."""
        self._url, self._habits = url, habits
        self._stop = threading.Event()
        numbers = range(first, first + count)
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in numbers]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, number: int) -> None:
        chance = random.Random(number)
        with httpx.Client(base_url=self._url, timeout=120) as client:
            for life in itertools.count():
                if self._stop.is_set():
                    return
                self._live(client, f"agent-{number}-{life}", number, chance)

    def _live(self, client: httpx.Client, session: str, number: int, chance: random.Random) -> None:
        habits = self._habits
        messages = [{"role": "user", "content": text(session, habits.words)}]
        headers = {
            "X-Session-ID": session,
            "X-Tenant": f"team-{number % 2}",
            "X-Vllm-Priority": str(number % 3),
            "traceparent": f"00-{chance.getrandbits(128) | 1:032x}-{chance.getrandbits(64) | 1:016x}-01",
        }
        for turn in range(habits.turns):
            asked = {
                "model": "m",
                "messages": messages,
                "max_tokens": max(1, round(chance.uniform(0.5, 1.5) * habits.tokens)),
                "ignore_eos": True,
                "stream": True,
            }
            with contextlib.suppress(httpx.HTTPError):
                client.post("/v1/chat/completions", json=asked, headers=headers)
            messages += [
                {"role": "assistant", "content": "ok"},
                {"role": "user", "content": text(f"{session}-{turn}", habits.result)},
            ]
            if self._stop.wait(chance.uniform(0.5, 1.5) * habits.think_s):
                return
        with contextlib.suppress(httpx.HTTPError):
            client.delete(f"/concur/sessions/{session}")


def text(name: str, words: int) -> str:
    """Return words that nobody else has."""
    return " ".join(f"{name}-{word}" for word in range(words))


class Prometheus:
    """The real one, on a free port, with our rules in a hurry; a context manager that ends it."""

    def __init__(
        self, folder: Path, jobs: dict[str, str], *, hurry: Callable[[str], str] = str, every: str = "200ms"
    ) -> None:
        """``jobs``: target by name. ``hurry`` changes the text of each file of rules. ``every``: time between looks."""
        self._folder, port = folder, free_port()
        rules = [folder / path.name for path in sorted(RULES.glob("*.yml"))]
        for path in rules:
            path.write_text(hurry((RULES / path.name).read_text()))
        config = {
            "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
            "rule_files": list(map(str, rules)),
            "scrape_configs": [
                {"job_name": name, "static_configs": [{"targets": [target]}]} for name, target in jobs.items()
            ],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self._command = [
            "prometheus",
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--enable-feature=exemplar-storage",
        ]
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30)

    def __enter__(self) -> Self:
        self._log = (self._folder / "log").open("w+b")
        self._process = subprocess.Popen(
            warden.command(self._command, grace_s=10), stdin=subprocess.PIPE, stdout=self._log, stderr=self._log
        )
        until(self._answers, "Prometheus did not start")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        self._process.wait(15)
        self._log.close()
        self.client.close()

    def _answers(self) -> bool:
        try:
            return self.client.get("/-/ready").status_code == 200
        except httpx.TransportError:
            return False

    def query(self, expr: str) -> list[float]:
        """Return the values of all series that a query gives now, those that are not numbers left out."""
        answer = self.client.get("/api/v1/query", params={"query": expr}).json()
        assert answer["status"] == "success", (expr, answer)
        values = [float(series["value"][1]) for series in answer["data"]["result"]]
        return [value for value in values if value == value]  # noqa: PLR0124 - NaN

    def range(self, expr: str, start: float, end: float, step_s: float) -> list[tuple[list[float], list[float]]]:
        """Return times and values of each series that a query gives over a stretch of time."""
        asked = {"query": expr, "start": start, "end": end, "step": step_s}
        answer = self.client.get("/api/v1/query_range", params=asked).json()
        assert answer["status"] == "success", (expr, answer)
        points = [series["values"] for series in answer["data"]["result"]]
        return [([at for at, _ in each], [float(value) for _, value in each]) for each in points]

    def exemplars(self, expr: str) -> list[dict[str, str]]:
        """Return the labels of the exemplars of the last minute."""
        asked = {"query": expr, "start": time.time() - 60, "end": time.time()}
        answer = self.client.get("/api/v1/query_exemplars", params=asked).json()
        return [each["labels"] for series in answer["data"] for each in series["exemplars"]]

    def firing(self) -> set[str]:
        return {
            alert["labels"]["alertname"]
            for alert in self.client.get("/api/v1/alerts").json()["data"]["alerts"]
            if alert["state"] == "firing"
        }


def until(true: Callable[[], object], complaint: str, *, patience_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < deadline, complaint
        time.sleep(POLL_S)


def in_a_hurry(rules: str) -> str:
    """Return rules that see in seconds what they would see in minutes, and are content with less."""
    rules = re.sub(r"\[(5m|30m|1h|6h)\]", "[3s]", rules)
    rules = re.sub(r"^( +)for: \w+$", r"\1for: 0s", rules, flags=re.MULTILINE)
    rules = re.sub(r"^( +)interval: \w+$", r"\1interval: 200ms", rules, flags=re.MULTILINE)
    return rules.replace('le="5.0"', 'le="0.1"').replace("seconds > 120", "seconds > 0.2")
