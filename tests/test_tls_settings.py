"""What is said about certificates that cannot be used."""

import pytest

from concur_proxy.config import BackendSettings, ServerSettings
from concur_proxy.config.load import load
from concur_proxy.config.tls import engine_context, server_context
from concur_proxy.errors import ConfigError
from tests.certificates import Certificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates.make(tmp_path_factory.mktemp("tls"))


def test_plain_urls_need_no_context():
    assert engine_context(BackendSettings(url="http://e")) is None
    assert engine_context(BackendSettings(url="unix:/run/e")) is None
    assert engine_context(BackendSettings(url="http://e", metrics_url="https://m/metrics")) is not None
    assert server_context(ServerSettings()) is None


def test_backends_that_trust_alike_share_a_context(certificates):
    one = engine_context(BackendSettings(url="https://a", ca_file=certificates.ca))
    assert one is engine_context(BackendSettings(url="https://b", ca_file=certificates.ca))
    assert one is not engine_context(BackendSettings(url="https://b"))


@pytest.mark.parametrize("content", [None, "", "no certificate"])
def test_a_ca_file_that_cannot_be_used(tmp_path, content):
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=r"backend e: ca_file .*ca\.pem.* cannot be used \(.+\)"):
        engine_context(BackendSettings(url="https://e", ca_file=str(path)))


def test_certificates_that_cannot_be_served(certificates, tmp_path):
    server, client = certificates.server, certificates.client
    for cert, key in [(str(tmp_path / "none"), server.key), (server.cert, client.key), (server.key, server.key)]:
        with pytest.raises(ConfigError, match=r"tls_cert_file .* cannot be used"):
            server_context(ServerSettings(tls_cert_file=cert, tls_key_file=key))
    with pytest.raises(ConfigError, match=r"tls_client_ca_file .* cannot be used"):
        server_context(
            ServerSettings(tls_cert_file=server.cert, tls_key_file=server.key, tls_client_ca_file=server.key)
        )


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"server.tls_cert_file": "c"}, "tls_cert_file and tls_key_file go together"),
        ({"server.tls_key_file": "k"}, "tls_cert_file and tls_key_file go together"),
        ({"server.tls_client_ca_file": "k"}, "tls_client_ca_file needs"),
        ({"backends": [{"url": "http://e", "insecure": True}]}, "are for https:// URLs"),
        ({"backends": [{"url": "http://e", "ca_file": "c"}]}, "are for https:// URLs"),
        ({"backends": [{"url": "https://e", "ca_file": "c", "insecure": True}]}, "take one of them"),
    ],
)
def test_settings_that_contradict_each_other(flags, words):
    with pytest.raises(ConfigError, match=words):
        load(flags=flags)
