"""What replicas tell each other past Redis: over real sockets."""

from __future__ import annotations

import asyncio
import socket

import pytest

from concur_proxy.state import neighbours
from concur_proxy.state.neighbours import Neighbours, local_address
from tests.ports import free_port

URL = "redis://127.0.0.1:6379/0"


def hears(reaches: bool, *, name: str = "other", address: str | None = None) -> bool:
    """Ask one neighbour, whose name is ``other``; True where it says that it reaches Redis."""

    async def play() -> bool:
        other, one = Neighbours("other", lambda: reaches), Neighbours("one", lambda: False)
        there, heard = await other.start(URL), []
        one.ask([(name, address or there)], lambda: heard.append(True))
        await asyncio.gather(*one._tasks)
        await one.aclose()
        await other.aclose()
        return bool(heard)

    return asyncio.run(play())


@pytest.mark.parametrize("reaches", [True, False])
def test_a_neighbour_says_whether_it_reaches_redis(reaches: bool) -> None:
    assert hears(reaches) is reaches


def test_nobody_is_told_who_does_not_know_the_name() -> None:
    assert not hears(True, name="guessed")
    assert not hears(True, name="other" * 100)


@pytest.mark.parametrize("address", [f"127.0.0.1 {free_port()}", "no address", "127.0.0.1 99999999", ""])
def test_one_that_cannot_be_asked_says_nothing(address: str) -> None:
    assert not hears(True, address=address or " ")


def test_one_that_is_silent_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "TIMEOUT_S", 0.05)

    async def play(port: int) -> None:
        one, heard = Neighbours("one", lambda: False), []
        one.ask([("other", f"127.0.0.1 {port}")], lambda: heard.append(True))
        await asyncio.gather(*one._tasks)
        assert not heard

    with socket.create_server(("127.0.0.1", 0)) as silent:
        asyncio.run(play(silent.getsockname()[1]))


@pytest.mark.parametrize(
    "url",
    [
        URL,
        "redis://:secret@127.0.0.1",
        "unix:///run/redis.sock",
        "redis+sentinel://127.0.0.1:26379,127.0.0.2:26379/master/0",
        "rediss://user:p%40ss@localhost:6380/1",
        "redis://127.0.0.1:",
        "redis://[::1]:6379",
        "redis+sentinel://[::1]:26379,[::1]/master",
    ],
)
def test_the_address_is_the_one_on_the_way_to_redis(url: str) -> None:
    assert local_address(url) in {"127.0.0.1", "::1"}


def test_where_that_cannot_be_known_nobody_listens() -> None:
    async def play() -> None:
        one = Neighbours("one", lambda: True)
        for url in ("redis://no-such-host.invalid:6379", "redis://host:port"):
            assert await one.start(url) == ""
        await one.aclose()

    asyncio.run(play())
