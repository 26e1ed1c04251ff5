import asyncio
import json
from contextlib import contextmanager

import pytest
from kubernetes import client

from concur_proxy.errors import ConfigError
from concur_proxy.fleet.sources import endpoints as module
from concur_proxy.fleet.sources.endpoints import require_client, watch_service
from concur_proxy.sim.server import EngineOptions, EngineServer
from tests.clients.stack import ProxyProcess
from tests.control.engines import eventually
from tests.fleet.sources.cluster import Cluster, endpoint_slice
from tests.runtime.test_serving import ask, status, wait_for


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def watching(cluster, body, *, service="ns/vllm", port=None):
    told = []

    def connect():
        configuration = client.Configuration(host=cluster.url)
        configuration.api_key = {"authorization": f"Bearer {cluster.token}"}
        return client.ApiClient(configuration)

    async def main():
        tell = lambda name, found: told.append([one.url.removeprefix("http://") for one in found])  # noqa: E731
        task = asyncio.create_task(watch_service(service, port, tell, connect=connect))
        await body(told)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())


def test_ready_endpoints_are_found_and_followed():
    async def body(told):
        await eventually(lambda: told == [["10.0.0.1:8000", "10.0.0.2:8000"]])
        await eventually(lambda: cluster.watches == 1)
        cluster.change("ADDED", endpoint_slice("b", "fd00::3", kind="IPv6"))
        await eventually(lambda: told[-1] == ["10.0.0.1:8000", "10.0.0.2:8000", "[fd00::3]:8000"])
        # a pod that terminates is not ready any more
        cluster.change(
            "MODIFIED", endpoint_slice("a", "10.0.0.1", "10.0.0.2", ready={"10.0.0.1": False, "10.0.0.2": True})
        )
        await eventually(lambda: told[-1] == ["10.0.0.2:8000", "[fd00::3]:8000"])
        cluster.change("DELETED", cluster.slices["a"])
        await eventually(lambda: told[-1] == ["[fd00::3]:8000"])
        assert cluster.lists == 1

    with Cluster(endpoint_slice("a", "10.0.0.1", "10.0.0.2")) as cluster:
        watching(cluster, body)


def test_one_whose_readiness_is_not_known_counts_as_ready():
    async def body(told):
        await eventually(lambda: told == [["10.0.0.1:8000"]])

    with Cluster(endpoint_slice("a", "10.0.0.1", ready=None)) as cluster:
        watching(cluster, body)


@pytest.mark.parametrize(("port", "number"), [(None, 9000), ("http", 8000), ("8000", 8000), ("9000", 9000)])
def test_the_port_is_chosen_by_name_or_number(port, number):
    async def body(told):
        await eventually(lambda: told == [[f"10.0.0.1:{number}"]])

    with Cluster(endpoint_slice("a", "10.0.0.1", ports=(("metrics", 9000), ("http", 8000)))) as cluster:
        watching(cluster, body, port=port)


def test_no_endpoint_is_told_where_none_has_the_port():
    async def body(told):
        await eventually(lambda: told == [[]])

    with Cluster(endpoint_slice("a", "10.0.0.1")) as cluster:
        watching(cluster, body, port="grpc")


def test_a_watch_that_ends_is_begun_anew_and_misses_nothing():
    async def body(told):
        await eventually(lambda: cluster.watches == 1)
        cluster.slices["b"] = endpoint_slice("b", "10.0.0.2")  # no watch was told
        cluster.end_watches()
        await eventually(lambda: told[-1] == ["10.0.0.1:8000", "10.0.0.2:8000"])

    with Cluster(endpoint_slice("a", "10.0.0.1")) as cluster:
        watching(cluster, body)


def test_an_api_server_that_refuses_changes_nothing_and_is_asked_again(caplog):
    async def body(told):
        await eventually(lambda: cluster.watches == 1)
        cluster.status = 403
        cluster.end_watches()
        await eventually(lambda: "needs get, list and watch on endpointslices" in caplog.text)
        assert told == [["10.0.0.1:8000"]]
        cluster.slices["a"] = endpoint_slice("a", "10.0.0.9")
        cluster.status = 200
        await eventually(lambda: told[-1] == ["10.0.0.9:8000"])

    with Cluster(endpoint_slice("a", "10.0.0.1")) as cluster:
        watching(cluster, body)
    assert caplog.text.count("needs get, list") == 1


def test_the_remedy_is_told_where_the_client_is_missing(monkeypatch):
    require_client()
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"concur-proxy\[k8s\]"):
        require_client()


@contextmanager
def engines():
    options = EngineOptions(port=0, model="alpha", speed=4.0)
    with EngineServer(options) as one, EngineServer(options) as two:
        yield one.port, two.port


def test_the_proxy_follows_a_service_with_the_credentials_of_its_kubeconfig(tmp_path):
    with engines() as (one, two), Cluster(token="of-the-pod") as cluster:
        cluster.slices["a"] = endpoint_slice("a", "127.0.0.1", ports=(("http", one),))
        config = tmp_path / "config"
        config.write_text(json.dumps(cluster.kubeconfig()))
        env = {"KUBECONFIG": str(config), "CONCUR_FLEET__KUBERNETES_SERVICE": "ns/vllm", "NO_PROXY": "127.0.0.1"}
        with ProxyProcess([], env=env) as proxy:
            assert ask(proxy.url, "s").headers["x-concur-backend"] == f"127.0.0.1:{one}"
            wait_for(lambda: cluster.watches)
            cluster.change("ADDED", endpoint_slice("b", "127.0.0.1", ports=(("http", two),)))
            cluster.change("DELETED", cluster.slices["a"])
            wait_for(lambda: [one["name"] for one in status(proxy.url)["backends"]] == [f"127.0.0.1:{two}"])
            assert ask(proxy.url, "s").headers["x-concur-backend"] == f"127.0.0.1:{two}"
