"""Asks engines for pages, on connections like those that turns take: the control side's HTTP client.

All turns stand still while a page is asked for. A general HTTP client takes 5 to 10 ms of the event loop for one, every
second and engine, where its code has left the processor's caches since the last time; this way takes one.
"""

from __future__ import annotations

import asyncio
import ssl
import zlib
from typing import Final
from urllib.parse import urlsplit

from concur_proxy.config import UpstreamSettings
from concur_proxy.control.ports import Reply, Unreached
from concur_proxy.control.target import RANK_HEADER, EngineTarget
from concur_proxy.gateway.headers import HeaderList
from concur_proxy.gateway.upstream import MAX_ANSWER_BYTES, UpstreamPool

SETTINGS: Final = UpstreamSettings.model_validate({})
"""Whoever asks says how long that may take."""
GZIP_OR_ZLIB: Final = 32 + zlib.MAX_WBITS

_Way = tuple[str, ssl.SSLContext | None]
"""A URL without its path, or a Unix socket, and how its certificate is met."""


class HttpFetch:
    """Asks engines over HTTP, on TCP and Unix sockets. Proxy variables of the environment do not matter."""

    __slots__ = ("_max_bytes", "_pools", "_tls")

    def __init__(self, *, max_bytes: int = MAX_ANSWER_BYTES) -> None:
        self._max_bytes = max_bytes
        self._tls: ssl.SSLContext | None = None
        self._pools: dict[_Way, UpstreamPool] = {}

    async def __call__(self, target: EngineTarget, path: str, *, timeout_s: float) -> Reply | Unreached:
        return await self._ask(target, path, None, timeout_s)

    async def post(self, target: EngineTarget, path: str, body: bytes, *, timeout_s: float) -> Reply | Unreached:
        """Return the answer to a request of our own."""
        return await self._ask(target, path, body, timeout_s)

    async def _ask(self, target: EngineTarget, path: str, body: bytes | None, timeout_s: float) -> Reply | Unreached:
        url, path = _split(target, path)
        pool = self._pool_for(url, target.tls)
        try:
            async with asyncio.timeout(timeout_s):
                head, answer = await pool.fetch(path, _headers(target, body), body=body, max_bytes=self._max_bytes)
            return Reply(head.status, self._plain(answer, head.values.get(b"content-encoding")))
        except TimeoutError:
            return Unreached(f"no answer within {timeout_s:g} s", silent=True)
        except OSError as error:
            return Unreached(str(error))

    def _plain(self, answer: bytes, encoding: bytes | None) -> str:
        """Return the text of an answer that may be packed, though it was not to be. Raises ``OSError``."""
        if encoding is not None and encoding.lower() not in (b"", b"identity"):
            try:
                answer = zlib.decompressobj(GZIP_OR_ZLIB).decompress(answer, self._max_bytes)
            except zlib.error:
                raise OSError(f"answer in the encoding {encoding.decode(errors='replace')}") from None
        return answer.decode(errors="replace")

    def _pool_for(self, url: str, tls: ssl.SSLContext | None) -> UpstreamPool:
        pool = self._pools.get((url, tls))
        if pool is None:
            self._forget_unused()
            pool = UpstreamPool(url, SETTINGS, ssl_context=tls or self._usual_tls(url))
            self._pools[url, tls] = pool
        return pool

    def _usual_tls(self, url: str) -> ssl.SSLContext | None:
        """One for all: to read the system's authorities takes long."""
        if self._tls is None and url.startswith("https:"):
            self._tls = ssl.create_default_context()
        return self._tls

    def _forget_unused(self) -> None:
        """Engines come and go; whoever is still asked gets another pool."""
        for way in [way for way, pool in self._pools.items() if not pool.open_connections]:
            del self._pools[way]

    async def aclose(self) -> None:
        for pool in self._pools.values():
            pool.close()
        await asyncio.sleep(0)  # connections hear of it


def _split(target: EngineTarget, path: str) -> tuple[str, str]:
    """Return what to connect to and what to ask it for; ``path`` may be a whole URL."""
    whole = "://" in path
    parts = urlsplit(path if whole else target.base_url + path)
    asked = parts.path + (f"?{parts.query}" if parts.query else "")
    if target.socket_path is not None and (not whole or path.startswith(target.base_url)):
        return f"unix:{target.socket_path}", asked
    return f"{parts.scheme}://{parts.netloc}", asked or "/"


def _headers(target: EngineTarget, body: bytes | None) -> HeaderList:
    headers = [(b"accept-encoding", b"identity")]
    if target.api_key:
        headers.append((b"authorization", b"Bearer " + target.api_key.encode()))
    if target.rank is not None:
        headers.append((RANK_HEADER.encode(), b"%d" % target.rank))
    if body is not None:
        headers.append((b"content-type", b"application/json"))
    return headers
