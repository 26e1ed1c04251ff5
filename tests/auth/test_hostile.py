"""What a hostile client may try at a running proxy: it is refused, and leaves no trace of secrets."""

from __future__ import annotations

import re
import socket

import httpx
import pytest

from concur_proxy.auth.files import add_key
from concur_proxy.sim.server import EngineOptions, EngineServer
from tests.clients.stack import ProxyProcess

ADMIN = "planted-secret-admin-token"
PATIENCE_S = 60.0
LINE = re.compile(r"2\d{3}-\d\d-\d\dT[\d:.]+Z (INFO|WARNING|DEBUG) [a-z_.]+: |concur-proxy listens on ")


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    file = tmp_path_factory.mktemp("keys") / "keys.yaml"
    return file, add_key(file, "client")


@pytest.fixture(scope="module")
def proxy(key):
    env = {"CONCUR_AUTH__KEYS_FILE": str(key[0]), "CONCUR_SERVER__ADMIN_TOKEN": ADMIN}
    with (
        EngineServer(EngineOptions(port=0, model="m", speed=100.0)) as engine,
        ProxyProcess([engine.url], env=env, flags=["--log-level", "debug"]) as running,
    ):
        yield running


@pytest.fixture(scope="module")
def open_proxy():
    """One without keys and token, as a new user has it."""
    with (
        EngineServer(EngineOptions(port=0, model="m", speed=100.0)) as engine,
        ProxyProcess([engine.url], flags=["--log-level", "debug"]) as running,
    ):
        yield running


def ask(proxy, target, *headers, method="GET", host="127.0.0.1", body=b""):
    """Send what no client library would; return the status and all that was answered."""
    size = [f"content-length: {len(body)}"] if body else []
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", "Connection: close", *headers, *size, "", ""]
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=PATIENCE_S) as sock:
        sock.sendall("\r\n".join(lines).encode() + body)
        answer = b"".join(iter(lambda: sock.recv(65536), b""))
    return int(answer.split()[1]), answer


ODD_PATHS = [
    *("/CONCUR/status", "//concur/status", "/concur//status", "/concur/../concur/status", "/concur/./status"),
    *("/v1/../concur/status", "/livez/../concur/status", "/metrics/../concur/config", "/concur/status/", "/concur/"),
    *("/concur/sessions/../config", "/concur/status%00", "/concur/status;x", "/concur%5cstatus", "/%2fconcur/status"),
    *(
        "/programs/release/../../concur/status",
        "/concur/docs/../status",
        "/concur/ui/../status",
        "/concur/openapi.json/",
    ),
    *("/v1/responses/../../concur/status", "/v1/responses/%2e%2e/%2e%2e/concur/status", "/v1/audio/..%2f..%2fsleep"),
]


@pytest.mark.parametrize("path", ODD_PATHS)
def test_no_spelling_of_a_path_leads_to_management(proxy, key, path):
    for headers in ([], [f"Authorization: Bearer {key[1]}"]):
        status, answer = ask(proxy, path, *headers)
        assert status in {400, 401, 404, 405}
        assert b'"uptime_s"' not in answer
        assert b"location:" not in answer.lower()


@pytest.mark.parametrize("path", ["/concur/status/", "/v1/models/", "/livez/"])
def test_nobody_is_sent_to_the_host_that_a_request_names(open_proxy, path):
    status, answer = ask(open_proxy, path, host="evil.example")
    assert status == 404
    assert b"evil.example" not in answer


@pytest.mark.parametrize(
    "headers",
    [
        ["x-api-key: ADMIN"],
        ["Authorization: Basic ADMIN"],
        ["Authorization: BearerADMIN"],
        ["Authorization: Bearer ADMIN,Bearer x"],
        ["Cookie: authorization=Bearer ADMIN"],
        ["Proxy-Authorization: Bearer ADMIN"],
        ["X-Authorization: Bearer ADMIN"],
        ["Authorization: Bearer x", "Authorization: Bearer ADMIN"],
        ["X-Original-URL: /livez"],
        ["X-Rewrite-URL: /livez"],
        ["X-HTTP-Method-Override: GET"],
        ["X-Forwarded-For: 127.0.0.1"],
        ["Forwarded: for=127.0.0.1"],
    ],
)
def test_no_header_but_one_opens_management(proxy, headers):
    sent = [header.replace("ADMIN", ADMIN) for header in headers]
    status, _ = ask(proxy, "/concur/status", *sent)
    assert status == 401
    assert ask(proxy, "/concur/status", f"Authorization: Bearer {ADMIN}")[0] == 200


