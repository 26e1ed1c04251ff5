"""Where a backend is: its URL, read once. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urlsplit

from concur_proxy.errors import ConfigError

DEFAULT_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Address:
    """``prefix`` stands before every path and ends without a slash. ``socket_path``: a Unix socket, not TCP."""

    host: str
    port: int
    tls: bool
    authority: bytes
    """What the Host header says."""
    prefix: bytes = b""
    socket_path: str | None = None


def parse(url: str) -> Address:
    """Read ``http://host:port/prefix``, ``https://[::1]:8443`` or ``unix:/path/to/socket[:/prefix]``."""
    if url.startswith("unix:"):
        return _unix(url)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise _wrong(url) from error
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise _wrong(url)
    default = DEFAULT_PORTS[parts.scheme]
    return Address(
        host=parts.hostname,
        port=port or default,
        tls=parts.scheme == "https",
        authority=_authority(parts, None if port == default else port),
        prefix=parts.path.rstrip("/").encode(),
    )


def _unix(url: str) -> Address:
    path, _, prefix = url.removeprefix("unix:").partition(":")
    path = "/" + path.lstrip("/")
    if path == "/" or "\0" in path:
        raise _wrong(url)
    return Address(
        "localhost", 0, tls=False, authority=b"localhost", prefix=prefix.rstrip("/").encode(), socket_path=path
    )


def _authority(parts: SplitResult, port: int | None) -> bytes:
    host = (parts.hostname or "").partition("%")[0]  # a scope id means something on this machine only
    name = f"[{host}]" if ":" in host else host
    return (f"{name}:{port}" if port is not None else name).encode("idna" if not name.isascii() else "ascii")


def _wrong(url: str) -> ConfigError:
    return ConfigError(
        f"backend URL {url!r} cannot be used: give http://host:port, https://host:port or unix:/path/to/socket"
    )
