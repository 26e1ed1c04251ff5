"""A server in a thread that answers like an engine, well or ill, and closes idle connections when it is told to."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HEALTHY = """\
vllm:num_requests_running{engine="0"} 3
vllm:num_requests_waiting{engine="0"} 0
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:prompt_tokens_total{engine="0"} 100
vllm:cache_config_info{enable_prefix_caching="True",engine="0",kv_cache_size_tokens="16384"} 1.0
"""


@dataclass
class Patient:
    """``cached``: what usage tells of a prompt seen before; None: nothing."""

    metrics: str | None = HEALTHY
    models: tuple[str, ...] = ("m",)
    cached: int | None = 512
    refuses: int | None = None
    """Status of every completion."""
    info: dict | None = None
    key: str | None = None
    closes_after_s: float = 30.0
    url: str = ""
    seen: list[str] = field(default_factory=list)
    prompts: set[str] = field(default_factory=set)

    def answer(self, path: str, body: bytes) -> tuple[int, str]:
        self.seen.append(path.partition("?")[0])
        match path.partition("?")[0]:
            case "/health":
                return 200, ""
            case "/metrics" if self.metrics is not None:
                return 200, self.metrics
            case "/v1/models":
                return 200, json.dumps({"data": [{"id": name} for name in self.models]})
            case "/server_info" if self.info is not None:
                return 200, json.dumps(self.info)
            case "/v1/completions":
                return self.refuses or 200, json.dumps({"usage": self.usage(json.loads(body)["prompt"])})
        return 404, "nothing here"

    def usage(self, prompt: str) -> dict:
        known = prompt in self.prompts
        self.prompts.add(prompt)
        details = {"cached_tokens": self.cached if known else 0} if self.cached is not None else None
        return {"prompt_tokens": 600, "completion_tokens": 1, "prompt_tokens_details": details}


@contextmanager
def serving(patient: Patient) -> Iterator[Patient]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = patient.closes_after_s

        def reply(self):
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            if patient.key is not None and self.headers.get("authorization") != f"Bearer {patient.key}":
                status, text = 401, '{"error": {"message": "no key", "code": 401}}'
            else:
                status, text = patient.answer(self.path, body)
            self.send_response(status)
            self.send_header("content-length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_POST = reply  # noqa: N815 - their names are the server's

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    patient.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield patient
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
