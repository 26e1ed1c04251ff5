"""Every route of a running proxy, and everybody who may come: a table that is made from the routes themselves."""

from __future__ import annotations

import re

import httpx
import pytest

from concur_proxy.auth.files import add_key
from concur_proxy.config import Settings
from concur_proxy.gateway.paths import BELOW, TABLE, Shape
from concur_proxy.runtime.node import Node
from concur_proxy.runtime.serving import _app
from concur_proxy.sim.server import EngineOptions, EngineServer
from tests.clients.stack import ProxyProcess

ADMIN, WRONG = "planted-secret-admin-token", "ck_planted-secret-of-a-stranger"
OPEN = {"/livez", "/readyz", "/health", "/metrics"}
PAGES = {"/concur/docs", "/concur/openapi.json", "/concur/ui"}
"""What anybody may read: they tell what the software can do, and nothing of this proxy."""
EITHER = {"/concur/sessions/{session_id:path}", "/programs/release"}
"""Whoever manages the proxy, and whoever opened the session."""


def routes_of(router):
    """Yield path and methods of every route, also of those that are included."""
    for route in router.routes:
        if (inner := getattr(route, "original_router", None)) is not None:
            yield from routes_of(inner)
        else:
            yield route.path, sorted(route.methods - {"HEAD"})


def application():
    return _app(Node(Settings.model_validate({"backends": ["http://127.0.0.1:9"], "server": {"admin_token": ADMIN}})))


ROUTES = sorted(
    {(path, method) for path, methods in routes_of(application()) for method in methods}
    | {(path.decode(), method.decode()) for path, route in TABLE.items() for method in route.methods}
    | {(path.decode() + "x", method.decode()) for path, route in BELOW.items() for method in route.methods}
)
CALLERS = ("nobody", "stranger", "client", "manager")


def opens(path: str, caller: str) -> bool:
    """Tell who may pass: the whole policy in four lines."""
    if path in OPEN | PAGES:
        return True
    if path in EITHER:
        return caller in {"client", "manager"}
    return caller == ("manager" if path.startswith("/concur") else "client")


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    file = tmp_path_factory.mktemp("keys") / "keys.yaml"
    return file, {"client": add_key(file, "client"), "manager": ADMIN, "stranger": WRONG}


@pytest.fixture(scope="module")
def proxy(keys):
    env = {"CONCUR_AUTH__KEYS_FILE": str(keys[0]), "CONCUR_SERVER__ADMIN_TOKEN": ADMIN}
    flags = ["--log-level", "debug"]
    with (
        EngineServer(EngineOptions(port=0, model="m", speed=100.0)) as engine,
        ProxyProcess([engine.url], env=env, flags=flags) as running,
    ):
        yield running


@pytest.fixture(scope="module")
def client(proxy):
    with httpx.Client(base_url=proxy.url, timeout=20) as made:
        yield made


def credentials(keys, caller, header="authorization"):
    if caller == "nobody":
        return {}
    return {header: f"Bearer {keys[1][caller]}" if header == "authorization" else keys[1][caller]}


def ask(client, path, method, headers):
    """Return the status and the body, of endless answers the beginning."""
    path = re.sub(r"\{[^}]*\}", "x", path)
    with client.stream(method, path, headers=headers, content=b'{"model":"m"}' if method != "GET" else None) as answer:
        return answer.status_code, next(answer.iter_bytes(), b"") if answer.status_code >= 400 else b"", answer.headers


def test_the_table_has_every_kind_of_route():
    paths = {path for path, _ in ROUTES}
    assert paths >= OPEN | PAGES | EITHER | {"/v1/chat/completions", "/v1/responses/x", "/v1/models", "/concur/config"}


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize(("path", "method"), ROUTES)
def test_who_may_pass(client, keys, path, method, caller):
    status, _, _ = ask(client, path, method, credentials(keys, caller))
    assert (status not in {401, 403}) == opens(path, caller), status


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models", "/v1/messages"])
def test_the_other_header_is_as_good(client, keys, path):
    method = "GET" if path.endswith("models") else "POST"
    for caller in CALLERS:
        status, _, _ = ask(client, path, method, credentials(keys, caller, "x-api-key"))
        assert (status != 401) == (caller == "client")


@pytest.mark.parametrize(
    "path", [path for path, route in TABLE.items() if b"POST" in route.methods] + [b"/v1/models", b"/v1/unheard-of"]
)
def test_a_refusal_has_the_shape_that_clients_of_the_path_read(client, path):
    route = TABLE.get(path)
    status, body, headers = ask(client, path.decode(), "POST" if route else "GET", {"authorization": f"Bearer {WRONG}"})
    assert status == 401
    assert headers["www-authenticate"].startswith("Bearer")
    assert b"planted" not in body
    told = httpx.Response(200, content=body).json()
    if route is not None and route.shape is Shape.ANTHROPIC:
        assert (told["type"], told["error"]["type"]) == ("error", "authentication_error")
    else:
        assert told["error"].keys() == {"message", "type", "param", "code"}
        assert told["error"]["code"] == "invalid_api_key"


@pytest.mark.parametrize(
    "path",
    [
        "/%761/models",
        "//v1/models",
        "/v1/models/",
        "/v1//models",
        "/./v1/models",
        "/livez/../v1/models",
        "/concurx",
        "/x",
    ],
)
def test_no_spelling_of_a_path_gets_past_the_wall(proxy, path):
    host, port = proxy.url.removeprefix("http://").split(":")
    import socket

    with socket.create_connection((host, int(port))) as sock:
        sock.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        assert int(sock.recv(64).split()[1]) == 401


def test_a_large_body_without_a_key_is_not_kept(client):
    answer = client.post("/v1/chat/completions", content=b" " * (8 << 20))
    assert answer.status_code == 401


@pytest.mark.parametrize(("token", "is_told"), [("short", True), (ADMIN, False)])
def test_a_token_that_can_be_guessed_is_told_without_being_said(caplog, token, is_told):
    settings = {"backends": ["http://127.0.0.1:9"], "server": {"admin_token": token}}
    _app(Node(Settings.model_validate(settings)))
    assert ("server.admin_token has fewer" in caplog.text) == is_told
    assert token not in caplog.text.replace("openssl", "")


def test_no_secret_is_in_logs_status_or_metrics(proxy, client, keys):
    own = credentials(keys, "client")
    asked = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    assert client.post("/v1/chat/completions", json=asked, headers=own).status_code == 200
    manager = credentials(keys, "manager")
    shown = [
        client.get(path, headers=manager).text for path in ("/concur/status", "/concur/sessions", "/concur/config")
    ]
    shown += [client.get("/metrics").text, proxy.log()]
    assert '"/v1/chat/completions"' in shown[-1] or "/v1/chat/completions" in shown[-1]
    for secret in keys[1].values():
        assert not any(secret in text for text in shown)
