"""Events to many listeners: one picture for all, a bounded number of them, an end with the proxy."""

from __future__ import annotations

import asyncio

import pytest

from concur_proxy.admin.live import BYTES_PER_S, Live, LiveResponse
from concur_proxy.errors import TooManyListenersError
from concur_proxy.gateway.replies import retry_headers


class Clock:
    """Time passes when somebody pauses."""

    def __init__(self) -> None:
        self.now = 0.0
        self.drawn: list[float] = []

    async def pause(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)

    def live(self, *, size: int = 2, ends_at: float = 3.0, **options) -> Live:
        def draw() -> bytes:
            self.drawn.append(self.now)
            return b"x" * size

        return Live(draw, over=lambda: self.now >= ends_at, clock=lambda: self.now, pause=self.pause, **options)


async def collected(live: Live) -> list[bytes]:
    return [event async for event in live.events()]


def test_events_are_numbered_and_end_with_the_proxy():
    clock = Clock()
    hello, *events = asyncio.run(collected(clock.live()))
    assert hello == b"retry: 2000\n\n"
    assert events == [b"id: %d\nevent: state\ndata: xx\n\n" % number for number in (1, 2, 3)]


def test_listeners_share_one_picture():
    clock = Clock()

    async def two():
        live = clock.live(ends_at=0.5)
        first, second = live.events(), live.events()
        return [await anext(each) for each in (first, second, first, second)][2:]

    one, other = asyncio.run(two())
    assert one == other
    assert len(clock.drawn) == 1


def test_a_large_picture_is_drawn_less_often():
    clock = Clock()
    asyncio.run(collected(clock.live(size=4 * BYTES_PER_S, ends_at=8.0)))
    assert len(clock.drawn) == 2


def test_seats_are_bounded_and_given_back():
    clock = Clock()

    async def go():
        live = clock.live(limit=1, ends_at=1e9)
        sent = []

        async def receive():
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            sent.append(message)
            started.set()

        started, gone = asyncio.Event(), asyncio.Event()
        scope = {"type": "http", "asgi": {"spec_version": "2.3"}}
        listener = asyncio.create_task(LiveResponse(live)(scope, receive, send))
        await started.wait()
        with pytest.raises(TooManyListenersError, match="1 pages listen already") as full:
            await LiveResponse(live)(scope, receive, send)
        assert retry_headers(full.value) == [(b"retry-after", b"10")]
        assert live.listeners == 1
        gone.set()
        await listener
        assert live.listeners == 0
        assert sent[0]["status"] == 200

    asyncio.run(go())
