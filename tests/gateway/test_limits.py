"""What a client may take: time for each step, connections, bytes that no body counts."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.gateway.limits import NEVER, Census, ClientLimits, Wheel, client_of
from tests.gateway.harness import CHAT, request, run, until
from tests.gateway.test_protocol import against_proxy, echo

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: p\r\nContent-Length: 100\r\n"
OFF = dict.fromkeys(("head_timeout_s", "body_timeout_s", "idle_timeout_s", "stall_timeout_s"), 0.0)
SHORT = 0.04


def only(**limits):
    return ClientLimits(**{**OFF, **limits})


async def passed(seconds):
    """Let the loop turn for a while: longer than a limit that must not end anything."""
    end = asyncio.get_running_loop().time() + seconds
    await until(lambda: asyncio.get_running_loop().time() > end)


# the wheel alone, in ticks


class Connection:
    """Busy, or owes something since ``since``."""

    def __init__(self, wheel, limit):
        self.wheel, self.limit, self.since, self.slot, self.expired = wheel, limit, None, None, None

    def due(self):
        return NEVER if self.since is None else self.since + self.limit

    def expire(self):
        self.expired = self.wheel.tick
        self.wheel.discard(self)


def in_loop(test):
    """Run a test that turns the wheel by hand: its timer needs a loop, and never fires in one that does not turn."""

    async def main():
        test()

    run(main())


@given(
    st.lists(st.tuples(st.integers(0, 40), st.booleans(), st.integers(0, 5)), max_size=60),
    st.sampled_from(["head", "idle"]),
)
def test_nothing_expires_early_or_a_tick_late(steps, which):
    def test():
        wheel = Wheel(only(head_timeout_s=4, idle_timeout_s=9))
        connections = [Connection(wheel, getattr(wheel, which)) for _ in range(6)]
        for connection in connections:
            wheel.add(connection)
        for ticks, owes, number in [*steps, (40, True, 0)]:
            connections[number].since = wheel.tick if owes else None
            for _ in range(ticks):
                wheel._turn()
                for one in connections:
                    if one.since is not None and one.expired is None:
                        assert wheel.tick < one.since + one.limit
                    if one.expired == wheel.tick:
                        assert one.expired == one.since + one.limit
        assert len(wheel) == sum(one.expired is None for one in connections)
        assert connections[0].expired is not None

    in_loop(test)


def test_a_limit_is_never_shorter_than_it_says():
    for seconds in (0.02, 0.3, 1, 7.5, 620):
        wheel = Wheel(only(head_timeout_s=seconds))
        assert (wheel.head - 1) * wheel.tick_s >= seconds
        assert (wheel.head - 1) * wheel.tick_s < 1.5 * seconds + 1e-9
        assert wheel.idle == NEVER


def test_without_limits_the_wheel_stands_still():
    wheel = Wheel(only())
    wheel.add(Connection(wheel, 1))
    assert len(wheel) == 0


def test_only_so_many_are_looked_at_in_one_tick():
    """A connection that is busy is looked at once in the time of the shortest limit."""
    looks = []

    class Busy(Connection):
        def due(self):
            looks.append(self)
            return NEVER

    def test():
        wheel = Wheel(ClientLimits())
        for _ in range(100):
            wheel.add(Busy(wheel, 0))
        looks.clear()
        for _ in range(310):
            wheel._turn()
        assert len(looks) <= 2 * 100 * (310 // wheel.head)

    in_loop(test)


# on sockets


@pytest.mark.parametrize("sent", [b"POST /v1/chat", HEAD, HEAD + b"X: 1"], ids=["target", "line", "value"])
def test_a_head_that_does_not_end_is_answered_408(sent, loop):
    async def test(proxy, client, engine):
        await client.send(sent)
        answer = await client.answer()
        assert (answer.status, answer.value(b"connection")) == (408, b"close")
        assert b'"code":"request_timeout"' in answer.body
        assert await client.at_end()
        assert not engine.seen
        assert [turn.status for turn in proxy.turns] == [408]

    against_proxy(test, loop=loop, limits=only(head_timeout_s=SHORT))


def test_a_connection_that_says_nothing_is_closed():
    async def test(_proxy, client, _engine):
        assert await client.at_end()

    against_proxy(test, limits=only(head_timeout_s=SHORT))


def test_drops_do_not_keep_a_head_alive():
    async def test(_proxy, client, _engine):
        answer = asyncio.create_task(client.answer())
        client.writer.write(HEAD)
        while not answer.done():
            client.writer.write(b"X: 1\r\n")
            await asyncio.sleep(0)
        assert (await answer).status == 408

    against_proxy(test, limits=only(head_timeout_s=SHORT, max_head_bytes=1 << 30))


@pytest.mark.parametrize("path", [b"/v1/chat/completions", b"/nowhere"])
def test_a_body_that_does_not_go_on(path, loop):
    async def test(_proxy, client, engine):
        await client.send(request(CHAT, path=path)[:-10])
        answer = await client.answer()
        assert (answer.status, answer.value(b"connection")) == (408, b"close") or path == b"/nowhere"
        assert await client.at_end()
        assert not engine.seen

    against_proxy(test, loop=loop, limits=only(body_timeout_s=SHORT))


def test_a_body_that_comes_in_drops_is_too_slow():
    async def test(_proxy, client, engine):
        answer = asyncio.create_task(client.answer())
        client.writer.write(HEAD.replace(b"100", b"10000000") + b"\r\n")
        while not answer.done():
            client.writer.write(b"x")
            await passed(SHORT / 10)
        assert (await answer).status == 408
        assert not engine.seen

    against_proxy(test, limits=only(head_timeout_s=SHORT, body_timeout_s=SHORT, body_bytes_per_s=1e4))


def test_a_body_that_is_fast_enough_may_take_long():
    async def test(_proxy, client, _engine):
        body = b"x" * 300
        await client.send(request(body)[:-300])
        for _ in range(30):
            client.writer.write(b"x" * 10)
            await passed(0.01)
        assert (await client.answer()).body == body

    against_proxy(test, echo, limits=only(head_timeout_s=SHORT, body_timeout_s=SHORT, body_bytes_per_s=10))


def test_waiting_for_an_answer_is_not_idling(loop):
    async def slow(seen, wire):
        await passed(5 * SHORT)
        await echo(seen, wire)

    async def test(_proxy, client, _engine):
        for _ in range(2):
            await client.send(request())
            assert (await client.answer()).status == 200
        await client.send(request() + request(b"")[:-10])
        assert (await client.answer()).status == 200

    limits = ClientLimits(head_timeout_s=SHORT, body_timeout_s=SHORT, idle_timeout_s=3 * SHORT, stall_timeout_s=SHORT)
    against_proxy(test, slow, loop, limits=limits)


def test_a_body_that_waits_for_its_continue_has_time():
    async def slow(seen, wire):
        if seen.body == b"first":
            await passed(4 * SHORT)
        await echo(seen, wire)

    async def test(_proxy, client, _engine):
        await client.send(request(b"first") + request(CHAT, headers=b"Expect: 100-continue\r\n")[: -len(CHAT)])
        assert (await client.answer()).body == b"first"
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.send(CHAT)
        assert (await client.answer()).body == CHAT

    against_proxy(test, slow, limits=only(body_timeout_s=SHORT))


@pytest.mark.parametrize("path", [b"/livez", b"/v1/chat/completions"])
def test_an_idle_connection_is_closed(path, loop):
    async def test(_proxy, client, _engine):
        await client.send(request(b"", path=path, method=b"GET"))
        assert (await client.answer()).status in (200, 405)
        assert await client.at_end()

    against_proxy(test, loop=loop, limits=only(idle_timeout_s=SHORT))


def test_a_client_that_reads_nothing_loses_its_place(loop):
    async def flood(_seen, wire):
        piece = b"data: " + b"x" * 65_536 + b"\n\n"
        await wire.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            await wire.send(b"%x\r\n%b\r\n" % (len(piece), piece))

    async def test(proxy, client, engine):
        client.writer.transport.pause_reading()
        await client.send(request())
        await until(lambda: engine.seen)
        await until(lambda: proxy.idle() and not engine.open)
        assert [turn.outcome for turn in proxy.turns] == ["cancelled"]

    against_proxy(test, flood, loop, limits=only(stall_timeout_s=SHORT))


QUICK = request(b"", method=b"GET")
"""Answered by the proxy itself."""


def test_answers_that_nobody_reads_do_not_pile_up(loop):
    async def test(proxy, client, engine):
        client.writer.transport.pause_reading()
        client.writer.write(QUICK * count)
        (connection,) = proxy.state.connections
        await until(lambda: connection.flow.write_paused and connection.flow.read_paused)
        assert connection.transport.get_write_buffer_size() < 1 << 20
        assert len(connection.pipeline) < 10_000
        client.writer.transport.resume_reading()
        client.writer.write(request())
        for _ in range(count):
            assert (await client.answer()).status == 405
        assert (await client.answer()).status == 200
        assert len(engine.seen) == 1

    count = 30_000
    against_proxy(test, loop=loop)


def test_what_is_never_read_does_not_keep_a_closed_connection(loop):
    async def test(proxy, client, _engine):
        client.writer.transport.pause_reading()
        (connection,) = proxy.state.connections
        for _ in range(100_000):
            if connection.transport.get_write_buffer_size():
                break
            client.writer.write(QUICK * 100)
            await asyncio.sleep(0)
        connection.transport.close()
        await until(lambda: not proxy.state.connections)

    against_proxy(test, loop=loop, limits=only(stall_timeout_s=SHORT))


@pytest.mark.parametrize("in_chunks", [False, True])
def test_a_large_body_behind_a_head_in_two_reads_is_no_large_head(in_chunks):
    async def test(_proxy, client, _engine):
        body = b"x" * (1 << 20)
        framed = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if in_chunks else body
        raw = request(framed, headers=b"transfer-encoding: chunked\r\n" if in_chunks else b"", length=not in_chunks)
        await client.send(raw[:40])
        await asyncio.sleep(0)
        await client.send(raw[40:])
        assert (await client.answer()).body == body

    against_proxy(test, echo)


@pytest.mark.parametrize("size", [70_000, 200_000])
@pytest.mark.parametrize("path", [b"/v1/chat/completions?", b"/livez?", b"/"])
def test_too_long_a_target_is_414(path, size, loop):
    async def test(_proxy, client, engine):
        await client.send(request(path=path + b"x" * size))
        answer = await client.answer()
        assert (answer.status, answer.value(b"connection")) == (414, b"close")
        assert b'"code":"target_too_long"' in answer.body
        assert not engine.seen

    against_proxy(test, loop=loop)


def test_a_target_that_no_parser_takes_is_414_whatever_the_setting():
    async def test(_proxy, client, _engine):
        await client.send(request(b"", path=b"/livez?" + b"x" * 70_000, method=b"GET"))
        assert (await client.answer()).status == 414

    against_proxy(test, limits=ClientLimits(max_head_bytes=1 << 20))


@pytest.mark.parametrize("cut", [None, 60, 60_000])
def test_too_large_a_head_in_few_reads_is_431(cut, loop):
    async def test(_proxy, client, engine):
        raw = request(headers=b"X: " + b"x" * 70_000 + b"\r\n")
        await client.send(raw[:cut])
        if cut:
            await passed(0.02)
            await client.send(raw[cut:])
        answer = await client.answer()
        assert answer.status == 431
        assert b"server.max_head_bytes" in answer.body
        assert not engine.seen

    against_proxy(test, loop=loop)


def test_a_head_of_almost_the_limit_passes():
    async def test(_proxy, client, engine):
        await client.send(request(headers=b"X: " + b"x" * 65_000 + b"\r\n"))
        assert (await client.answer()).status == 200
        assert len(engine.seen[0].values(b"x")[0]) == 65_000

    against_proxy(test)


CHUNKED = request(b"1\r\nx\r\n", headers=b"transfer-encoding: chunked\r\n", length=False)


@pytest.mark.parametrize("start", [b"0\r\nX: ", b"1;"], ids=["trailer", "chunk extension"])
def test_what_no_body_counts_is_limited_too(start):
    async def test(_proxy, client, engine):
        await client.send(CHUNKED + start)
        answer = asyncio.create_task(client.answer())
        sent = 0
        while not answer.done():
            client.writer.write(b"x" * 8192)
            sent += 8192
            assert sent < 64 << 20
            await asyncio.sleep(0)
        assert (await answer).status == 431
        assert not engine.seen

    against_proxy(test)


def test_many_small_chunks_are_no_abuse():
    async def test(_proxy, client, _engine):
        body = b"1\r\nx\r\n" * 50_000 + b"0\r\nX-T: 1\r\n\r\n"
        await client.send(request(body, headers=b"transfer-encoding: chunked\r\n", length=False))
        assert len((await client.answer()).body) == 50_000

    against_proxy(test, echo)


# connections of one client


def test_only_so_many_connections_from_one_address():
    async def test(proxy, client, _engine):
        await client.send(request())
        assert (await client.answer()).status == 200
        second, third = await proxy.client(), await proxy.client()
        await third.send(request(b"", path=b"/livez", method=b"GET"))
        assert (await third.answer()).status == 200
        await third.send(request())
        answer = await third.answer()
        assert (answer.status, answer.value(b"retry-after"), answer.value(b"connection")) == (429, b"2", b"close")
        assert b"one address" in answer.body
        await second.send(request())
        assert (await second.answer()).status == 200
        await third.close()
        await second.close()
        await until(lambda: len(proxy.state.connections) == 1)
        fourth = await proxy.client()
        await fourth.send(request())
        assert (await fourth.answer()).status == 200
        await fourth.close()

    against_proxy(test, limits=ClientLimits(max_connections_per_client=2))


@given(st.lists(st.tuples(st.sampled_from(["10.0.0.1", "10.0.0.2", "2001:db8::1"]), st.booleans()), max_size=40))
def test_the_census_counts_and_forgets(steps):
    census = Census(3)
    inside = []
    for host, enters in steps:
        if enters:
            inside.append(census.enter(host))
            assert census.is_over(inside[-1]) == (inside.count(inside[-1]) > 3)
        elif inside:
            census.leave(inside.pop())
    assert len(census) == len(set(inside))


def test_the_addresses_of_one_network_are_counted_together():
    census = Census(1)
    assert not census.is_over(census.enter("2001:db8::1"))
    assert census.is_over(census.enter("2001:db8::2"))
    assert not census.is_over(census.enter("2001:db8:0:1::1"))


def test_nothing_is_counted_without_a_limit_or_an_address():
    assert Census(0).enter("10.0.0.1") is None
    assert Census(1).enter("") is None


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.1", "10.0.0.2", False),
        ("2001:db8::1", "2001:db8:0:0:ffff::2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("somewhere", "elsewhere", False),
    ],
)
def test_who_counts_as_one_client(one, other, same):
    assert (client_of(one) == client_of(other)) is same
