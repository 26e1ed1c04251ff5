"""Fetches the public keys of an identity provider, which hang out in public."""

from __future__ import annotations

import asyncio
import functools
import ssl
from typing import Any

import httpx
import orjson

TIMEOUT_S = 10.0
"""Of each step, and ``WHOLE_S`` of all: what comes byte by byte would never end."""
WHOLE_S = 30.0
MAX_BYTES = 1 << 20
DISCOVERY = "/.well-known/openid-configuration"


class JwksError(Exception):
    """The keys could not be had; the message says why."""


async def fetch(issuer: str, url: str | None) -> dict[str, Any]:
    """Return the key set at ``url``, or where the issuer's discovery document says it is; raise ``JwksError``."""
    try:
        async with asyncio.timeout(WHOLE_S), httpx.AsyncClient(timeout=TIMEOUT_S, verify=_trust()) as client:
            return await _get(client, url if url is not None else await _discover(client, issuer))
    except TimeoutError:
        raise JwksError(f"{url or issuer}: no whole answer within {WHOLE_S:g} s") from None


@functools.cache  # to load all authorities takes longer than the question
def _trust() -> ssl.SSLContext:
    return httpx.create_ssl_context()


async def _discover(client: httpx.AsyncClient, issuer: str) -> str:
    about = await _get(client, issuer.rstrip("/") + DISCOVERY)
    url = about.get("jwks_uri")
    if about.get("issuer") != issuer or not isinstance(url, str) or not url.startswith(_scheme(issuer)):
        raise JwksError(f"the discovery document of {issuer} is for another issuer, or names no jwks_uri")
    return url


def _scheme(url: str) -> str:
    return url[: url.index("://") + 3]


async def _get(client: httpx.AsyncClient, url: str) -> dict[str, Any]:
    try:
        body = await _read(client, url)
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise JwksError(f"{url}: not JSON") from None
    except JwksError:
        raise
    except Exception as error:  # noqa: BLE001 - odd hosts and ports lead to whatever the layers below raise
        raise JwksError(f"{url}: {str(error) or type(error).__name__}") from None
    if not isinstance(parsed, dict):
        raise JwksError(f"{url}: not a JSON object")
    return parsed


async def _read(client: httpx.AsyncClient, url: str) -> bytes:
    body = bytearray()
    async with client.stream("GET", url) as answer:
        if answer.status_code != 200:
            raise JwksError(f"{url}: status {answer.status_code}")
        async for part in answer.aiter_bytes():
            body += part
            if len(body) > MAX_BYTES:
                raise JwksError(f"{url}: larger than {MAX_BYTES >> 20} MB")
    return bytes(body)
