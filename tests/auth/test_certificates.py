"""Certificates that are replaced while the proxy serves, and certificates that it shows to engines."""

import asyncio
import functools
import shutil
import socket
import ssl
import subprocess
from pathlib import Path

import pytest

from concur_proxy.config import BackendSettings, ServerSettings
from concur_proxy.config.tls import engine_context, server_context
from concur_proxy.errors import ConfigError
from concur_proxy.runtime.certificates import Certificates as Watch
from tests.certificates import Certificates
from tests.gateway.harness import Engine, Proxy, request, run


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    return Certificates.make(tmp_path_factory.mktemp("first"))


@pytest.fixture(scope="module")
def second(tmp_path_factory):
    return Certificates.make(tmp_path_factory.mktemp("second"))


def put(certificates, folder):
    """Lay certificates where the settings say they are."""
    for source, name in (
        (certificates.server.cert, "c.pem"),
        (certificates.server.key, "k.pem"),
        (certificates.ca, "ca"),
    ):
        shutil.copy(source, folder / name)


def trusting(certificates, pair=None):
    context = ssl.create_default_context(cafile=certificates.ca)
    if pair is not None:
        context.load_cert_chain(pair.cert, pair.key)
    return context


async def status(proxy, context):
    client = await proxy.client(context)
    await client.send(request())
    answer = await client.answer()
    await client.close()
    return answer.status


def test_new_connections_are_met_with_the_new_certificate(first, second, tmp_path, loop):
    put(first, tmp_path)
    server = ServerSettings(tls_cert_file=str(tmp_path / "c.pem"), tls_key_file=str(tmp_path / "k.pem"))
    context = server_context(server)
    watch = Watch(lambda: [context, None])

    async def main():
        async with Engine() as engine, Proxy((engine,), serve_tls=context) as proxy:
            old = await proxy.client(trusting(first))
            assert await status(proxy, trusting(first)) == 200
            put(second, tmp_path)
            assert watch.check()
            assert await status(proxy, trusting(second)) == 200
            with pytest.raises(ssl.SSLCertVerificationError):
                await proxy.client(trusting(first))
            await old.send(request())
            assert (await old.answer()).status == 200, "a connection that was open is cut"
            await old.close()

    run(main(), loop)


@pytest.mark.parametrize("torn", ["key of another", "garbage", "gone"])
def test_files_that_do_not_fit_leave_everything_as_it_was(first, second, tmp_path, torn, caplog):
    put(first, tmp_path)
    server = ServerSettings(tls_cert_file=str(tmp_path / "c.pem"), tls_key_file=str(tmp_path / "k.pem"))
    context = server_context(server)
    watch = Watch(lambda: [context, None])

    async def main():
        async with Engine() as engine, Proxy((engine,), serve_tls=context) as proxy:
            if torn == "key of another":
                shutil.copy(second.server.cert, tmp_path / "c.pem")
            elif torn == "garbage":
                (tmp_path / "c.pem").write_text("garbage")
            else:
                (tmp_path / "k.pem").unlink()
            assert watch.check()
            assert "stays in force" in caplog.text
            assert await status(proxy, trusting(first)) == 200
            put(second, tmp_path)
            assert watch.check()
            assert await status(proxy, trusting(second)) == 200

    run(main())


def test_clients_of_a_further_authority_are_let_in_once_it_is_added(first, second, tmp_path):
    put(first, tmp_path)
    server = ServerSettings(
        tls_cert_file=str(tmp_path / "c.pem"),
        tls_key_file=str(tmp_path / "k.pem"),
        tls_client_ca_file=str(tmp_path / "ca"),
    )
    context = server_context(server)
    watch = Watch(lambda: [context, None])

    async def main():
        async with Engine() as engine, Proxy((engine,), serve_tls=context) as proxy:
            with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                await status(proxy, trusting(first, second.client))
            with (tmp_path / "ca").open("a") as both:
                both.write(Path(second.ca).read_text())
            assert watch.check()
            assert await status(proxy, trusting(first, second.client)) == 200
            assert await status(proxy, trusting(first, first.client)) == 200

    run(main())


