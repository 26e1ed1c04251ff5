"""Requests made from the management API's own OpenAPI document: none breaks the proxy, all are answered as it says."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from hypothesis import HealthCheck, given, settings

from concur_proxy.admin.api import SCHEMA
from concur_proxy.config import Settings
from concur_proxy.runtime.node import Node
from concur_proxy.runtime.serving import _app
from concur_proxy.sim.server import EngineOptions, EngineServer
from tests.clients.stack import ProxyProcess

schemathesis = pytest.importorskip("schemathesis", reason="it comes with pip install '.[deploy]'")
from schemathesis.specs.openapi.checks import positive_data_acceptance  # noqa: E402 - it may not be there

TOKEN = "planted-secret-admin-token"
UNSAID = {
    name: [positive_data_acceptance]
    for name in ("PATCH /concur/config", "POST /concur/config", "POST /concur/backends")
}
"""Bounds that contradict each other, URLs, names that are taken: no schema can say what settings say to each other."""
ENDLESS = {("GET", "/concur/events")}


def document():
    """Return the document as the proxy serves it."""

    async def read():
        app = _app(Node(Settings.model_validate({"backends": ["http://127.0.0.1:9"]})))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            return (await client.get(SCHEMA)).json()

    return schemathesis.openapi.from_dict(asyncio.run(read()))


OPERATIONS = {
    f"{operation.method.upper()} {operation.path}": operation
    for operation in (result.ok() for result in document().get_all_operations())
    if (operation.method.upper(), operation.path) not in ENDLESS
}


@pytest.fixture(scope="module")
def proxy():
    with (
        EngineServer(EngineOptions(port=0, model="m", speed=100.0)) as engine,
        ProxyProcess([engine.url], env={"CONCUR_SERVER__ADMIN_TOKEN": TOKEN}) as running,
    ):
        yield running


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_does_what_it_says(name, proxy):
    @given(case=OPERATIONS[name].as_strategy())
    @settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    def ask(case):
        answer = case.call(base_url=proxy.url, headers={"authorization": f"Bearer {TOKEN}"}, timeout=20)
        case.validate_response(answer, excluded_checks=UNSAID.get(name, ()))

    ask()


def test_the_proxy_serves_after_all_that(proxy):
    assert httpx.get(f"{proxy.url}/livez").status_code == 200
    assert "Traceback" not in proxy.log()
