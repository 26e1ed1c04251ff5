"""Engines that publish KV events: who follows them, until when, and what is said without the library."""

import asyncio
import builtins

import pytest

from concur_proxy.config import BackendSettings
from concur_proxy.core.gate import Gate, GatePolicy
from concur_proxy.errors import ConfigError
from concur_proxy.gateway.dispatch import Dispatcher
from concur_proxy.runtime.caches import Caches

URL, EVENTS = "http://127.0.0.1:8000", "tcp://127.0.0.1:5557"


def test_followers_come_and_go_with_their_backends():
    async def run():
        caches = Caches(Dispatcher(Gate(GatePolicy())))
        before = asyncio.all_tasks()
        caches.add(BackendSettings(url=URL, name="silent"))
        assert asyncio.all_tasks() == before
        for name in ("one", "two"):
            caches.add(BackendSettings(url=URL, name=name, kv_events_url=EVENTS))
        assert len(asyncio.all_tasks() - before) == 2
        await caches.remove("one")
        await caches.remove("one")
        await caches.aclose()
        assert asyncio.all_tasks() == before

    asyncio.run(run())


def test_without_the_library_it_is_said_what_to_install(monkeypatch):
    imports = builtins.__import__

    def missing(name, *args, **kwargs):
        if name == "concur_proxy.control.kv_events":
            raise ModuleNotFoundError("No module named 'zmq'", name="zmq")
        return imports(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ConfigError, match=r"one: .*concur-proxy\[kv-events\]"):
        Caches(Dispatcher(Gate(GatePolicy()))).add(BackendSettings(url=URL, name="one", kv_events_url=EVENTS))


def test_each_rank_publishes_on_a_port_of_its_own():
    ranks = BackendSettings(url=URL, kv_events_url=EVENTS, data_parallel_size=3).ranks
    assert [rank.kv_events_url for rank in ranks] == [f"tcp://127.0.0.1:{port}" for port in (5557, 5558, 5559)]
    assert {rank.kv_events_url for rank in BackendSettings(url=URL, data_parallel_size=2).ranks} == {None}


@pytest.mark.parametrize("url", ["http://host:5557", "tcp://host", "tcp://:5557", "tcp://*", ""])
def test_other_addresses_are_refused(url):
    with pytest.raises(ValueError, match="kv_events_url"):
        BackendSettings(url=URL, kv_events_url=url)
