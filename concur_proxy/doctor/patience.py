"""How long an engine keeps an idle connection."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from urllib.parse import urlsplit

ANSWER_S = 5.0
LARGEST_HEAD = 64 * 1024


async def closes_after(url: str, *, longest_s: float, clock: Callable[[], float] = time.monotonic) -> float | None:
    """Return after how many idle seconds the engine closes a connection; None where it keeps it for ``longest_s``.

    None, too, where it says beforehand that it will close, or does not answer: no client would keep such a connection.
    """
    parts = urlsplit(url)
    secure = ssl.create_default_context() if parts.scheme == "https" else None
    port = parts.port or (443 if secure else 80)
    try:
        async with asyncio.timeout(ANSWER_S):
            reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=secure, limit=LARGEST_HEAD)
    except (OSError, TimeoutError):
        return None
    try:
        request = f"GET {parts.path.rstrip('/')}/health HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n"
        writer.write(request.encode("latin-1", "replace"))
        async with asyncio.timeout(ANSWER_S):
            if not await _answered(reader):
                return None
        return await _idle(reader, longest_s, clock)
    except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
        return None
    finally:
        writer.close()


async def _idle(reader: asyncio.StreamReader, longest_s: float, clock: Callable[[], float]) -> float | None:
    since = clock()
    try:
        async with asyncio.timeout(longest_s):
            await reader.read(1)
    except TimeoutError:
        return None
    return clock() - since


async def _answered(reader: asyncio.StreamReader) -> bool:
    """Read one answer; tell whether the connection stays open behind it."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    lines = dict(line.partition(":")[::2] for line in head.split("\r\n")[1:] if ":" in line)
    headers = {name.strip(): value.strip() for name, value in lines.items()}
    if headers.get("connection") == "close" or not head.startswith("http/1.1"):
        return False
    if headers.get("transfer-encoding") == "chunked":
        await reader.readuntil(b"0\r\n\r\n")
    else:
        await reader.readexactly(int(headers.get("content-length", "0")))
    return True