def test_keys_in_a_query_open_nothing_and_are_logged_nowhere(proxy, key):
    for path in ("/v1/models", "/concur/status", "/v1/chat/completions", "/no/such/path", "http://h/v1/x", "*", "//x"):
        for method in ("GET", "POST", "OPTIONS"):
            for name in ("api_key", "key", "access_token", "token"):
                status, _ = ask(proxy, f"{path}?{name}={key[1]}&t={ADMIN}", method=method, body=b"{}")
                assert status >= 400
    ask(proxy, f"/v1/models?{'x' * 70_000}={ADMIN}")
    starts = ("GET /v1/models?k=SECRET HTTP/9.9", "GET /v1 ?k=SECRET HTTP/1.1", "SECRET")
    for broken in (f"{start}\r\n\r\n".replace("SECRET", ADMIN) for start in starts):
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=PATIENCE_S) as sock:
            sock.sendall(broken.encode())
            assert b" 400 " in sock.recv(65536)
    log = proxy.log()
    assert "/v1/chat/completions" in log
    assert ADMIN not in log
    assert key[1] not in log


def test_a_line_of_the_log_is_begun_by_nobody_else(open_proxy):
    forged = "2026-01-01T00:00:00.000Z INFO access: forged"
    body = b'{"model":"m\\n2026-01-01 forged","max_tokens":1,"messages":[{"role":"user","content":"hi"}]}'
    for target in (f"/no%0a{forged.replace(' ', '%20')}", "/v1/models/%1b[2Jforged", "/v1/responses/a%0d%0aforged"):
        ask(open_proxy, target)
    for header in ("X-Session-ID: a\x85forged", "X-Session-ID: a b=1 forged", "x-request-id: a forged=1"):
        ask(open_proxy, "/v1/chat/completions", header, method="POST", body=body)
    httpx.post(f"{open_proxy.url}/concur/backends", json={"url": "http://127.0.0.1:9", "name": f"a\n{forged}"})
    httpx.patch(f"{open_proxy.url}/concur/config", json={"weights": {f"a\n{forged}": 1}})
    lines = open_proxy.log().splitlines()
    assert any("forged" in line for line in lines)
    for line in lines:
        assert re.match(r"2\d{3}-\d\d-\d\dT[\d:.]+Z (INFO|WARNING|DEBUG) [a-z_.]+: |concur-proxy listens on ", line), (
            line
        )
        assert not line.startswith("2026-01-01")
        assert line.isprintable()


def test_what_is_wrong_with_a_backend_is_said_without_its_secrets(open_proxy):
    for body in (
        {"url": f"http://u:{ADMIN}@h"},
        {"url": f"http://h?token={ADMIN}"},
        {"url": "http://h", "api_key": [ADMIN]},
        {"url": "http://h", "api_key": f"{ADMIN} x"},
        {"url": "http://h", "apikey": ADMIN},
        f"http://u:{ADMIN}@h",
        [ADMIN],
    ):
        answer = httpx.post(f"{open_proxy.url}/concur/backends", json=body)
        assert answer.status_code == 400
        assert ADMIN not in answer.text
    added = {"url": "http://127.0.0.1:9", "name": "with-a-key", "api_key": ADMIN}
    assert httpx.post(f"{open_proxy.url}/concur/backends", json=added).status_code == 201
    for path in ("/concur/status", "/concur/config", "/concur/openapi.json", "/metrics", "/readyz"):
        assert ADMIN not in httpx.get(f"{open_proxy.url}{path}").text
    assert httpx.delete(f"{open_proxy.url}/concur/backends/with-a-key").status_code == 202


def test_names_that_clients_make_up_are_no_labels_of_metrics(open_proxy):
    for number in range(30):
        asked = {"model": f"made-up-{number}", "messages": [{"role": "user", "content": "hi"}]}
        httpx.post(f"{open_proxy.url}/v1/chat/completions", json=asked, headers={"x-session-id": f"made-up-{number}"})
    assert "made-up" not in httpx.get(f"{open_proxy.url}/metrics").text
