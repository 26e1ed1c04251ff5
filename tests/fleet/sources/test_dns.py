import asyncio
import socket

import pytest

from concur_proxy.fleet.sources.base import SourceError
from concur_proxy.fleet.sources.dns import GONE_AFTER, Name, resolve, watch_name
from tests.control.engines import eventually

URL = "http://vllm.default.svc:8000/base"


class Zone:
    """A name server; an error in place of addresses is raised."""

    def __init__(self, *addresses):
        self.answer = list(addresses)

    async def __call__(self, host, port):
        assert (host, port) == ("vllm.default.svc", 8000)
        if isinstance(self.answer, int):
            raise socket.gaierror(self.answer, "no such luck")
        return list(self.answer)


def look(name):
    return [backend.url for backend in asyncio.run(name.look())]


def test_each_address_is_a_backend_whatever_order_they_come_in():
    zone = Zone("10.0.0.9", "10.0.0.5", "fd00::5", "10.0.0.5")
    urls = ["http://10.0.0.5:8000/base", "http://10.0.0.9:8000/base", "http://[fd00::5]:8000/base"]
    assert look(Name(URL, zone)) == urls


def test_a_name_server_that_fails_says_nothing_of_the_backends():
    zone = Zone()
    zone.answer = socket.EAI_AGAIN
    name = Name(URL, zone)
    for _ in range(10 * GONE_AFTER):
        with pytest.raises(SourceError, match=r"vllm\.default\.svc cannot be resolved: no such luck"):
            look(name)


def test_that_there_is_no_address_is_believed_when_it_is_said_again_and_again():
    zone = Zone()
    zone.answer = socket.EAI_NONAME
    name = Name(URL, zone)
    for _ in range(GONE_AFTER - 1):
        with pytest.raises(SourceError):
            look(name)
    assert look(name) == []


def test_an_answer_in_between_counts_as_a_new_beginning():
    zone = Zone()
    name = Name(URL, zone)
    for _ in range(5):
        zone.answer = socket.EAI_NONAME
        for _ in range(GONE_AFTER - 1):
            with pytest.raises(SourceError):
                look(name)
        zone.answer = ["10.0.0.5"]
        assert len(look(name)) == 1


def test_only_what_has_changed_is_told():
    zone, told = Zone("10.0.0.5"), []

    async def main():
        tell = lambda name, found: told.append([one.id for one in found])  # noqa: E731
        task = asyncio.create_task(watch_name(URL, tell, interval_s=0.002, resolve=zone))
        await eventually(lambda: told == [["10.0.0.5:8000"]])
        zone.answer = ["10.0.0.6", "10.0.0.5"]
        await eventually(lambda: len(told) == 2)
        zone.answer = ["10.0.0.5", "10.0.0.6"]
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    assert told == [["10.0.0.5:8000"], ["10.0.0.5:8000", "10.0.0.6:8000"]]


def test_the_systems_resolver_is_asked():
    assert "127.0.0.1" in asyncio.run(resolve("localhost", 80))
