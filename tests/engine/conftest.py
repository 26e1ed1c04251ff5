from collections.abc import Iterator

import pytest

from tests.clients.stack import ProxyProcess, Stack
from tests.rig.engine import RigEngine
from tests.rig.environments import missing


@pytest.fixture(scope="session")
def vllm() -> Iterator[RigEngine]:
    if remedy := missing("vllm"):
        pytest.skip(remedy)
    with RigEngine("vllm", speed=8.0) as engine:
        yield engine


@pytest.fixture(scope="session")
def vllm_proxy(vllm: RigEngine) -> Iterator[str]:
    with ProxyProcess([vllm.url]) as proxy:
        yield proxy.url


@pytest.fixture
def direct(vllm: RigEngine) -> Stack:
    return Stack(vllm.url, vllm.url, vllm.model)


@pytest.fixture
def proxied(vllm: RigEngine, vllm_proxy: str) -> Stack:
    return Stack(vllm_proxy, vllm.url, vllm.model)


@pytest.fixture(params=["direct", "proxied"])
def stack(request: pytest.FixtureRequest) -> Stack:
    chosen: Stack = request.getfixturevalue(request.param)
    return chosen
