"""How a container engine asks whether the image is well: by HTTP or TLS, whatever proxies the environment names."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import httpx
import pytest

from concur_proxy.sim.server import EngineOptions, EngineServer
from tests.certificates import Certificates
from tests.clients.stack import ProxyProcess
from tests.deploy.image import ROOT

(CHECK,) = re.findall(r"^HEALTHCHECK .*? CMD (\[.*\])$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
PROGRAM, *ARGUMENTS = json.loads(CHECK)


class Served(ProxyProcess):
    def ready(self):
        return httpx.get(f"{self.url}/readyz", verify=False).status_code == 200


def is_well(port, **environment):
    env = {**os.environ, "http_proxy": "http://127.0.0.1:1", "https_proxy": "http://127.0.0.1:1", **environment}
    command = [sys.executable, *ARGUMENTS]
    return subprocess.run(command, check=False, env={**env, "CONCUR_SERVER__PORT": str(port)}).returncode == 0


@pytest.mark.parametrize("tls", [False, True])
def test_it_tells_whether_the_proxy_answers(tls, tmp_path):
    assert PROGRAM == "python3"
    pair = Certificates.make(tmp_path).server if tls else None
    env = {"CONCUR_SERVER__TLS_CERT_FILE": pair.cert, "CONCUR_SERVER__TLS_KEY_FILE": pair.key} if pair else {}
    with (
        EngineServer(EngineOptions(port=0, model="m", speed=100.0)) as engine,
        Served([engine.url], env=env) as proxy,
    ):
        assert is_well(proxy.port, **env)
    assert not is_well(1, **env)
