import asyncio

import pytest

from concur_proxy.bench.client import Client, ConnectionLostError
from concur_proxy.errors import ConfigError
from tests.bench.servers import CLOSE, reply, served


def run(answer, use, **options):
    """Serve ``answer``, call ``use(client)``; return its result and the server's script."""

    async def main():
        async with served(answer) as (url, script):
            client = Client(url, **options)
            try:
                return await use(client), script
            finally:
                await client.aclose()

    return asyncio.run(main())


def test_a_request_and_its_answer():
    async def use(client):
        return await client.request("POST", "/v1/x", body=b"{}", headers={"x-a": "b"})

    found, script = run(lambda _: reply({"a": 1}, 201, "X-Name: value\r\n"), use)
    assert (found.status, found.body, found.headers["x-name"]) == (201, b'{"a": 1}', "value")
    seen = script.seen[0]
    assert (seen.method, seen.path, seen.body) == ("POST", "/v1/x", b"{}")
    assert seen.headers["x-a"] == "b"
    assert seen.headers["content-type"] == "application/json"


def test_connections_are_used_again():
    async def use(client):
        return [(await client.request("GET", "/")).body for _ in range(3)]

    found, script = run(lambda seen: reply(b"%d" % seen.connection), use)
    assert found == [b"0", b"0", b"0"]
    assert script.connections == 1


def test_requests_at_once_have_connections_of_their_own():
    async def use(client):
        await asyncio.gather(*(client.request("GET", "/") for _ in range(3)))

    assert run(lambda _: reply(b""), use)[1].connections == 3


def test_a_connection_that_was_idle_too_long_is_not_used_again():
    async def use(client):
        await client.request("GET", "/")
        await client.request("GET", "/")

    assert run(lambda _: reply(b""), use, keepalive_s=0.0)[1].connections == 2


def test_a_kept_connection_that_died_costs_nothing_but_another():
    def answer(seen):
        return reply(b"ok") if seen.path == "/first" or seen.connection else CLOSE

    async def use(client):
        await client.request("GET", "/first")
        return (await client.request("GET", "/second")).body

    found, script = run(answer, use)
    assert found == b"ok"
    assert [seen.path for seen in script.seen] == ["/first", "/second", "/second"]


def test_a_new_connection_that_dies_is_an_error():
    async def use(client):
        with pytest.raises(ConnectionLostError) as caught:
            await client.request("GET", "/")
        return caught.value.early

    found, script = run(lambda _: CLOSE, use)
    assert found
    assert len(script.seen) == 1


def test_an_answer_that_breaks_off_is_an_error_and_not_asked_for_again():
    async def use(client):
        await client.request("GET", "/")
        with pytest.raises(ConnectionLostError) as caught:
            await client.request("GET", "/half")
        return caught.value.early

    half = [b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf", CLOSE]
    found, script = run(lambda seen: half if seen.path == "/half" else reply(b""), use)
    assert not found
    assert len(script.seen) == 2


def test_what_is_not_http_is_an_error():
    async def use(client):
        with pytest.raises(OSError, match="not HTTP"):
            await client.request("GET", "/")

    run(lambda _: b"SSH-2.0-x\r\n\r\n", use)


def test_the_server_may_close_after_its_answer():
    closing = [reply(b"x", headers="connection: close\r\n"), CLOSE]

    async def use(client):
        return [(await client.request("GET", "/")).body for _ in range(2)]

    found, script = run(lambda _: closing, use)
    assert found == [b"x", b"x"]
    assert script.connections == 2


def test_an_answer_without_a_length_ends_with_the_connection():
    async def use(client):
        return (await client.request("GET", "/")).body

    assert run(lambda _: [b"HTTP/1.1 200 OK\r\n\r\nall ", b"of it", CLOSE], use)[0] == b"all of it"


def test_chunks_are_heard_as_they_come():
    heard = []

    async def use(client):
        return (await client.request("GET", "/", on_data=heard.append)).body

    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    found, _ = run(lambda _: [head, b"2\r\nab\r\n", b"1\r\nc\r\n0\r\n\r\n"], use)
    assert found == b"abc"
    assert heard == [b"ab", b"c"]


def test_an_interim_answer_is_not_the_answer():
    async def use(client):
        return (await client.request("GET", "/")).body

    assert run(lambda _: b"HTTP/1.1 103 Early Hints\r\nx-a: 1\r\n\r\n" + reply(b"ok"), use)[0] == b"ok"


def test_a_request_that_is_given_up_leaves_no_connection_behind():
    async def use(client):
        task = asyncio.ensure_future(client.request("GET", "/slow"))
        await client.request("GET", "/quick")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return len(client._idle)

    assert run(lambda seen: b"" if seen.path == "/slow" else reply(b""), use)[0] == 1


def test_nobody_there():
    async def main():
        async with served(lambda _: b"") as (url, _):
            pass
        with pytest.raises(OSError):  # noqa: PT011 - which one depends on the platform
            await Client(url).request("GET", "/")

    asyncio.run(main())


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://x", "http://"])
def test_an_address_that_is_none(url):
    with pytest.raises(ConfigError, match="http"):
        Client(url)


def test_the_path_of_the_base_url_comes_first():
    async def use(client):
        below = Client(client.base_url + "/base/")
        await below.request("GET", "/x")
        await below.aclose()

    assert run(lambda _: reply(b""), use)[1].seen[0].path == "/base/x"
