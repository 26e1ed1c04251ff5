"""The ways to Redis: password, TLS, a socket, Sentinel and a cluster, each with a real server; and what is no way."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from concur_proxy.config import StateSettings
from concur_proxy.state.connect import close, connect
from concur_proxy.state.link import Link
from tests.certificates import Certificates
from tests.ports import free_port
from tests.state.redis import PATIENCE_S, RedisServer, needs_redis

pytestmark = needs_redis


def asked(make_client: Callable[[], object]) -> object:
    """Carry one operation to Redis and return its answer."""

    async def ask() -> object:
        client = make_client()
        link = Link(client, "{test}:", "r")
        link.start()
        try:
            async with asyncio.timeout(PATIENCE_S):
                while (answer := await link.ask(["secret", "key", "value"])) is None:
                    await asyncio.sleep(0.05)
            return answer["value"]
        finally:
            await link.aclose()
            await close(client)

    return asyncio.run(ask())


def test_one_server() -> None:
    with RedisServer() as server:
        assert asked(lambda: connect(server.url)) == "value"
        assert asked(lambda: connect(server.url.replace("redis:", "valkey:") + "/0")) == "value"


def test_a_password_in_the_url_or_beside_it() -> None:
    with RedisServer("--requirepass", "s3cret") as server:
        beside = f"127.0.0.1:{server.port}"
        assert asked(lambda: connect(f"redis://:s3cret@{beside}")) == "value"
        assert asked(lambda: connect(f"redis://{beside}", password="s3cret")) == "value"


def test_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "redis.sock"
    with RedisServer("--unixsocket", str(path)):
        assert asked(lambda: connect(f"unix://{path}")) == "value"


def test_a_cluster() -> None:
    with RedisServer("--cluster-enabled", "yes") as server:
        assert server.command("CLUSTER", "ADDSLOTSRANGE", "0", "16383") == "+OK"
        assert asked(lambda: connect(f"redis+cluster://127.0.0.1:{server.port}")) == "value"


def test_a_master_that_sentinels_name(tmp_path: Path) -> None:
    with RedisServer() as server:
        port = free_port()
        config = tmp_path / "sentinel.conf"
        config.write_text(f"port {port}\nsentinel monitor fleet 127.0.0.1 {server.port} 1\n")
        sentinel = subprocess.Popen(["redis-server", str(config), "--sentinel"], stdout=subprocess.DEVNULL)
        try:
            url = f"redis+sentinel://127.0.0.1:{port},127.0.0.1:{free_port()}/fleet"
            assert asked(lambda: connect(url)) == "value"
        finally:
            sentinel.kill()
            sentinel.wait()


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("redis+sentinel://[::1]:26380,[fe80::1],b:1/fleet", [("::1", 26380), ("fe80::1", 26379), ("b", 1)]),
        ("redis+sentinel://user:a:b@a,b:/fleet", [("a", 26379), ("b", 26379)]),
        ("redis+sentinel://:1/fleet", [("localhost", 1)]),
    ],
)
def test_sentinels_are_found_by_name_and_by_either_kind_of_address(url: str, hosts: list[tuple[str, int]]) -> None:
    assert sentinels_of(connect(url)) == hosts


def sentinels_of(client: Any) -> list[tuple[str, int]]:
    known = [one.connection_pool.connection_kwargs for one in client.connection_pool.sentinel_manager.sentinels]
    return [(one["host"], one["port"]) for one in known]


def test_tls(tmp_path: Path) -> None:
    made, port = Certificates.make(tmp_path), free_port()
    flags = ["--tls-port", str(port), "--tls-cert-file", made.server.cert, "--tls-key-file", made.server.key]
    with RedisServer(*flags, "--tls-ca-cert-file", made.ca, "--tls-auth-clients", "no"):
        assert asked(lambda: connect(f"rediss://127.0.0.1:{port}", ca_file=made.ca)) == "value"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://host", "must be a URL such as redis://"),
        ("redis://", "must be a URL such as redis://"),
        ("redis+sentinel://host:26379", "name of the master"),
        ("host:6379", "must be a URL such as redis://"),
    ],
)
def test_what_is_no_way(url: str, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        StateSettings(url=url)  # type: ignore[arg-type]


def test_a_url_alone_is_a_section_and_is_never_shown() -> None:
    settings = StateSettings.model_validate("redis://:s3cret@host:6379")
    assert "s3cret" not in repr(settings)
    assert settings.url is not None
    assert settings.url.get_secret_value() == "redis://:s3cret@host:6379"
