"""TLS from end to end, with processes: client ──▶ proxy ──▶ (proxy as an engine) ──▶ engine."""

import json
import ssl
import subprocess
import sys

import httpx
import pytest
from openai import OpenAI

from concur_proxy.sim.server import EngineOptions, EngineServer
from tests.certificates import Certificates
from tests.clients.stack import ProxyProcess


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates.make(tmp_path_factory.mktemp("tls"))


class TlsProxy(ProxyProcess):
    """Serves TLS, so that whether it is ready is asked over TLS, too."""

    def __init__(self, backend, certificates):
        self.context = ssl.create_default_context(cafile=certificates.ca)
        names = {"CERT": certificates.server.cert, "KEY": certificates.server.key}
        env = {f"CONCUR_SERVER__TLS_{name}_FILE": path for name, path in names.items()}
        super().__init__([], env={**env, "CONCUR_BACKENDS": json.dumps([backend])})

    def ready(self):
        try:
            return httpx.get(f"{self.url}/readyz", verify=self.context).status_code == 200
        except httpx.TransportError:
            return False


def test_every_hop_over_tls(certificates):
    with (
        EngineServer(EngineOptions(port=0, model="m", speed=100.0)) as engine,
        TlsProxy({"url": engine.url}, certificates) as inner,
        TlsProxy({"url": inner.url, "ca_file": certificates.ca, "kind": "none"}, certificates) as outer,
        httpx.Client(verify=outer.context) as http,
        OpenAI(base_url=f"{outer.url}/v1", api_key="none", max_retries=0, http_client=http) as client,
    ):
        assert outer.url.startswith("https://127.0.0.1:")
        with client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hi"}], max_tokens=8, stream=True
        ) as stream:
            assert "".join(chunk.choices[0].delta.content or "" for chunk in stream)


def test_an_engine_that_is_not_trusted_is_not_ready_and_says_why(certificates):
    with (
        EngineServer(EngineOptions(port=0, model="m")) as engine,
        TlsProxy({"url": engine.url}, certificates) as inner,
    ):
        command = [sys.executable, "-m", "concur_proxy", "serve", "--port", "0", "--backend", inner.url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            try:
                assert any("its certificate is not trusted" in line for line in process.stdout)
            finally:
                process.terminate()


def test_a_missing_certificate_is_said_in_one_line(tmp_path):
    flags = ["--port", "0", "--backend", "http://127.0.0.1:9"]
    config = tmp_path / "c.yaml"
    config.write_text(f"server: {{tls_cert_file: {tmp_path}/c.pem, tls_key_file: {tmp_path}/k.pem}}\n")
    command = [sys.executable, "-m", "concur_proxy", "serve", *flags, "--config", str(config)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode != 0
    assert "server.tls_cert_file" in ended.stderr
    assert "Traceback" not in ended.stderr
