"""From a URL to a client of Redis or Valkey: one server, Sentinel, or a cluster.

One server is redis://host:6379/0, rediss:// with TLS, or unix:///path/to.sock; valkey:// and valkeys:// are the same.
Others are redis+sentinel://a:26379,b:26379/master/0 and redis+cluster://host:6379.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from redis.asyncio import Redis, RedisCluster, Sentinel
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from concur_proxy.state.hosts import hosts_of

CONNECT_S = 1.0
SENTINEL_PORT = 26379

SAME = {"valkey": "redis", "valkeys": "rediss"}


def connect(url: str, *, username: str | None = None, password: str | None = None, ca_file: str | None = None) -> Any:
    """Return a client that gives up at once when a call fails: who calls decides what then. Nothing is sent yet."""
    parts = urlsplit(url)
    scheme, _, kind = parts.scheme.partition("+")
    scheme = SAME.get(scheme, scheme)
    options: dict[str, Any] = {
        "username": username or (unquote(parts.username) if parts.username else None),
        "password": password or (unquote(parts.password) if parts.password else None),
        "decode_responses": True,
        "socket_connect_timeout": CONNECT_S,
        "socket_timeout": None,  # who calls waits no longer than he likes
        "retry": Retry(NoBackoff(), 0),
    }
    if scheme == "rediss":
        options |= {"ssl": True, "ssl_ca_certs": ca_file}
    if kind == "sentinel":
        return _sentinel(parts, options)
    if kind == "cluster":
        return RedisCluster(host=parts.hostname or "localhost", port=parts.port or 6379, **options)
    if scheme == "unix":
        return Redis(unix_socket_path=parts.path, **options)
    return Redis(host=parts.hostname or "localhost", port=parts.port or 6379, db=_number(parts.path), **options)


def _sentinel(parts: SplitResult, options: dict[str, Any]) -> Any:
    sentinels = hosts_of(parts, port=SENTINEL_PORT)
    service, _, database = parts.path.strip("/").partition("/")
    shared = {"socket_connect_timeout", "socket_timeout", "ssl", "ssl_ca_certs"} & options.keys()
    sentinel: Any = Sentinel(sentinels, sentinel_kwargs={name: options[name] for name in shared})  # type: ignore[no-untyped-call]
    return sentinel.master_for(service, db=_number(database), **options)


def _number(path: str) -> int:
    return int(path.strip("/") or 0)


async def close(client: Any) -> None:
    """Close a client's connections, those to the sentinels that named its server included."""
    await client.aclose()
    manager = getattr(getattr(client, "connection_pool", None), "sentinel_manager", None)
    for sentinel in manager.sentinels if manager is not None else ():
        await sentinel.aclose()
