"""Stands in for vLLM's server in tests of the child: starts, answers, dies and leaves workers behind as it is told.

By environment: FAKE_FAILS names a file, and as long as it exists the start fails; FAKE_WORKER a file that gets the id
of a worker process, which outlives the server; FAKE_STUBBORN makes both deaf to SIGTERM. ``GET /crash`` ends it at
once.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/crash":
            print("CUDA error: an illegal memory access was encountered", flush=True)
            os._exit(7)
        body = json.dumps({"pid": os.getpid(), "arguments": sys.argv[1:]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


parser = argparse.ArgumentParser()
parser.add_argument("--host", required=True)
parser.add_argument("--port", type=int, required=True)
address, _ = parser.parse_known_args()
if "FAKE_FAILS" in os.environ and Path(os.environ["FAKE_FAILS"]).exists():
    print("ValueError: the model does not fit", flush=True)
    sys.exit(3)
if "FAKE_STUBBORN" in os.environ:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "FAKE_WORKER" in os.environ:
    worker = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    Path(os.environ["FAKE_WORKER"]).write_text(str(worker.pid))
print("loading weights", flush=True)
HTTPServer((address.host, address.port), Handler).serve_forever()
