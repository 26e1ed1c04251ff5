from collections.abc import Iterator

import pytest

from concur_proxy.sim.server import EngineOptions, EngineServer
from tests.clients.stack import ProxyProcess, Stack

MODEL = "embedded"


@pytest.fixture(scope="session")
def embedded_engine() -> Iterator[str]:
    with EngineServer(EngineOptions(port=0, model=MODEL, speed=4.0)) as engine:
        yield engine.url


@pytest.fixture(scope="session")
def embedded_proxy(embedded_engine: str) -> Iterator[str]:
    with ProxyProcess([embedded_engine]) as proxy:
        yield proxy.url


@pytest.fixture(params=["direct", "proxied"])
def stack(request: pytest.FixtureRequest, embedded_engine: str) -> Stack:
    direct = request.param == "direct"
    url = embedded_engine if direct else request.getfixturevalue("embedded_proxy")
    return Stack(url, embedded_engine, MODEL)
