"""Who may manage: headers can take the right away, never give it."""

from __future__ import annotations

import pytest
from starlette.requests import Request

from concur_proxy.admin.guard import Guard, is_local
from concur_proxy.errors import ForbiddenError, NotAuthorizedError


def request(client=("127.0.0.1", 5), server=("127.0.0.1", 8080), **headers: str) -> Request:
    lines = [
        (name.replace("_", "-").encode(), value.encode()) for name, value in {"host": "localhost", **headers}.items()
    ]
    return Request({"type": "http", "client": client, "server": server, "headers": lines})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1", "::ffff:7f00:1"])
def test_loopback_peers_are_local(host):
    assert is_local(request(client=(host, 5)))


@pytest.mark.parametrize("host", ["10.0.0.1", "fe80::1%eth0", "::ffff:10.0.0.1", "0.0.0.0", "::", "localhost", ""])
def test_other_peers_are_not(host):
    assert not is_local(request(client=(host, 5)))


def test_the_peer_of_a_unix_socket_is_local():
    assert is_local(request(client=None, server=("/run/concur.sock", None)))


@pytest.mark.parametrize("server", [("10.0.0.7", 8080), None])
def test_a_peer_that_reset_its_connection_is_not(server):
    assert not is_local(request(client=None, server=server))


@pytest.mark.parametrize(
    "name",
    [
        *("x_forwarded_for", "forwarded", "x_real_ip", "via", "x_forwarded_host", "x_forwarded_proto"),
        *(
            "true_client_ip",
            "x_forwarded_client_cert",
            "x_envoy_attempt_count",
            "x_original_host",
            "l5d_client_id",
            "cf_connecting_ip",
        ),
    ],
)
def test_a_forwarded_request_comes_from_elsewhere(name):
    assert not is_local(request(**{name: "127.0.0.1"}))


@pytest.mark.parametrize("name", ["x_forwarded_for", "forwarded", "x_real_ip"])
def test_no_header_makes_a_peer_local(name):
    assert not is_local(request(client=("10.0.0.1", 5), **{name: "127.0.0.1"}))


@pytest.mark.parametrize("host", ["localhost:8080", "app.localhost", "127.0.0.1:8080", "[::1]:8080", ""])
def test_names_of_this_machine(host):
    assert is_local(request(host=host))


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "10.0.0.1:8080", "[::1"])
def test_a_page_whose_name_was_rebound_is_not_local(host):
    assert not is_local(request(host=host))


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_a_page_of_another_origin_loads_is_not_local(site):
    assert not is_local(request(sec_fetch_site=site, sec_fetch_mode="no-cors"))
    assert not is_local(request(sec_fetch_site=site))
    assert is_local(request(sec_fetch_site=site, sec_fetch_mode="navigate"))  # a link, which only the user gets to see
    assert is_local(request(sec_fetch_site="same-origin", sec_fetch_mode="cors"))
    assert is_local(request(sec_fetch_site="none", sec_fetch_mode="navigate"))


def test_only_pages_of_the_same_origin_are_local():
    assert is_local(request(host="localhost:8080", origin="http://localhost:8080"))
    for origin in ("https://evil.example", "http://localhost:3000", "null"):
        assert not is_local(request(host="localhost:8080", origin=origin))


def test_without_a_token_others_are_forbidden():
    Guard(None).check(request())
    with pytest.raises(ForbiddenError, match="CONCUR_SERVER__ADMIN_TOKEN"):
        Guard(None).check(request(client=("10.0.0.1", 5)))
    assert not Guard(None).has_token(request(authorization="Bearer "))


@pytest.mark.parametrize(
    "value", ["", "Bearer", "Bearer wrong", "Basic right", "right", "Bearer right2", "Bearer rïght"]
)
def test_with_a_token_even_loopback_needs_it(value):
    with pytest.raises(NotAuthorizedError):
        Guard("right").check(request(authorization=value))


@pytest.mark.parametrize("value", ["Bearer right", "bearer right", "Bearer  right "])
def test_the_token_opens_from_anywhere(value):
    Guard("right").check(request(client=("10.0.0.1", 5), authorization=value, x_forwarded_for="10.0.0.2"))
