"""Backend URLs."""

import pytest

from concur_proxy.errors import ConfigError
from concur_proxy.gateway.address import Address, parse


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://h:8000", Address("h", 8000, False, b"h:8000")),
        ("http://h", Address("h", 80, False, b"h")),
        ("http://h:80/", Address("h", 80, False, b"h")),
        ("https://h/base/", Address("h", 443, True, b"h", b"/base")),
        ("https://h:8443/a/b", Address("h", 8443, True, b"h:8443", b"/a/b")),
        ("http://[::1]:8000", Address("::1", 8000, False, b"[::1]:8000")),
        ("http://10.0.0.5:1", Address("10.0.0.5", 1, False, b"10.0.0.5:1")),
        ("unix:/run/e.sock", Address("localhost", 0, False, b"localhost", b"", "/run/e.sock")),
        ("unix:///run/e.sock:/base/", Address("localhost", 0, False, b"localhost", b"/base", "/run/e.sock")),
    ],
)
def test_urls(url, address):
    assert parse(url) == address


@pytest.mark.parametrize(
    "url",
    ["", "h:8000", "ftp://h", "http://", "http://h:port", "http://h:99999", "http://h?q", "http://u:p@h", "unix:"],
)
def test_urls_that_cannot_be_used(url):
    with pytest.raises(ConfigError, match="backend URL"):
        parse(url)
