"""TLS on both sides of the data path, on both loops: towards engines, and towards clients."""

import asyncio
import ssl

import pytest

from concur_proxy.config import BackendSettings, ServerSettings, UpstreamSettings
from concur_proxy.config.tls import engine_context, server_context
from concur_proxy.gateway.handler import HandlerSettings
from concur_proxy.gateway.limits import ClientLimits
from concur_proxy.gateway.upstream import UpstreamPool
from tests.certificates import Certificates
from tests.gateway.harness import CHAT, Engine, Proxy, chunked, ok, request, run, until

EVENTS = [b'data: {"n":%d}\n\n' % number for number in range(50)]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates.make(tmp_path_factory.mktemp("tls"))


def serving(certificates, **changes):
    pair = certificates.server
    return server_context(ServerSettings(tls_cert_file=pair.cert, tls_key_file=pair.key, **changes))


def trusting(certificates, **changes):
    return engine_context(BackendSettings(url="https://e", ca_file=certificates.ca, **changes))


def client_side(certificates, pair=None):
    context = ssl.create_default_context(cafile=certificates.ca)
    if pair is not None:
        context.load_cert_chain(pair.cert, pair.key)
    return context


async def stream(_seen, wire):
    await wire.send(chunked(*EVENTS))


# towards engines


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_an_engine_behind_tls(certificates, host, loop):
    async def main():
        async with (
            Engine(ssl=serving(certificates), host=host) as engine,
            Proxy((engine,), ssl_context=trusting(certificates)) as proxy,
        ):
            client = await proxy.client()
            for _ in range(3):
                await client.send(request(b"x" * 300_000))
                assert (await client.answer()).body == b'{"ok":true}'
            await client.close()
            assert engine.connections == 1
            assert [len(seen.body) for seen in engine.seen] == [300_000] * 3

    run(main(), loop)


def test_an_engine_without_tls_behind_an_https_address_is_told_in_words(certificates, loop):
    async def refuse(reader, writer):
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async def main():
        async with await asyncio.start_server(refuse, "127.0.0.1", 0) as plain:
            url = f"https://127.0.0.1:{plain.sockets[0].getsockname()[1]}"
            pool = UpstreamPool(url, UpstreamSettings(), ssl_context=trusting(certificates))
            with pytest.raises(OSError, match="it does not speak TLS; is its address http://"):
                await pool.fetch("/health", [])

    run(main(), loop)


def test_a_certificate_that_nobody_vouches_for_is_refused_in_words(certificates, loop):
    async def main():
        async with Engine(ssl=serving(certificates)) as engine, Proxy((engine,)) as proxy:
            answer = await proxy.ask()
            assert answer.status == 502
            assert b"its certificate is not trusted" in answer.body
            assert b"ca_file" in answer.body
            assert not engine.seen

    run(main(), loop)


def test_a_certificate_for_another_name_is_refused(certificates):
    async def main():
        async with (
            Engine(ssl=serving(certificates), host="127.0.0.2") as engine,
            Proxy((engine,), ssl_context=trusting(certificates)) as proxy,
        ):
            assert b"127.0.0.2" in (await proxy.ask()).body
            assert not engine.seen

    run(main())


def test_insecure_takes_any_certificate(certificates, loop):
    async def main():
        context = engine_context(BackendSettings(url="https://e", insecure=True))
        async with (
            Engine(ssl=serving(certificates), host="127.0.0.2") as engine,
            Proxy((engine,), ssl_context=context) as proxy,
        ):
            assert (await proxy.ask()).status == 200

    run(main(), loop)


def test_a_plain_engine_behind_an_https_url_is_a_502():
    async def main():
        async with Engine() as engine, Proxy((engine.url.replace("http:", "https:"),)) as proxy:
            assert (await proxy.ask()).status == 502

    run(main())


def test_a_client_that_leaves_is_noticed_by_an_engine_behind_tls(certificates, loop):
    async def silent(_seen, wire):
        await wire.gone()
        return False

    async def main():
        async with (
            Engine(silent, ssl=serving(certificates)) as engine,
            Proxy((engine,), ssl_context=trusting(certificates)) as proxy,
        ):
            client = await proxy.client()
            await client.send(request())
            await until(lambda: engine.seen)
            client.leave()
            await until(lambda: not engine.open and proxy.idle())

    run(main(), loop)


# towards clients


def test_clients_over_tls(certificates, loop):
    async def main():
        async with Engine(stream) as engine, Proxy((engine,), serve_tls=serving(certificates)) as proxy:
            client = await proxy.client(client_side(certificates))
            for _ in range(3):
                await client.send(request())
                assert (await client.answer()).body == b"".join(EVENTS)
            await client.send(request(b"", path=b"/livez", method=b"GET"))
            assert (await client.answer()).status == 200
            assert {seen.values(b"x-forwarded-proto")[0] for seen in engine.seen} == {b"https"}
            await client.close()

    run(main(), loop)


def test_large_bodies_both_ways_over_tls(certificates, loop):
    async def echo(seen, wire):
        await wire.send(ok(seen.body))

    async def main():
        body = bytes(range(256)) * (8 << 12)
        async with Engine(echo, ssl=serving(certificates)) as engine:
            tls = {"ssl_context": trusting(certificates), "serve_tls": serving(certificates)}
            async with Proxy((engine,), **tls) as proxy:
                client = await proxy.client(client_side(certificates))
                await client.send(request(body))
                assert (await client.answer()).body == body
                await client.close()

    run(main(), loop)


def test_refused_streams_end_over_tls_too(certificates, loop):
    """TLS has no half-closed connections: the answer is followed by the end."""

    async def main():
        async with Engine() as engine, Proxy((engine,), serve_tls=serving(certificates)) as proxy:
            client = await proxy.client(client_side(certificates))
            await client.send(b"GARBAGE\r\n\r\n")
            assert (await client.answer()).status == 400
            assert await client.at_end()
            await client.close()
            assert not engine.seen

    run(main(), loop)


def test_too_large_a_body_over_tls_is_answered(certificates):
    async def main():
        settings = HandlerSettings(max_body_bytes=1 << 16)
        async with (
            Engine() as engine,
            Proxy((engine,), serve_tls=serving(certificates), settings=settings) as proxy,
        ):
            client = await proxy.client(client_side(certificates))
            await client.send(request(b"x" * (1 << 20)))
            assert (await client.answer()).status == 413
            await client.close()

    run(main())


def test_limits_hold_over_tls(certificates, loop):
    async def main():
        limits = ClientLimits(head_timeout_s=0.05)
        async with (
            Engine() as engine,
            Proxy((engine,), serve_tls=serving(certificates), limits=limits) as proxy,
        ):
            client = await proxy.client(client_side(certificates))
            await client.send(request(CHAT)[:20])
            assert (await client.answer()).status == 408
            assert await client.at_end()
            await client.close()

    run(main(), loop)


def test_clients_without_a_certificate_are_turned_away_where_one_is_demanded(certificates):
    async def main():
        context = serving(certificates, tls_client_ca_file=certificates.ca)
        async with Engine() as engine, Proxy((engine,), serve_tls=context) as proxy:
            known = await proxy.client(client_side(certificates, certificates.client))
            await known.send(request())
            assert (await known.answer()).status == 200
            await known.close()
            with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                stranger = await proxy.client(client_side(certificates))
                await stranger.send(request())
                await stranger.answer()
            assert len(engine.seen) == 1

    run(main())
