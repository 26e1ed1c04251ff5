"""nginx as the limit: one worker that passes everything on, unbuffered, over connections that it keeps."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from bench.overhead.children import Engine, Server, served
from tests.ports import free_port

SETUP = "worker_processes 1, access_log, proxy_buffering and proxy_request_buffering off, keepalive upstream"
CONFIG = """\
daemon off;
{user}worker_processes 1;
worker_rlimit_nofile 16384;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{ worker_connections 8192; }}
http {{
  access_log off;
  client_max_body_size 64m;
  client_body_temp_path {folder}/client;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  keepalive_requests 1000000000;
  upstream engine {{ server 127.0.0.1:{engine}; keepalive 1024; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://engine;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_request_buffering off;
    }}
  }}
}}
"""


def executable() -> str | None:
    """Return nginx's path; it is often not on an ordinary user's PATH."""
    return shutil.which("nginx") or shutil.which("/usr/sbin/nginx")


def version() -> str | None:
    if (nginx := executable()) is None:
        return None
    said = subprocess.run([nginx, "-v"], capture_output=True, text=True, check=False).stderr
    found = re.search(r"nginx/(\S+)", said)
    return found[1] if found else "unknown"


@contextlib.contextmanager
def start(engine: Engine, folder: Path) -> Iterator[Server]:
    port, nginx = free_port(), executable()
    assert nginx is not None
    user = "user root;\n" if os.geteuid() == 0 else ""  # its worker must get at the folder
    config = folder / "nginx.conf"
    config.write_text(CONFIG.format(folder=folder, port=port, engine=engine.port, user=user))
    with served([nginx, "-e", folder / "error.log", "-c", config], port, folder / "log") as server:
        yield server
