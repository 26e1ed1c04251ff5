import asyncio

import httpx
import pytest
from fastapi import APIRouter, FastAPI

from concur_proxy.admin.api import _on_error
from concur_proxy.admin.backends import add_backends
from concur_proxy.errors import ConcurError


class Port:
    def __init__(self):
        self.done = []

    def add_backend(self, settings):
        self.done.append(("add", settings))

    def remove_backend(self, name):
        self.done.append(("remove", name))
        return name != "nobody"

    def drain_backend(self, name, *, drained):
        self.done.append(("drain" if drained else "undrain", name))
        return name != "nobody"


def call(port, method, path, **kwargs):
    router, app = APIRouter(), FastAPI()

    async def read_json(request):
        return await request.json()

    add_backends(router, port, read_json)
    app.include_router(router)
    app.add_exception_handler(ConcurError, _on_error)

    async def go():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as client:
            return await client.request(method, f"/concur/backends{path}", **kwargs)

    return asyncio.run(go())


def test_a_backend_is_given_as_in_the_configuration_and_no_secret_comes_back():
    port = Port()
    answer = call(port, "POST", "", json={"url": "http://a:8000/v1", "api_key": "secret-1", "kv_tokens": 4096})
    assert (answer.status_code, answer.json()) == (201, {"name": "a:8000", "state": "added"})
    ((_, settings),) = port.done
    assert (settings.url, settings.kv_tokens) == ("http://a:8000", 4096)
    assert settings.api_key.get_secret_value() == "secret-1"


def test_a_bare_url_is_enough():
    port = Port()
    assert call(port, "POST", "", json="http://a:8000").json()["name"] == "a:8000"


@pytest.mark.parametrize(
    "body", [{}, [], 3, {"url": "x"}, {"url": "http://a", "kv_tokens": 1}, {"url": "http://a", "z": 1}]
)
def test_what_is_no_backend_is_refused_with_the_key(body):
    port = Port()
    answer = call(port, "POST", "", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_setting")
    assert port.done == []


@pytest.mark.parametrize("name", ["gpu-1", "10.0.0.5:8000", "unix/a/b"])
@pytest.mark.parametrize(
    ("method", "path", "did", "status", "state"),
    [
        ("DELETE", "", "remove", 202, "leaving"),
        ("POST", "/drain", "drain", 200, "draining"),
        ("POST", "/undrain", "undrain", 200, "active"),
    ],
)
def test_names_of_any_kind_are_understood(name, method, path, did, status, state):
    port = Port()
    answer = call(port, method, f"/{name}{path}")
    assert (answer.status_code, answer.json()) == (status, {"name": name, "state": state})
    assert port.done == [(did, name)]
    unknown = call(port, method, f"/nobody{path}")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "backend_not_found")