def ask_by(pair, port, trust, session=None):
    """Ask with a certificate, by OpenSSL's own socket; return the status and what resumes the session."""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=60) as plain,
        trust.wrap_socket(plain, server_hostname="localhost", session=session) as secure,
    ):
        secure.sendall(request(headers=b"Connection: close\r\n"))
        answer = b"".join(iter(functools.partial(secure.recv, 65536), b""))
        return int(answer.split()[1]), secure.session, secure.session_reused


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_clients_of_an_authority_that_is_taken_out_are_turned_away(first, second, tmp_path, loop, version):
    put(first, tmp_path)
    both = Path(first.ca).read_text() + Path(second.ca).read_text()
    (tmp_path / "ca").write_text(both)
    server = ServerSettings(
        tls_cert_file=str(tmp_path / "c.pem"),
        tls_key_file=str(tmp_path / "k.pem"),
        tls_client_ca_file=str(tmp_path / "ca"),
    )
    context = server_context(server)
    watch = Watch(lambda: [context])
    trust = trusting(first, second.client)
    trust.maximum_version = version

    async def main():
        async with Engine() as engine, Proxy((engine,), serve_tls=context) as proxy:
            ask = functools.partial(asyncio.to_thread, ask_by, second.client, proxy.port, trust)
            status, session, _ = await ask()
            assert (status, (await ask(session))[2]) == (200, True), "sessions are not resumed: what follows shows less"
            shutil.copy(first.ca, tmp_path / "ca")
            assert watch.check()
            for resumed in (None, session):
                with pytest.raises((ssl.SSLError, ConnectionError, IndexError)):
                    await ask(resumed)
            status, *_ = await asyncio.to_thread(ask_by, first.client, proxy.port, trusting(first, first.client))
            assert status == 200

    run(main(), loop)


def test_an_engine_of_an_authority_that_is_taken_out_is_not_trusted(first, second, tmp_path, loop):
    demanding = server_context(ServerSettings(tls_cert_file=first.server.cert, tls_key_file=first.server.key))
    shutil.copy(first.ca, tmp_path / "ca")
    context = engine_context(BackendSettings(url="https://e", ca_file=str(tmp_path / "ca")))
    watch = Watch(lambda: [context])

    async def main():
        async with Engine(ssl=demanding) as engine, Proxy((engine,), ssl_context=context) as proxy:
            assert (await proxy.ask(headers=b"Connection: close\r\n")).status == 200
            for pool in proxy.pools.values():
                pool.close()
            shutil.copy(second.ca, tmp_path / "ca")
            assert watch.check()
            assert (await proxy.ask()).status == 502

    run(main(), loop)


def test_certificates_of_backends_that_come_later_are_watched_too(first, second, tmp_path):
    shutil.copy(first.ca, tmp_path / "ca")
    contexts = []
    watch = Watch(lambda: contexts)
    contexts.append(engine_context(BackendSettings(url="https://later", ca_file=str(tmp_path / "ca"))))
    shutil.copy(second.ca, tmp_path / "ca")
    assert [watch.check(), watch.check()] == [True, False]


def test_a_key_that_is_encrypted_is_said_and_nobody_is_asked_for_its_password(first, tmp_path):
    locked = [
        "openssl",
        "ec",
        "-in",
        first.server.key,
        "-aes256",
        "-passout",
        "pass:secret",
        "-out",
        tmp_path / "k.pem",
    ]
    subprocess.run(locked, check=True, capture_output=True)
    with pytest.raises(ConfigError, match="the key is encrypted"):
        server_context(ServerSettings(tls_cert_file=first.server.cert, tls_key_file=str(tmp_path / "k.pem")))


def test_an_engine_that_asks_for_a_certificate_is_shown_one_and_the_next_one_after_a_change(first, second, tmp_path):
    demanding = server_context(
        ServerSettings(tls_cert_file=first.server.cert, tls_key_file=first.server.key, tls_client_ca_file=first.ca)
    )
    for source, name in ((second.client.cert, "c.pem"), (second.client.key, "k.pem")):
        shutil.copy(source, tmp_path / name)
    backend = BackendSettings(
        url="https://e",
        ca_file=first.ca,
        cert_file=str(tmp_path / "c.pem"),
        key_file=str(tmp_path / "k.pem"),
    )
    context = engine_context(backend)
    watch = Watch(lambda: [context])

    async def main():
        async with Engine(ssl=demanding) as engine, Proxy((engine,), ssl_context=context) as proxy:
            assert (await proxy.ask()).status == 502
            for source, name in ((first.client.cert, "c.pem"), (first.client.key, "k.pem")):
                shutil.copy(source, tmp_path / name)
            assert watch.check()
            assert (await proxy.ask()).status == 200
            assert len(engine.seen) == 1

    run(main())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"url": "https://e", "cert_file": "c"}, "go together"),
        ({"url": "http://e", "cert_file": "c", "key_file": "k"}, "for https"),
    ],
)
def test_half_a_pair_or_one_for_nothing_is_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        BackendSettings(**changes)


def test_a_certificate_that_is_not_there_is_said_with_its_backend(first):
    with pytest.raises(ConfigError, match="backend e: cert_file 'gone'"):
        engine_context(BackendSettings(url="https://e", cert_file="gone", key_file=first.client.key))


def test_backends_that_show_different_certificates_share_no_context(first, second):
    def context(pair):
        return engine_context(BackendSettings(url="https://e", cert_file=pair.cert, key_file=pair.key))

    assert context(first.client) is not context(second.client)
    assert context(first.client) is not engine_context(BackendSettings(url="https://e"))
    assert context(first.client) is context(first.client)
