"""Which hosts a Redis URL names: one, or a list of sentinels; an address of IPv6 stands in brackets. Pure."""

from __future__ import annotations

from urllib.parse import SplitResult


def hosts_of(parts: SplitResult, *, port: int) -> list[tuple[str, int]]:
    """Return hosts with their ports, ``port`` where none is given. ValueError where one is no number."""
    return [_host(each, port) for each in parts.netloc.rpartition("@")[2].split(",")]


def _host(text: str, port: int) -> tuple[str, int]:
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        number = rest.removeprefix(":")
    else:
        host, _, number = text.partition(":")
    return host or "localhost", int(number) if number else port
