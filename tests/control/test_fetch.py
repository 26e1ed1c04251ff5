import asyncio
import gzip
import zlib

import pytest

from concur_proxy.control.fetch import HttpFetch
from concur_proxy.control.ports import Reply, Unreached
from tests.control.engines import FakeEngine, Page


def ask(page, *, path="/page", max_bytes=1 << 20, **fields):
    async def main():
        fetch = HttpFetch(max_bytes=max_bytes)
        async with FakeEngine({path: page}) as engine:
            reply = await fetch(engine.target(**fields), path, timeout_s=5.0)
        await fetch.aclose()
        return reply

    return asyncio.run(main())


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_an_answer_that_is_packed_all_the_same_is_read(encoding, pack):
    page = Page(pack("größer".encode()), headers=f"content-encoding: {encoding}\r\n")
    assert ask(page) == Reply(200, "größer")


def test_what_cannot_be_unpacked_is_named():
    assert ask(Page(b"\x00\x01", headers="content-encoding: br\r\n")) == Unreached("answer in the encoding br")


def test_an_answer_that_unpacks_to_more_than_anybody_wants_is_cut():
    reply = ask(Page(gzip.compress(bytes(1 << 20)), headers="content-encoding: gzip\r\n"), max_bytes=1 << 14)
    assert len(reply.text) == 1 << 14


def test_a_path_before_the_engine_and_a_query_behind_are_kept():
    async def main():
        fetch = HttpFetch()
        async with FakeEngine({"/some/where/page?full=1": Page("here")}) as engine:
            target = engine.target()
            object.__setattr__(target, "base_url", target.base_url + "/some/where")
            reply = await fetch(target, "/page?full=1", timeout_s=5.0)
        await fetch.aclose()
        return reply

    assert asyncio.run(main()) == Reply(200, "here")


def test_engines_that_have_left_are_forgotten_and_come_back():
    async def main():
        fetch = HttpFetch()
        first = FakeEngine({"/page": Page("first")})
        await first.start()
        target = first.target()
        assert await fetch(target, "/page", timeout_s=5.0) == Reply(200, "first")
        await first.stop()
        assert isinstance(await fetch(target, "/page", timeout_s=5.0), Unreached)
        async with FakeEngine({"/page": Page("second")}) as second:
            assert await fetch(second.target(), "/page", timeout_s=5.0) == Reply(200, "second")
            assert len(fetch._pools) == 1
            await first.start()
            assert await fetch(target, "/page", timeout_s=5.0) == Reply(200, "first")
            await first.stop()
        await fetch.aclose()

    asyncio.run(main())
