"""The addresses of a host name: what a headless service tells of the pods behind it.

The system's resolver is asked, in a thread. An answer that there is no address is believed only when it comes
``GONE_AFTER`` times in a row: name servers that start anew say that too.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from concur_proxy.config import BackendSettings
from concur_proxy.fleet.sources.base import Backends, SourceError, Tell, watch

GONE_AFTER = 3

_NO_ADDRESS = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""Returns the addresses of a host; raises ``socket.gaierror``."""


async def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host, IPv4 and IPv6."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


async def watch_name(url: str, tell: Tell, *, interval_s: float, resolve: Resolve = resolve) -> None:
    """Tell the backends behind the host name of ``url``, whenever they have changed."""
    name = Name(url, resolve)
    await watch(f"fleet.dns {url}", name.look, tell, interval_s=interval_s)


class Name:
    """A URL whose host has several addresses."""

    def __init__(self, url: str, resolve: Resolve) -> None:
        self._parts = urlsplit(url)
        self._resolve = resolve
        self._empty = 0

    async def look(self) -> Backends:
        """Ask once; raise ``SourceError`` where there is no answer, or none to be believed yet."""
        host, port = self._parts.hostname, self._parts.port or 80
        assert host is not None
        try:
            addresses = await self._resolve(host, port)
        except socket.gaierror as error:
            self._empty = self._empty + 1 if error.errno in _NO_ADDRESS else 0
            if self._empty < GONE_AFTER:
                raise SourceError(f"{host} cannot be resolved: {error.strerror}") from None
            addresses = []
        else:
            self._empty = 0
        return [self._backend(address, port) for address in sorted(set(addresses))]

    def _backend(self, address: str, port: int) -> BackendSettings:
        host = f"[{address}]" if ":" in address else address
        return BackendSettings(url=f"http://{host}:{port}{self._parts.path}")
